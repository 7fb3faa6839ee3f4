package checkpoint

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// state returns what the recognition of a model needs to know about c. It shares the memory
// of c.
func (c *Checkpoint) state() *family.State {
	paths := sidecarPaths(c.name)
	return &family.State{
		Name: c.name, Sidecar: filepath.Base(paths[len(paths)-1]), Keys: c.Keys, Tensors: c.Tensors, Unordered: c.unordered, Compact: c.Compact != nil,
		Architecture: c.Architecture, EmbeddingKey: c.EmbeddingKey, Family: c.Family, Fields: c.Fields, Mapped: c.mapped,
		Module: c.module && c.forward == "" || c.Recognized || c.Training != "", Forward: c.forward,
	}
}

// recognise finds the architecture from the tensors, and joins the tables of a framework's
// fields. The arguments are those of State.Recognise.
func (c *Checkpoint) recognise(said []family.Statement, config family.Configuration, sidecar family.Lookup) error {
	s := c.state()
	if err := s.Recognise(said, config, sidecar); err != nil {
		return err
	}
	c.Keys, c.Architecture, c.EmbeddingKey = s.Keys, s.Architecture, s.EmbeddingKey
	c.Family, c.Fields, c.mapped = s.Family, s.Fields, s.Mapped
	if err := c.checkAliases(); err != nil {
		return err
	}
	for alias, key := range s.Aliases {
		if c.aliases == nil {
			c.aliases = map[string]string{}
		}
		c.aliases[alias] = key
		delete(c.Tensors, alias)
	}
	if len(c.aliases) > maxAliases {
		return c.inputf("%d tensors are other names of tensors, expected at most %d", len(c.aliases), maxAliases)
	}
	if len(s.Aliases) > 0 {
		c.keepKeys()
	}
	return nil
}

// keepKeys removes the keys of tensors that c does not have any more.
func (c *Checkpoint) keepKeys() {
	c.Keys = slices.DeleteFunc(c.Keys, func(key string) bool { return !c.has(key) })
}

// split returns the tensors of c under their own keys. A joined table is split again. The
// result shares the memory of c's tensors, except that of a NeuMF's tables.
func (c *Checkpoint) split() map[string]Tensor {
	tensors := c.state().Split()
	for alias, key := range c.aliases {
		tensors[alias] = tensors[key]
	}
	return tensors
}

// TensorCount returns the number of tensors of c in a dense file.
func (c *Checkpoint) TensorCount() int {
	n, s := len(c.Keys)+len(c.aliases), c.state()
	joined := 0 // tables that are one tensor
	for j := range c.Architecture.Fields() {
		joined += len(s.TableKeys(j))
	}
	return n + max(joined-1, 0)
}

// Towers returns the keys of the two tables of a field of a NeuMF, the MLP's and then GMF's. It
// returns nil for models of other kinds.
func (c *Checkpoint) Towers(field int) (keys []string) {
	if c.Architecture.Kind != model.NeuMF {
		return nil
	}
	return c.state().TableKeys(field)
}

// Assumed returns what Read assumed about a model, because the file does not say it.
func (c *Checkpoint) Assumed() []string { return c.state().Assumed() }

// metadata adds what the tensors do not say about c to the metadata of a file.
func (c *Checkpoint) metadata(into map[string]string) map[string]string {
	into[metaFormat] = "pt"
	into[metaArchitecture] = string(mustMarshal(c.Architecture))
	if text := c.state().Metadata(); text != "" {
		into[family.MetadataKey] = text
	}
	if c.graph != nil {
		into[metaGraph] = string(mustMarshal(c.graph))
	}
	if len(c.aliases) > 0 {
		into[metaAliases] = string(mustMarshal(c.aliases))
	}
	return into
}

// takeAliases takes the metadata shaver.aliases: tensors that are other names of one
// parameter. It removes them from Tensors.
func (c *Checkpoint) takeAliases(metadata map[string]string) error {
	text, ok := metadata[metaAliases]
	if !ok {
		return nil
	}
	aliases := map[string]string{}
	if err := json.Unmarshal([]byte(text), &aliases); err != nil {
		return fault.Inputf("metadata %s: %w", metaAliases, err)
	}
	_, small := metadata[metaCompact]
	for alias, key := range aliases {
		a, has := c.Tensors[alias]
		t, ok := c.Tensors[key]
		if _, chain := aliases[key]; chain || tensor.CheckKey(alias) != nil || strings.HasPrefix(alias, ownTensors) || small == has {
			return fault.Inputf("metadata %s has the key %s, expected that of a tensor", metaAliases, tensor.Quote(alias))
		}
		if !small && (!ok || a.DType != t.DType || !slices.Equal(a.Shape, t.Shape) || !bytes.Equal(a.Data, t.Data)) {
			return fault.Inputf("metadata %s says that %s and %s are one tensor, but they differ", metaAliases, tensor.Quote(alias), tensor.Quote(key))
		}
	}
	for alias := range aliases {
		delete(c.Tensors, alias)
	}
	c.keepKeys()
	if len(aliases) > 0 {
		c.aliases = aliases
	}
	return nil
}

// maxAliases bounds the number of aliases. A file that is written repeats the tensor for
// each of them.
const maxAliases = 64

// checkAliases checks the aliases that the metadata name.
func (c *Checkpoint) checkAliases() error {
	if len(c.aliases) == 0 {
		return nil
	}
	tensors := c.state().Split()
	for alias, key := range c.aliases {
		_, clash := tensors[alias]
		if _, ok := tensors[key]; clash || !ok {
			return c.inputf("metadata %s says that %s is another name of %s: expected a new name and a tensor", metaAliases, tensor.Quote(alias), tensor.Quote(key))
		}
	}
	return nil
}

package family

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// State is a state dict, and what is known about its model.
type State struct {
	Name    string // name of the file, for errors
	Sidecar string // name of the JSON file that the user may write to say more about the model
	// Keys are the keys of the tensors, in the file's order and spelling. Recognise changes Keys
	// and Tensors if each field has a table of its own. It joins these tables to one tensor,
	// whose key has a * for the name of the field.
	Keys      []string
	Tensors   map[string]tensor.Tensor
	Unordered bool   // whether the order of Keys is not that of the state dict
	Compact   bool   // whether the file is in compact form, in which the tables are joined
	Module    bool   // whether it is known what stands between the layers, as in a whole module
	Forward   string // class of a whole module whose code nobody knows, or ""

	// What Recognise finds.
	Architecture model.Architecture
	EmbeddingKey string            // key of the table
	Family       string            // framework that named the tensors; "" for our own names
	Fields       []string          // names of the fields; nil if they are not known
	Mapped       bool              // whether FuxiCTR's feature_map.json said that each field has one id in a row
	Aliases      map[string]string // keys of tensors that are other names of understood ones, and the keys of those
}

// Recognise finds the architecture from the tensors and checks what said and config state
// about it. config is nil if the file has no model_config. Field sizes come from said,
// otherwise from sidecar, otherwise from the offsets.
func (st *State) Recognise(said []Statement, config Configuration, sidecar Lookup) error {
	s, err := st.seek()
	if err != nil {
		return err
	}
	if s.hasTowers() {
		return st.recogniseTowers(s, said, config, sidecar)
	}
	if f := s.seekFamily(); f != nil {
		return st.recogniseFamily(s, f, said, config, sidecar)
	}
	var dims []int
	complete := false // the kind and the sizes are said
	for _, statement := range said {
		if dims == nil {
			dims = statement.FieldDims
		}
		complete = complete || statement.FieldDims != nil && statement.Kind != nil
	}
	offsets := s.offsetDims()
	if !complete {
		found, err := sidecar("")
		if dims != nil || offsets != nil {
			found = found.hint()
		} else if err != nil {
			return err
		}
		if found != nil {
			said = append(said, *found)
			if dims == nil {
				dims = found.FieldDims
			}
		}
	}
	if dims == nil {
		dims = offsets
	}
	if dims == nil {
		return s.dimsMissing()
	}
	for _, statement := range said {
		if statement.Kind != nil {
			s.kind = model.Kind(normal(string(*statement.Kind)))
			break
		}
	}
	return st.settle(s, dims, said, config)
}

// recogniseFamily is Recognise for the tensors of family f.
func (st *State) recogniseFamily(s *seeker, f *family, said []Statement, config Configuration, sidecar Lookup) error {
	found, err := sidecar(f.name)
	if err != nil {
		return err
	}
	if found != nil {
		said = append(said, *found)
	}
	for i := range said {
		if said[i].Classes != nil && f.classes != nil {
			s.takeClasses(f, &said[i])
		}
	}
	dims, err := s.adopt(f, said)
	if err != nil {
		return err
	}
	kind, parts := s.kind, s.parts
	if s, err = st.seek(); err != nil { // the keys have changed
		return err
	}
	s.kind, s.parts = kind, parts
	return st.settle(s, dims, said, config)
}

// settle finds the architecture of a model whose fields have the given sizes, and checks
// what is said about it.
func (st *State) settle(s *seeker, dims []int, said []Statement, config Configuration) error {
	l, err := s.roles(dims)
	if err != nil {
		return err
	}
	if config != nil {
		configured, err := config(l.Kind)
		if err != nil {
			return st.inputf("%w", err)
		}
		said = append(said, *configured)
	}
	for i := range said {
		if err := said[i].check(l, st.familyOf()); err != nil {
			return st.inputf("%w", err)
		}
	}
	st.Architecture, st.EmbeddingKey, st.Aliases = l.Architecture, l.Embedding, s.aliases
	return nil
}

// Roles returns the roles of the tensors of a recognised model.
func (st *State) Roles() (*Roles, error) {
	s, err := st.seek()
	if err != nil {
		return nil, err
	}
	return s.roles(st.Architecture.FieldDims)
}

// inputf returns an input error about the file.
func (st *State) inputf(format string, args ...any) error {
	return fault.Inputf("%s: "+format, append([]any{st.Name}, args...)...)
}

// keepKeys removes the keys of tensors that c does not have any more.
func (st *State) keepKeys() {
	st.Keys = slices.DeleteFunc(st.Keys, func(key string) bool {
		_, ok := st.Tensors[key]
		return !ok
	})
}

// Split returns the tensors of c under their own keys. A joined table is split again. The
// result shares the memory of c's tensors, except that of a NeuMF's tables.
func (st *State) Split() map[string]tensor.Tensor {
	tensors := make(map[string]tensor.Tensor, len(st.Tensors)+len(st.Fields))
	for key, t := range st.Tensors {
		if key == st.EmbeddingKey && st.Architecture.Kind == model.NeuMF {
			st.splitTowers(tensors, key, t)
			continue
		}
		if key != st.EmbeddingKey || !st.joined() {
			tensors[key] = t
			continue
		}
		from := 0
		for j, field := range st.Fields {
			part := tensor.Tensor{DType: t.DType, Shape: []int{st.Architecture.FieldDims[j], t.Shape[1]}}
			to := from + part.Elements()*t.DType.Size()
			if t.Data != nil { // a table in compact form may have no data
				part.Data = t.Data[from:to]
			}
			tensors[forField(key, field)], from = part, to
		}
	}
	return tensors
}

// TableKeys returns the keys of the tables of a field that were joined to one. It returns nil
// if the file has one table.
func (st *State) TableKeys(field int) (keys []string) {
	switch {
	case st.Architecture.Kind == model.NeuMF:
		for _, tower := range towers[field] {
			keys = append(keys, forField(st.EmbeddingKey, tower))
		}
	case st.joined():
		keys = []string{forField(st.EmbeddingKey, st.Fields[field])}
	}
	return keys
}

// joined reports whether the table was joined from several tables.
func (st *State) joined() bool { return st.Family != "" && strings.Contains(st.EmbeddingKey, "*") }

// MetadataKey is the key of the metadata of another framework's model in safetensors files.
const MetadataKey = "shaver.family"

// metadata is the JSON value of the metadata shaver.family. It holds what the names
// and shapes of the tensors do not say.
type metadata struct {
	Name       string   `json:"name"`
	Activation string   `json:"activation,omitempty"` // of the hidden layers
	Fields     []string `json:"fields,omitempty"`     // in the order of the fields
}

const relu = "relu"

// Metadata returns the metadata shaver.family, or "" for our own names.
func (st *State) Metadata() string {
	if st.Family == "" {
		return ""
	}
	m := metadata{Name: st.Family, Fields: st.Fields}
	if len(st.Architecture.Hidden) > 0 {
		m.Activation = relu
	}
	text, _ := json.Marshal(m) // strings do not fail
	return string(text)
}

// TakeMetadata adds what the metadata shaver.family say.
func (s *Statement) TakeMetadata(text string) error {
	var m metadata
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return fault.Inputf("metadata %s: %w", MetadataKey, err)
	}
	if !slices.Contains(names(), m.Name) {
		return fault.Inputf("metadata %s names the framework %s, expected one of %s", MetadataKey, tensor.Quote(m.Name), strings.Join(names(), ", "))
	}
	if m.Activation != "" {
		s.Activation = &m.Activation
	}
	s.FieldNames = m.Fields
	return nil
}

// Assumed returns what Recognise assumed about a model, because the file does not say it.
func (st *State) Assumed() (all []string) {
	if st.joined() && !st.Mapped {
		all = append(all, "each field has one id in a row")
	}
	if len(st.Architecture.Hidden) > 0 && !st.Module {
		all = append(all, "activation ReLU")
	}
	if st.Forward != "" {
		all = append(all, fmt.Sprintf("the forward of class %s, whose code is not in the file, is that of %s", tensor.Quote(st.Forward), titles[st.Architecture.Kind]))
	}
	if st.familyOf() == &torchRechub {
		all = append(all, "the wide and the deep features are the same, in the same order")
	}
	return all
}

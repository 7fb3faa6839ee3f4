// Package checkpoint reads trained models from the files of PyTorch users (.pth,
// safetensors, and the folders of torch.distributed.checkpoint) and of ONNX, and recognises the architecture from the tensors. It writes
// safetensors files, dense or, after pruning, compact, or with a composed table, and .onnx
// files with pruned tables.
//
// Nothing in a file is ever executed or imported, and memory is bounded by the file's
// actual bytes. A defect of a file is an input error (package fault) that names the file
// and the tensor.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/compact"
	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/dissect"
)

// The keys of our metadata in safetensors files.
const (
	metaFormat       = "format" // "pt" = the names and layout of PyTorch
	metaArchitecture = "shaver.architecture"
	metaAliases      = "shaver.aliases"  // JSON object: other names of tensors, and their keys in Tensors
	metaTraining     = "shaver.training" // JSON object: how shaver trained the model
	metaOrigins      = "shaver.origins"  // JSON array: Checkpoint.Origins
	metaScored       = "shaver.scored"   // JSON array: Checkpoint.Scored
	metaRecipe       = "shaver.recipe"   // JSON object: Checkpoint.Recipe
)

// Tensor is a tensor of a checkpoint, of package tensor.
type Tensor = tensor.Tensor

// DType is the type of a tensor's elements.
type DType = tensor.DType

// The element types.
const (
	F64  = tensor.F64
	F32  = tensor.F32
	F16  = tensor.F16
	BF16 = tensor.BF16
	I64  = tensor.I64
	I32  = tensor.I32
	I16  = tensor.I16
	I8   = tensor.I8
	U8   = tensor.U8
	Bool = tensor.Bool
)

// Checkpoint is a state dict of known architecture. It is read-only and may be shared
// between goroutines.
type Checkpoint struct {
	Architecture model.Architecture
	// Keys are the keys of the tensors, in the file's order and spelling, with the
	// prefixes _orig_mod. of torch.compile and module. of data parallel training. If each
	// field has a table of its own in the file, the tables are joined to one tensor, whose
	// key has a * for the name of the field. Files that are written have the fields' tables
	// again, under their own keys.
	Keys         []string
	Tensors      map[string]Tensor
	EmbeddingKey string   // key in Tensors of the table, [n, d]
	Family       string   // framework that named the tensors; "" for our own names
	Fields       []string // names of the fields; nil if they are not known
	Ignored      string   // a sentence without a full stop on inputs of an .onnx file that its output does not depend on, or ""
	Recognized   bool     // whether the file is the graph of a model of another kind than model.Graph
	// Compact holds the tables of a file in compact form. It is nil for a dense file. Read
	// and Parse also put the whole tables into Tensors.
	Compact *compact.Table
	// Layers are those of a file of WriteLayers whose union Compact holds. It is nil for any other file.
	Layers []Layer
	// Composed holds the tensors of a file from which the table is computed. It is nil for any other
	// file. Tensors has the whole table, and not these tensors.
	Composed *composed.Table
	// Training is a JSON object with the settings of the training that made the model, and
	// with its results. It is empty if shaver has not trained the model.
	Training string
	// Identities say what the ids of each field stand for. They are nil if the file does not say
	// it. They do not affect the digest.
	Identities []model.Identity
	// Standards say how the numbers of each dense input were standardised. They are nil if the file does
	// not say it, or if there are no dense inputs. They do not affect the digest.
	Standards []model.Standard
	// Origins are the digests of the models from which shaver pruned this one: the first one, and then
	// what was pruned again. It is nil if shaver has not pruned the model, or did so before it wrote
	// origins.
	Origins []string
	// Scored are the rows that chose which entries, fields and columns of the model are gone. It is nil if the model is not
	// pruned, or the file does not say it. It does not affect the digest.
	Scored []Scored
	// Tasks are those for which the model is used, or nil. They are not in the file, and do not affect the digest.
	Tasks  []model.Task
	output string // that was chosen without tasks, or ""
	// Recipe is the JSON of the settings with which shaver compress made the model, or "".
	Recipe string

	name      string            // name of the file, for errors
	logit     string            // how the logit follows from the output of an .onnx file; "" for another file
	origin    *origin           // nil unless the file is an .onnx file
	graph     *graphForm        // nil unless the kind is model.Graph
	guards    []graphComputed   // what replaces the ids of a field that are outside it; see Computed
	signature *signature        // nil unless a graph was read from an .onnx file, or is a slice of one
	mapped    bool              // whether FuxiCTR's feature_map.json said that each field has one id in a row
	module    bool              // whether the file holds a whole module, whose classes were checked
	forward   string            // class of that module whose code nobody knows, or ""
	unordered bool              // whether the order of Keys is not that of the state dict
	packed    map[string]packed // tensors that a file of WriteMixed stores in fewer bits, by their keys
	aliases   map[string]string // other names of tensors that two modules share, and their keys in Tensors
}

// Read reads the checkpoint at path. The content decides whether the file is .pth or
// safetensors. A folder is one of torch.distributed.checkpoint, whose digest is that of the
// same state dict in one file.
//
// A bare state dict does not give its field sizes. Read takes them from the JSON file
// next to it (path + ".json", or path with the extension .json), which holds the fields
// of model.Architecture, at least field_dims. Without such a file it takes them from the
// buffer "offsets".
//
// State dicts of other frameworks (Families) may need more: the kind, the activation of
// the hidden layers, or field_names. The error then says what the JSON file must hold. The
// order of the fields is that of the state dict, unless FuxiCTR's feature_map.json is in
// the same folder.
func Read(path string) (*Checkpoint, error) { return ReadPart(path, Options{}) }

// Options choose a part of a file that holds several models.
type Options struct {
	// StateDict is the key of the state dict in a .pth file. Its parts are joined by dots if
	// it is in a dict of a dict. An empty key stands for the only one.
	StateDict string
	ONNX      dissect.Options
	// Generic keeps every .onnx file as a model of model.Graph. Otherwise a graph that
	// computes what a model of another kind computes becomes a model of that kind, which is
	// faster and can be pruned. The logits agree up to rounding.
	Generic bool
	// Pads holds the pad ids of some lists of a model of model.Graph, by the names of their
	// fields. They replace those that the file says or suggests. -1 means that no id is one.
	Pads map[string]int
}

// ReadOutput is like Read, but chooses an output of an .onnx file, or several, as dissect.Options
// has it. Tasks, of which output must be "", choose their outputs. Other files have no outputs to choose
// from, so a state dict is a model of one task, or of those with which it was read from an .onnx file.
func ReadOutput(path, output string, tasks ...model.Task) (*Checkpoint, error) {
	if len(tasks) > 0 && IsONNX(path) {
		output = model.Outputs(tasks)
	}
	c, err := ReadPart(path, Options{ONNX: dissect.Options{Output: output}})
	if err != nil {
		return nil, err
	}
	if len(tasks) == 0 {
		c.output = output
		return c, nil
	}
	has := 1
	if c.graph != nil {
		has = max(has, c.graph.Tasks)
	}
	if has != len(tasks) {
		return nil, c.inputf("it is a model of %d tasks, expected %d: %s", has, len(tasks), model.TasksText(tasks))
	}
	c.Tasks = tasks
	return c, nil
}

// ReadModel reads a checkpoint and builds its model. output and tasks are as for ReadOutput.
func ReadModel(path, output string, tasks ...model.Task) (*Checkpoint, *model.Model, error) {
	c, err := ReadOutput(path, output, tasks...)
	if err != nil {
		return nil, nil, err
	}
	m, err := c.Model()
	return c, m, err
}

// ReadPart is like Read for a file that may hold several models.
func ReadPart(path string, o Options) (*Checkpoint, error) {
	c, err := readPart(path, o)
	if err != nil {
		return nil, err
	}
	return c, c.setPads(o.Pads)
}

func readPart(path string, o Options) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if o.ONNX != (dissect.Options{}) {
			return nil, fault.Inputf("%s is not an .onnx file, so it has no outputs to choose from", path)
		}
		return readFolder(path, o.StateDict)
	}
	f, err := files.Open(path, "a .pth, safetensors or .onnx file")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 8)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if isZip(head[:n]) {
		return readPTH(path, f, info.Size(), o.StateDict, sidecarFile(path))
	}
	if o.StateDict != "" {
		return nil, fault.Inputf("%s is not a .pth file, so it holds no state dict under %s", path, tensor.Quote(o.StateDict))
	}
	if isONNX(path, head[:n]) {
		return readONNX(path, o)
	}
	if o.ONNX != (dissect.Options{}) {
		return nil, fault.Inputf("%s is not an .onnx file, so it has no outputs to choose from", path)
	}
	data, err := readWhole(path, f, info.Size(), sidecarFile(path))
	if err != nil {
		return nil, err
	}
	return readSafetensors(path, data, sidecarFile(path))
}

// Parse reads a checkpoint from data and keeps data, which must not be changed
// afterwards. name stands for the file in errors. Parse looks for no JSON file.
func Parse(name string, data []byte) (*Checkpoint, error) {
	if isZip(data) {
		return readPTH(name, bytes.NewReader(data), int64(len(data)), "", noSidecar)
	}
	return readSafetensors(name, data, noSidecar)
}

// ReadState reads the tensors of a .pth or safetensors file without recognising the model.
// stateDict is as in Options. Package family is tested with it.
func ReadState(path, stateDict string) (*family.State, error) {
	data, err := files.Small(path, 1<<20, "a checkpoint")
	if err != nil {
		return nil, err
	}
	var c *Checkpoint
	if isZip(data) {
		c, _, _, err = parsePTH(path, bytes.NewReader(data), int64(len(data)), stateDict)
	} else {
		c, _, err = parseTensors(path, data)
	}
	if err != nil {
		return nil, err
	}
	return c.state(), nil
}

func isZip(data []byte) bool {
	return bytes.HasPrefix(data, []byte("PK\x03\x04")) || bytes.HasPrefix(data, []byte("PK\x05\x06"))
}

func noSidecar(string) (*family.Statement, error) { return nil, nil }

// ParseModel reads a safetensors file, dense or compact, and returns its model and what the
// file says about the fields. The model shares data's memory, which must not be changed. A
// compact table is not inflated, so besides data the model needs only the memory of its
// network. A composed table is computed. ParseModel looks for no JSON file.
func ParseModel(name string, data []byte) (*model.Model, *model.Known, error) {
	if isZip(data) {
		return nil, nil, fault.Inputf("%s is a .pth file: expected safetensors; shaver model convert converts it", name)
	}
	c, err := parseState(name, data, noSidecar)
	if err != nil {
		return nil, nil, err
	}
	m, err := c.Model()
	if err != nil {
		return nil, nil, err
	}
	return m, c.Known(), nil
}

func readSafetensors(name string, data []byte, sidecar family.Lookup) (*Checkpoint, error) {
	c, err := parseState(name, data, sidecar)
	if err != nil {
		return nil, err
	}
	if c.Compact != nil {
		err = c.inflate(int64(len(data)))
	}
	return c, err
}

// parseState reads a safetensors file. It leaves a compact table without data in Tensors.
func parseState(name string, data []byte, sidecar family.Lookup) (*Checkpoint, error) {
	c, metadata, err := parseTensors(name, data)
	if err != nil {
		return nil, err
	}
	if c.Layers == nil { // parseLayers checks digests
		if err := checkDigest(name, data, metadata); err != nil {
			return nil, err
		}
	}
	if c, err = c.takeState(metadata, int64(len(data)), sidecar); err != nil {
		return nil, err
	}
	return c.calibrateLayer()
}

// takeState recognises the model of c, which has the tensors of a safetensors file of the given size and nothing else.
func (c *Checkpoint) takeState(metadata map[string]string, size int64, sidecar family.Lookup) (*Checkpoint, error) {
	if modelfile.Is(metadata) {
		return nil, fault.Inputf("%s is a model of a job, without what other commands need: expected the file from which it was made", c.name)
	}
	if _, ok := metadata[metaTables]; ok {
		return nil, fault.Inputf("%s has rows of the tables for FBGEMM, without the rest of the model: expected the file from which it was made", c.name)
	}
	if err := c.takeHistory(metadata); err != nil {
		return nil, err
	}
	if err := c.takePacked(metadata); err != nil {
		return nil, err
	}
	if is, err := c.takeGraph(metadata); is {
		if err == nil {
			err = c.takeMeanings(metadata)
		}
		return c, err
	}
	var said []family.Statement
	if _, ok := metadata[metaArchitecture]; ok {
		s := family.Statement{From: "metadata " + metaArchitecture}
		if err := unmarshalArchitecture(metadata, &s); err != nil {
			return nil, c.inputf("%w", err)
		}
		if text, ok := metadata[family.MetadataKey]; ok {
			if err := s.TakeMetadata(text); err != nil {
				return nil, c.inputf("%w", err)
			}
		}
		said = append(said, s)
	}
	_, isCompact := metadata[metaCompact]
	_, isComposed := metadata[metaComposed]
	switch {
	case isCompact && isComposed:
		return nil, c.inputf("composed table: metadata has both %s and %s", metaComposed, metaCompact)
	case isCompact:
		if err := c.takeCompact(metadata); err != nil {
			return nil, c.inputf("compact form: %w", err)
		}
	case isComposed:
		if err := c.takeComposed(metadata, size); err != nil {
			return nil, c.inputf("composed table: %w", err)
		}
	}
	if err := c.takeAliases(metadata); err != nil {
		return nil, c.inputf("%w", err)
	}
	c.Training = metadata[metaTraining]
	if err := c.recognise(said, nil, sidecar); err != nil {
		return nil, err
	}
	if err := c.takeMeanings(metadata); err != nil {
		return nil, err
	}
	if key := metadata[metaEmbeddingKey]; c.Compact != nil && key != c.EmbeddingKey {
		return nil, c.inputf("compact form: metadata %s is %s, but the table's key is %s", metaEmbeddingKey, tensor.Quote(key), c.EmbeddingKey)
	}
	if isComposed {
		if c.EmbeddingKey != composedKey {
			return nil, c.inputf("composed table: the table's key is %s, expected %s", c.EmbeddingKey, composedKey)
		}
		return c, c.compose()
	}
	return c, nil
}

// parseTensors returns the tensors of a safetensors file, whose model is not yet recognised, and
// its metadata.
func parseTensors(name string, data []byte) (*Checkpoint, map[string]string, error) {
	c := &Checkpoint{Tensors: map[string]Tensor{}, name: name, unordered: true}
	if _, err := headerLength(name, data, int64(len(data))); err != nil {
		return nil, nil, err
	}
	entries, metadata, err := c.parseLayers(data)
	if err == nil && c.Layers == nil {
		entries, metadata, err = parseSafetensors(name, data)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		c.add(e.Key, e.Tensor)
	}
	return c, metadata, nil
}

// add appends a tensor under a new key.
func (c *Checkpoint) add(key string, t Tensor) {
	c.Keys = append(c.Keys, key)
	c.Tensors[key] = t
}

// inputf returns an input error about the file.
func (c *Checkpoint) inputf(format string, args ...any) error {
	return fault.Inputf("%s: "+format, append([]any{c.name}, args...)...)
}

// floats returns the values of a tensor. The result may share the tensor's memory and is
// read-only.
func (c *Checkpoint) floats(key string) ([]float32, error) {
	values, err := c.Tensors[key].Float32View()
	if err != nil {
		return nil, c.inputf("tensor %s %w%s", key, err, c.tableOf(key))
	}
	return values, nil
}

// Embedding returns a copy of the table, [n, d], that the caller owns.
func (c *Checkpoint) Embedding() ([]float32, error) {
	values, err := c.floats(c.EmbeddingKey)
	return slices.Clone(values), err
}

// WithEmbedding returns a checkpoint whose table is a copy of table, of length n*d and
// type F32. It shares everything else with c.
func (c *Checkpoint) WithEmbedding(table []float32) *Checkpoint {
	old := c.Tensors[c.EmbeddingKey]
	if len(table) != old.Elements() {
		panic(fmt.Sprintf("checkpoint: WithEmbedding: table of %d entries, expected shape %s", len(table), tensor.ShapeText(old.Shape)))
	}
	changed := *c
	changed.Compact, changed.Composed = nil, nil
	changed.Tensors = maps.Clone(c.Tensors)
	changed.Tensors[c.EmbeddingKey] = tensor.FromFloat32s(old.Shape, table)
	return &changed
}

// canonical returns c as one safetensors file, not yet laid out. It holds every tensor
// under its own key and with its own type, and the architecture in the metadata. It
// depends on nothing else, so the same state dict gives the same bytes, whatever file it
// came from. Tensors are ordered by decreasing width of their elements, then by key, which
// keeps each tensor aligned.
func (c *Checkpoint) canonical() *tensor.File {
	return tensor.NewFile(c.split(), c.metadata(map[string]string{}))
}

// WriteTo writes the canonical file, of Size bytes, to w, without holding it in memory.
func (c *Checkpoint) WriteTo(w io.Writer) (int64, error) { return c.canonical().WriteTo(w) }

// Size returns the length in bytes of the canonical file.
func (c *Checkpoint) Size() int64 { return c.canonical().Size() }

// Digest returns the SHA-256 of the canonical file, in hexadecimal.
func (c *Checkpoint) Digest() string {
	sum := sha256.New()
	_, _ = c.canonical().WriteTo(sum) // writing to a hash does not fail
	return hex.EncodeToString(sum.Sum(nil))
}

// WriteDense writes the canonical file, with Training, Origins, Scored, Identities and Standards, to path, all of it
// or nothing, and returns its length in bytes. PyTorch users load it with safetensors.torch.load_file and
// load_state_dict.
func WriteDense(path string, c *Checkpoint) (int64, error) {
	f := c.canonical()
	c.describe(f.Metadata)
	return writeWhole(path, f)
}

// describe adds Training, Origins, Scored, Identities, Standards and the guards of ids to the metadata of a file. The canonical file
// does not have them, so that the digest of a model depends on its weights only.
func (c *Checkpoint) describe(metadata map[string]string) {
	if c.guards != nil {
		metadata[metaGuards] = string(mustMarshal(c.guards))
	}
	if c.Training != "" {
		metadata[metaTraining] = c.Training
	}
	maps.Copy(metadata, c.properties())
}

// originsOf returns the origins in the metadata of a file.
func originsOf(metadata map[string]string) ([]string, error) {
	return arrayIn[string](metadata, metaOrigins, "digests")
}

// arrayIn returns the JSON array under a key of the metadata of a file, or nil without it. An empty array is
// an error, which says of what the array should be.
func arrayIn[T any](metadata map[string]string, key, of string) (all []T, err error) {
	text, ok := metadata[key]
	if !ok {
		return nil, nil
	}
	if json.Unmarshal([]byte(text), &all) != nil || len(all) == 0 {
		return nil, fmt.Errorf("metadata %s is %s, expected a JSON array of %s", key, tensor.Quote(text), of)
	}
	return all, nil
}

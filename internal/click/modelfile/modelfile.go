// Package modelfile is shaver's own form of a model: the weights as the model computes with them, and
// what identifies the model, whatever file it came from. A job sends this form, and workers read
// nothing else.
//
// The form is a safetensors file. Its metadata shaver.model is a header in JSON. Each weight is a tensor of type F32 under a
// name of its own, such as hidden.0.weight. The constants of the graph of a head have names that begin with head/, and those of
// its tables with table/. schemas/weights.v1.safetensors.json lists them.
package modelfile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/graph"
)

// Extension ends the names of files in this form.
const Extension = ".shaver"

// metaModel is the key of the header in the metadata.
const metaModel = "shaver.model"

// version is the version of the form.
const version = 1

// The beginnings of the names of the constants of a graph, and of its tables.
const (
	headPrefix  = "head/"
	tablePrefix = "table/"
)

// header is the value of the metadata shaver.model.
type header struct {
	Version      int                `json:"version"`
	Digest       string             `json:"digest"` // identifies the model
	Architecture model.Architecture `json:"architecture"`
	Head         *head              `json:"head,omitempty"` // of a model of Kind Graph
}

// head is a model.GraphHead, with the positions of inputs in the graph's list of them.
type head struct {
	Graph     json.RawMessage `json:"graph"` // graph.Description
	LookUps   []int           `json:"look_ups"`
	Dense     []int           `json:"dense,omitempty"`
	IDs       []idInput       `json:"ids,omitempty"`
	Constants []table         `json:"constants,omitempty"`
}

type idInput struct {
	Field int `json:"field"`
	Input int `json:"input"`
}

type table struct {
	Name  string `json:"name"`
	Field int    `json:"field"`
	Dim   int    `json:"dim"`
	Input int    `json:"input"`
	Table int    `json:"table"` // number of the tensor table/ with the values; look-ups of several fields may share it
}

// File is the content of a file, which is to be written.
type File struct{ file *tensor.File }

// New returns the file of m, which has an embedding. digest identifies the model. The file shares the memory of m's weights, which must not
// change.
func New(m *model.Model, digest string) (*File, error) {
	h := header{Version: version, Digest: digest, Architecture: m.Architecture}
	tensors := map[string]tensor.Tensor{}
	w, bias := m.Weights, []float32{m.Weights.Bias}
	for _, s := range slots(&w, &bias) {
		if *s.values != nil {
			tensors[s.name] = tensor.View(s.shape(), *s.values)
		}
	}
	if w.Graph != nil {
		h.Head = encodeHead(w.Graph, tensors)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("header of the model: %w", err)
	}
	return &File{tensor.NewFile(tensors, map[string]string{metaModel: string(text)})}, nil
}

// Size returns the length of the file in bytes.
func (f *File) Size() int64 { return f.file.Size() }

// SHA256 returns the SHA-256 of the file, in hexadecimal.
func (f *File) SHA256() string {
	sum := sha256.New()
	_, _ = f.file.WriteTo(sum) // writing to a hash does not fail
	return hex.EncodeToString(sum.Sum(nil))
}

// WriteTo writes the file to w.
func (f *File) WriteTo(w io.Writer) (int64, error) { return f.file.WriteTo(w) }

// Write writes the file to path, all of it or nothing, and returns its length in bytes.
func (f *File) Write(path string) (n int64, err error) {
	err = atomicfile.Write(path, func(w io.Writer) (err error) {
		n, err = f.WriteTo(w)
		return err
	})
	return n, err
}

// Named reports whether the name of a file says that it has this form.
func Named(path string) bool { return filepath.Ext(path) == Extension }

// Is reports whether a safetensors file with the given metadata has this form.
func Is(metadata map[string]string) bool { return metadata[metaModel] != "" }

// Written reports whether the file at path has this form. It reads only the header.
func Written(path string) bool {
	metadata, err := tensor.Metadata(path)
	return err == nil && Is(metadata)
}

// Parse returns the model of a file, and the digest that identifies it. name stands for the file in errors. The model shares data's
// memory, which must not change.
func Parse(name string, data []byte) (m *model.Model, digest string, err error) {
	refuse := func(format string, args ...any) (*model.Model, string, error) {
		return nil, "", fault.Inputf("%s: "+format, append([]any{name}, args...)...)
	}
	entries, metadata, err := tensor.Parse(name, data)
	if err != nil {
		return nil, "", err
	}
	if !Is(metadata) {
		return refuse("metadata %s is missing, so it is not a model in shaver's own form", metaModel)
	}
	var h header
	if err := files.Strict([]byte(metadata[metaModel]), &h); err != nil {
		return refuse("metadata %s: %w", metaModel, err)
	}
	a := &h.Architecture
	if h.Version != version || len(h.Digest) != hex.EncodedLen(sha256.Size) {
		return refuse("metadata %s has version %d and the digest %s, expected version %d and a SHA-256", metaModel, h.Version, tensor.Quote(h.Digest), version)
	}
	if err := a.Validate(); err != nil {
		return refuse("metadata %s: %w", metaModel, err)
	}
	if a.Experts > mostExperts || a.Rank > mostExperts {
		return refuse("metadata %s: %d experts of rank %d, expected at most %d", metaModel, a.Experts, a.Rank, mostExperts)
	}
	if a.CrossLayers > len(entries) || len(a.Hidden) > len(entries) {
		return refuse("%d tensors are too few for %d hidden and %d cross layers", len(entries), len(a.Hidden), a.CrossLayers)
	}
	t := tensors{m: map[string]tensor.Tensor{}}
	for _, e := range entries {
		t.m[e.Key] = e.Tensor
	}
	w, bias := empty(a), []float32(nil)
	for _, s := range slots(w, &bias) {
		*s.values = t.take(s.name)
		s.setShape(t.shape)
	}
	if len(bias) == 1 {
		w.Bias = bias[0]
	}
	if h.Head != nil {
		if w.Graph, err = h.Head.decode(a, &t); err != nil {
			return refuse("%w", err)
		}
	}
	if left := slices.Sorted(maps.Keys(t.m)); len(left) > 0 {
		return refuse("tensor %s is no weight of this %s", left[0], a.Kind)
	}
	if t.err != nil {
		return refuse("%w", t.err)
	}
	if m, err = model.New(*a, *w); err != nil {
		return refuse("%w", err)
	}
	return m, h.Digest, nil
}

// mostExperts bounds the experts and their rank, so that products of sizes do not overflow.
const mostExperts = 1 << 15

// tensors are those of a file that no weight has yet. An error stays in err.
type tensors struct {
	m     map[string]tensor.Tensor
	shape []int // of the last one
	err   error
}

// take removes a tensor and returns its values. They may be NaN or infinite. Without the tensor they are nil.
func (t *tensors) take(name string) []float32 {
	one, ok := t.m[name]
	if t.shape = one.Shape; !ok {
		return nil
	}
	delete(t.m, name)
	if one.DType != tensor.F32 {
		t.err = fmt.Errorf("tensor %s has the type %s, expected %s", name, one.DType, tensor.F32)
		return nil
	}
	values, err := one.AnyFloat32s()
	if err != nil {
		t.err = fmt.Errorf("tensor %s %w", name, err)
	}
	if values == nil {
		values = []float32{}
	}
	return values
}

// slot is a weight of a model and its name in a file.
type slot struct {
	name   string
	values *[]float32
	layer  *model.Linear // whose Weight it is; nil for all other weights
}

func (s *slot) shape() []int {
	if s.layer != nil {
		return []int{s.layer.Out, s.layer.In}
	}
	return []int{len(*s.values)}
}

// setShape sets the size of the layer.
func (s *slot) setShape(shape []int) {
	if s.layer != nil && len(shape) == 2 {
		s.layer.Out, s.layer.In = shape[0], shape[1]
	}
}

// empty returns the weights of a model with the layers of a and without values.
func empty(a *model.Architecture) *model.Weights {
	w := &model.Weights{Hidden: make([]model.Linear, len(a.Hidden))}
	if a.Kind == model.DCNMix {
		w.Mix = make([]model.MixLayer, a.CrossLayers)
	} else {
		w.Cross = make([]model.Linear, a.CrossLayers)
	}
	return w
}

// slots returns all weights of w, whose layers have the right numbers, but the values of a graph. bias stands for w.Bias.
func slots(w *model.Weights, bias *[]float32) []slot {
	all := []slot{
		{name: "embedding", values: &w.Embedding}, {name: "first_order", values: &w.FirstOrder}, {name: "linear", values: &w.Linear},
		{name: "product", values: &w.Product}, {name: "gates", values: &w.Gates}, {name: "bias", values: bias},
	}
	add := func(name string, l *model.Linear) {
		all = append(all, slot{name + ".weight", &l.Weight, l}, slot{name: name + ".bias", values: &l.Bias})
	}
	for i := range w.Hidden {
		add("hidden."+strconv.Itoa(i), &w.Hidden[i])
	}
	for i := range w.Cross {
		add("cross."+strconv.Itoa(i), &w.Cross[i])
	}
	for i := range w.Mix {
		name, l := "mix."+strconv.Itoa(i), &w.Mix[i]
		all = append(all, slot{name: name + ".u", values: &l.U}, slot{name: name + ".c", values: &l.C}, slot{name: name + ".v", values: &l.V}, slot{name: name + ".bias", values: &l.Bias})
	}
	add("output", &w.Output)
	return all
}

// tableName returns the name of a tensor of constant look-ups.
func tableName(n int) string { return tablePrefix + strconv.Itoa(n) }

// encodeHead describes g, and adds its weights to tensors.
func encodeHead(g *model.GraphHead, tensors map[string]tensor.Tensor) *head {
	text, weights := graph.Encode(g.Graph)
	for _, w := range weights {
		tensors[headPrefix+w.Name] = tensor.View(w.Shape, w.Floats)
	}
	at := make(map[graph.Value]int, len(g.Graph.Inputs))
	for i, v := range g.Graph.Inputs {
		at[v] = i
	}
	h := &head{Graph: text, LookUps: []int{}}
	for _, v := range g.LookUps {
		h.LookUps = append(h.LookUps, at[v])
	}
	for _, v := range g.Dense {
		h.Dense = append(h.Dense, at[v])
	}
	for _, id := range g.IDs {
		h.IDs = append(h.IDs, idInput{id.Field, at[id.Input]})
	}
	for _, c := range g.Constants {
		n := slices.IndexFunc(h.Constants, func(t table) bool {
			return tensors[tableName(t.Table)].Same(tensor.View([]int{len(c.Values)}, c.Values))
		})
		if n >= 0 {
			n = h.Constants[n].Table
		} else {
			n = len(h.Constants)
			tensors[tableName(n)] = tensor.View([]int{len(c.Values)}, c.Values)
		}
		h.Constants = append(h.Constants, table{c.Name, c.Field, c.Dim, at[c.Input], n})
	}
	return h
}

// decode returns the head that h describes, with weights of t.
func (h *head) decode(a *model.Architecture, t *tensors) (*model.GraphHead, error) {
	if a.Kind != model.Graph {
		return nil, fmt.Errorf("metadata %s has a head, but the kind is %s", metaModel, a.Kind)
	}
	g, err := graph.Decode(h.Graph, func(name string) (*graph.Tensor, error) {
		values := t.take(headPrefix + name)
		if values == nil {
			return nil, fmt.Errorf("tensor %s is missing", tensor.Quote(headPrefix+name))
		}
		return &graph.Tensor{Name: name, Type: graph.Float, Shape: t.shape, Floats: values}, nil
	})
	if err != nil {
		return nil, err
	}
	input := func(i int) graph.Value {
		if i >= 0 && i < len(g.Inputs) {
			return g.Inputs[i]
		}
		t.err = fmt.Errorf("metadata %s names input %d of the head, which has %d inputs", metaModel, i, len(g.Inputs))
		return 0
	}
	head := &model.GraphHead{Graph: g}
	for _, i := range h.LookUps {
		head.LookUps = append(head.LookUps, input(i))
	}
	for _, i := range h.Dense {
		head.Dense = append(head.Dense, input(i))
	}
	for _, id := range h.IDs {
		head.IDs = append(head.IDs, model.IDInput{Field: id.Field, Input: input(id.Input)})
	}
	tables := map[int][]float32{}
	for _, c := range h.Constants {
		if tables[c.Table] == nil {
			tables[c.Table] = t.take(tableName(c.Table))
		}
		head.Constants = append(head.Constants, model.ConstantLookUp{Name: c.Name, Field: c.Field, Dim: c.Dim, Values: tables[c.Table], Input: input(c.Input)})
	}
	return head, nil
}

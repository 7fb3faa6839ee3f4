// Package infer scores rows with a model that shaver has pruned, directly from its
// compact file. The file is mapped into memory and the embedding tables are never
// decompressed, so resident memory grows with the number of kept entries.
//
// Package infer reads the safetensors files that shaver writes, compact or dense, of every
// model that shaver prunes. These include models from .onnx files with any head, several
// tables and dense inputs. On the same machine, both forms of a model give the same logits
// to the last bit.
package infer

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
)

// Model is an open model. Any number of goroutines may use it at once. Open returns a
// Model.
type Model struct {
	name    string
	shape   model.Architecture
	names   []string // of the fields; nil if the file does not say them
	offsets []int32
	front   []bool // PadsFront
	fields  []int  // field of each id of a row, [Width]

	change sync.Mutex // locked by Upgrade and Close
	served atomic.Pointer[served]
}

// served is what calls of Logits use until Upgrade replaces it.
type served struct {
	model   *model.Model
	known   *model.Known
	head    []byte    // what precedes the layers of the file; nil if it has none
	layers  []Layer   // of the file
	whole   int       // number of layers that the model has
	scorers sync.Pool // *scorer

	use  sync.RWMutex // locked for reading while file is read
	file *mapping     // nil after close
}

// scorer is temporary memory for one call of Logits.
type scorer struct {
	*model.Scorer
	rows model.Rows
}

// Layer describes a layer of a file that shaver prune --layers wrote: Bytes is the number of bytes of the file through it.
type Layer = checkpoint.Layer

// Layers returns the layers of a file of which data is the beginning, with at least the header. The header has 8 bytes and those whose number the
// 8 bytes are, little-endian. The first bytes of the file, as many as any layer says, are a model. Another file has no layers.
func Layers(name string, data []byte) ([]Layer, error) {
	layers, _, err := checkpoint.ReadLayers(name, data)
	return layers, err
}

// ErrClosed is returned by Logits after Close.
var ErrClosed = errors.New("infer: the model is closed")

// ErrTruncated is returned by Open and Logits if the file became shorter while the model
// was open.
var ErrTruncated = errors.New("the file was truncated while the model was open; to replace a model, rename a new file to its name")

// Open opens the model at path. It reads the whole file once, and checks every number in
// it and, in a compact file, its digest. The file must not be modified or truncated while
// the model is open. It may be replaced by a rename, as shaver does. A truncated file gives
// ErrTruncated where that is noticed. A file that is overwritten gives wrong logits without
// an error. On systems without memory-mapped files, Open
// reads the file into memory instead. Of a file of shaver prune --layers, or the beginning of one, Open opens the
// model of the whole layers. It copies their entries to memory.
func Open(path string) (*Model, error) {
	if strings.EqualFold(filepath.Ext(path), ".onnx") {
		return nil, fault.Inputf("%s: package infer does not read .onnx files: convert the file with shaver model convert", path)
	}
	v, err := openPath(path)
	if err != nil {
		return nil, err
	}
	return newModel(path, v), nil
}

// OpenBytes opens the model in data, which holds the bytes of a file as Open reads it. It serves systems
// without files, such as browsers, and models that are part of a program. name stands for the file in
// errors. data must not be changed until Close.
func OpenBytes(name string, data []byte) (*Model, error) {
	v, err := read(name, &mapping{data: data})
	if err != nil {
		return nil, err
	}
	return newModel(name, v), nil
}

// openPath maps and reads a file.
func openPath(path string) (*served, error) {
	file, err := openMapping(path)
	if err != nil {
		return nil, err
	}
	v, err := read(path, file)
	if err != nil {
		return nil, errors.Join(err, file.close())
	}
	if err := file.forget(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.close())
	}
	return v, nil
}

// read reads the model in a file.
func read(name string, file *mapping) (v *served, err error) {
	err = guarded(name, func() error {
		m, known, err := checkpoint.ParseModel(name, file.data)
		if err != nil {
			return err
		}
		v = newServed(m, known)
		v.layers, v.head, err = checkpoint.ReadLayers(name, file.data)
		v.head = slices.Clone(v.head) // Upgrade reads it, perhaps after the file is closed
		return err
	})
	if err != nil {
		return nil, err
	}
	for v.whole < len(v.layers) && v.layers[v.whole].Bytes <= int64(len(file.data)) {
		v.whole++
	}
	v.file = file
	return v, nil
}

// newServed returns what serves a model, without a file.
func newServed(m *model.Model, known *model.Known) *served {
	v := &served{model: m, known: known}
	v.scorers.New = func() any {
		return &scorer{Scorer: m.NewScorer(), rows: model.Rows{Width: m.Width(), Inputs: len(m.Dense)}}
	}
	return v
}

// newModel returns a Model that v serves.
func newModel(name string, v *served) *Model {
	m := &v.model.Architecture
	o := &Model{name: name, shape: *m, names: v.known.FieldNames(), offsets: m.Offsets(), front: make([]bool, len(m.FieldDims))}
	for j, length := range m.Lengths() {
		o.front[j] = v.known.Fields != nil && v.known.Fields[j].Pads == model.Front
		o.fields = append(o.fields, slices.Repeat([]int{j}, length)...)
	}
	o.served.Store(v)
	return o
}

// Layers returns the number of layers that the model has, and that of the whole file. Both are 0 if the file is not in layers.
func (m *Model) Layers() (have, all int) {
	v := m.served.Load()
	return v.whole, len(v.layers)
}

// Upgrade replaces the model by that of more layers, without a pause. path is a longer beginning of the same file, which Open
// reads; it may be the open file if bytes were only appended to it. Running calls of Logits end with the model with which they
// began. If Upgrade returns an error, the model stays. While it runs, both models are in memory.
func (m *Model) Upgrade(path string) error {
	return m.upgrade(path, func() (*served, error) { return openPath(path) })
}

// UpgradeBytes is Upgrade for data, which holds the bytes from the beginning of the file on, not only those that are new. data must not be
// changed until Close.
func (m *Model) UpgradeBytes(data []byte) error {
	return m.upgrade(m.name, func() (*served, error) { return read(m.name, &mapping{data: data}) })
}

func (m *Model) upgrade(name string, open func() (*served, error)) error {
	m.change.Lock()
	defer m.change.Unlock()
	before := m.served.Load()
	if before.file == nil {
		return ErrClosed
	}
	v, err := open()
	if err != nil {
		return err
	}
	if before.layers == nil || !bytes.Equal(v.head, before.head) || v.whole < before.whole {
		return errors.Join(fault.Inputf("%s has other layers than the open model, or fewer: expected the same file with at least %d layers", name, before.whole), v.close())
	}
	m.served.Store(v)
	return before.close()
}

// close waits for running calls of Logits, and unmaps the file.
func (v *served) close() error {
	v.use.Lock()
	defer v.use.Unlock()
	if v.file == nil {
		return nil
	}
	err := v.file.close()
	v.file = nil
	return err
}

// Close waits for running calls of Logits, and unmaps the file. It is safe to call Close
// more than once.
func (m *Model) Close() error {
	m.change.Lock()
	defer m.change.Unlock()
	return m.served.Load().close()
}

// Fields returns a copy of the names of the fields in the order of the ids of a row. It is nil if the
// file does not name them. A file of shaver train does, and one of shaver model convert --dataset.
func (m *Model) Fields() []string { return slices.Clone(m.names) }

// Sizes returns a copy of the number of features of each field. The ids of a field are 0
// to its size - 1.
func (m *Model) Sizes() []int { return slices.Clone(m.shape.FieldDims) }

// Lengths returns a copy of the number of ids of each field in a row. It is 1 for a field
// that is not a list.
func (m *Model) Lengths() []int { return m.shape.Lengths() }

// Pads returns the id of each field that fills positions of a list without a value. It is
// -1 for a field that has no such id.
func (m *Model) Pads() []int {
	pads := slices.Repeat([]int{-1}, len(m.shape.FieldDims))
	for _, l := range m.shape.Lists {
		pads[l.Field] = l.Pad
	}
	return pads
}

// PadsFront reports for each field whether the training filled lists with pads at their front. Otherwise it filled them at
// their end, or the file does not say it.
func (m *Model) PadsFront() []bool { return slices.Clone(m.front) }

// DenseInputs returns a copy of the names of the dense inputs in their order. It is empty
// for a model that reads ids only.
func (m *Model) DenseInputs() []string { return slices.Clone(m.shape.Dense) }

// Logits sets dst[i] to the logit of row i. If the model was trained with the squared error,
// for example on ratings, the logit is its prediction.
//
// ids holds the rows' local ids, [len(dst), sum of Lengths], field by field. A list has its
// ids in the order of its positions, which the caller fills with the pad as in the training
// of the model (see PadsFront). dense holds the rows' values of DenseInputs, [len(dst), dense inputs], and is
// nil if the model has none. These are the numbers that the model reads. If the model was
// trained on the logarithm of a price, for example, the caller takes the logarithm.
//
// To the last bit, a logit depends only on the row and on the kind of processor. It may be
// infinite or NaN if the model computes such a value, for example because it divides by 0.
// If an id is out of range or a dense value is not finite, Logits returns an error that
// names the first such row and field or dense input, and leaves dst unchanged. After
// ErrTruncated the content of dst is undefined. Logits is fastest with batches of at least
// 64 rows. A call takes memory for the ids and values of its batch, and for what the
// network computes for a part of the batch. Later calls use that memory again.
func (m *Model) Logits(dst []float64, ids []int32, dense []float32) error {
	v := m.served.Load()
	for v.use.RLock(); v.file == nil; v.use.RLock() {
		v.use.RUnlock()
		if v == m.served.Load() {
			return ErrClosed
		}
		v = m.served.Load() // Upgrade closed the model before
	}
	defer v.use.RUnlock()
	s := v.scorers.Get().(*scorer)
	defer v.scorers.Put(s)
	if err := m.take(&s.rows, len(dst), ids, dense); err != nil {
		return err
	}
	return guarded(m.name, func() error {
		s.Logits(dst, &s.rows)
		return nil
	})
}

// take checks a batch of n rows, and sets rows to it.
func (m *Model) take(rows *model.Rows, n int, ids []int32, dense []float32) error {
	width, inputs := len(m.fields), len(m.shape.Dense)
	if len(ids) != n*width {
		what := "fields"
		if width > len(m.offsets) {
			what = "ids"
		}
		return fault.Inputf("%s: %d ids for %d rows of %d %s", m.name, len(ids), n, width, what)
	}
	if len(dense) != n*inputs {
		return fault.Inputf("%s: %d dense values for %d rows of %d dense inputs", m.name, len(dense), n, inputs)
	}
	for i, v := range dense {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fault.Inputf("%s: row %d has the value %v in dense input %s: values must be finite", m.name, i/inputs, v, m.shape.Dense[i%inputs])
		}
	}
	rows.Reset()
	for i := range n {
		for k, id := range ids[i*width : (i+1)*width] {
			j := m.fields[k]
			if id < 0 || int(id) >= m.shape.FieldDims[j] {
				return fault.Inputf("%s: row %d has id %d in field %d: expected 0 to %d", m.name, i, id, j, m.shape.FieldDims[j]-1)
			}
			rows.Features = append(rows.Features, m.offsets[j]+id)
		}
		rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, 0)
	}
	rows.Dense = append(rows.Dense, dense...)
	return nil
}

// guarded calls read, which reads the mapped file of the given name. If the file was
// truncated, the system reports a memory fault for an access to a lost page. guarded turns
// the fault into ErrTruncated.
func guarded(name string, read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }: // a memory fault
			err = fmt.Errorf("%s: %w", name, ErrTruncated)
		default:
			panic(p)
		}
	}()
	return read()
}

// Probability returns the probability of a click for a logit. It has no meaning for a model
// that was trained with the squared error.
func Probability(logit float64) float64 { return 1 / (1 + math.Exp(-logit)) }

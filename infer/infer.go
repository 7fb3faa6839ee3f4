// Package infer scores rows with a model that shaver has pruned, directly from its
// compact file. The file is mapped into memory and the embedding table is never
// decompressed, so resident memory grows with the number of kept entries.
//
// Package infer reads the safetensors files that shaver writes, compact or dense. On the
// same machine, both forms of a table give the same logits to the last bit.
package infer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"shaver/internal/checkpoint"
	"shaver/internal/fault"
	"shaver/internal/model"
)

// Model is an open model. Any number of goroutines may use it at once. Open returns a
// Model.
type Model struct {
	name    string
	model   *model.Model
	offsets []int32
	scorers sync.Pool // *scorer

	use  sync.RWMutex // locked for reading while file is read
	file *mapping     // nil after Close
}

// scorer is temporary memory for one call of Logits.
type scorer struct {
	*model.Scorer
	rows model.Rows
}

// ErrClosed is returned by Logits after Close.
var ErrClosed = errors.New("infer: the model is closed")

// Open opens the model at path. It reads the whole file once and checks every number in
// it. The file must not be modified or truncated while the model is open. It may be
// replaced by a rename, as shaver does. On systems without memory-mapped files, Open
// reads the file into memory instead.
func Open(path string) (*Model, error) {
	file, err := openMapping(path)
	if err != nil {
		return nil, err
	}
	m, err := checkpoint.ParseModel(path, file.data)
	if err != nil {
		return nil, errors.Join(err, file.close())
	}
	if err := file.forget(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.close())
	}
	o := &Model{name: path, model: m, offsets: m.Offsets(), file: file}
	o.scorers.New = func() any {
		return &scorer{Scorer: m.NewScorer(), rows: model.Rows{Fields: m.Fields()}}
	}
	return o, nil
}

// Close waits for running calls of Logits, and unmaps the file. It is safe to call Close
// more than once.
func (m *Model) Close() error {
	m.use.Lock()
	defer m.use.Unlock()
	if m.file == nil {
		return nil
	}
	err := m.file.close()
	m.file = nil
	return err
}

// Sizes returns a copy of the number of features of each field. A row has one id per
// field, from 0 to the field's size - 1.
func (m *Model) Sizes() []int { return slices.Clone(m.model.FieldDims) }

// Logits sets dst[i] to the logit of row i. ids holds the rows' local ids, [len(dst),
// fields]. To the last bit, a logit depends only on the row and on the kind of processor.
// If an id is out of range, Logits returns an error that names the first such row and
// field, and leaves dst unchanged. It is fastest with batches of at least 64 rows.
func (m *Model) Logits(dst []float64, ids []int32) error {
	fields := len(m.offsets)
	if len(ids) != len(dst)*fields {
		return fault.Inputf("%s: %d ids for %d rows of %d fields", m.name, len(ids), len(dst), fields)
	}
	s := m.scorers.Get().(*scorer)
	defer m.scorers.Put(s)
	s.rows.Reset()
	for i := range dst {
		for j, id := range ids[i*fields : (i+1)*fields] {
			if id < 0 || int(id) >= m.model.FieldDims[j] {
				return fault.Inputf("%s: row %d has id %d in field %d: expected 0 to %d", m.name, i, id, j, m.model.FieldDims[j]-1)
			}
			s.rows.Features = append(s.rows.Features, m.offsets[j]+id)
		}
		s.rows.Number, s.rows.Label = append(s.rows.Number, int64(i)), append(s.rows.Label, 0)
	}
	m.use.RLock()
	defer m.use.RUnlock()
	if m.file == nil {
		return ErrClosed
	}
	s.Logits(dst, &s.rows)
	return nil
}

// Probability returns the probability of a click for a logit.
func Probability(logit float64) float64 { return 1 / (1 + math.Exp(-logit)) }

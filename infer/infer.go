// Package infer scores rows with a model that shaver has pruned, straight from
// its compact file: the file is mapped into memory, the embedding table is never
// inflated, and what is resident grows with what was kept.
//
// It reads the safetensors files that shaver writes, compact or dense. Of the
// same table, read on the same machine, both give the same logits, to the bit.
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

// Model is an open model, for any number of goroutines at once. Make one with
// Open.
type Model struct {
	name    string
	model   *model.Model
	offsets []int32
	scorers sync.Pool // of *scorer

	use  sync.RWMutex // held for reading while file is read
	file *mapping     // nil after Close
}

// scorer is the memory of one call of Logits.
type scorer struct {
	*model.Scorer
	rows model.Rows
}

// ErrClosed is what a Model returns after Close.
var ErrClosed = errors.New("infer: the model is closed")

// Open opens the model at path and checks every number in it, which reads the
// whole file once. The file must not be changed or cut while the model is open;
// replacing it by a rename, as shaver does, is no change. Where a system cannot
// map files, the file is read into memory instead.
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

// Close waits for calls of Logits that have begun, and unmaps the file. Closing
// twice is no error.
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

// Sizes returns the number of features of each field, in memory that the caller
// owns. A row has one id of each field, from 0 to its size - 1.
func (m *Model) Sizes() []int { return slices.Clone(m.model.FieldDims) }

// Logits sets dst[i] to the logit of row i, which depends on nothing but the row
// and the processor's kind, to the bit. ids are the rows' local ids, field by
// field: [len(dst), fields]. The error names the first row and field whose id is
// outside it; then dst is unchanged. Batches of 64 rows or more are fastest.
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
				return fault.Inputf("%s: row %d has the id %d in field %d: expected 0 to %d", m.name, i, id, j, m.model.FieldDims[j]-1)
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

// Probability returns the probability of a click that a logit stands for.
func Probability(logit float64) float64 { return 1 / (1 + math.Exp(-logit)) }

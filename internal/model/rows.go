package model

import "context"

// RowSource passes batches of rows to each, in the order of their global numbers,
// until the rows end or each returns an error, which it returns. A batch is valid
// only until each returns.
type RowSource func(ctx context.Context, each func(*Rows) error) error

// Rows is a batch of encoded rows, as estimators and evaluation read them. Readers
// reuse the slices for the next batch. A caller that keeps a batch must copy it.
type Rows struct {
	Fields   int     // m
	Number   []int64 // global row number in the dataset, the key of everything random about the row
	Label    []uint8 // 0 or 1
	Features []int32 // [len, m], global ids, field by field
}

// Len returns the number of rows.
func (r *Rows) Len() int { return len(r.Label) }

// Row returns the features of row i, without copying.
func (r *Rows) Row(i int) []int32 { return r.Features[i*r.Fields : (i+1)*r.Fields] }

// Reset empties r and keeps its memory.
func (r *Rows) Reset() {
	r.Number, r.Label, r.Features = r.Number[:0], r.Label[:0], r.Features[:0]
}

// Slice returns rows [from, to) without copying.
func (r *Rows) Slice(from, to int) Rows {
	return Rows{r.Fields, r.Number[from:to], r.Label[from:to], r.Features[from*r.Fields : to*r.Fields]}
}

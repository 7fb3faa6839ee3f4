package model

import "context"

// RowSource calls each with batches of rows, in ascending order of their global numbers.
// It stops when the rows end or when each returns an error, which it then returns. A batch
// is valid only until each returns.
type RowSource func(ctx context.Context, each func(*Rows) error) error

// Rows is a batch of encoded rows, as estimators and evaluation read them. A reader
// reuses the slices for the next batch, so a caller that keeps a batch must copy it.
type Rows struct {
	Fields   int     // m, the number of fields
	Number   []int64 // global row numbers in the dataset; they key all random draws for a row
	Label    []uint8 // 0 or 1
	Features []int32 // [len, m], global ids
}

// Len returns the number of rows.
func (r *Rows) Len() int { return len(r.Label) }

// Row returns the features of row i, without copying.
func (r *Rows) Row(i int) []int32 { return r.Features[i*r.Fields : (i+1)*r.Fields] }

// Reset empties r and keeps its memory for reuse.
func (r *Rows) Reset() {
	r.Number, r.Label, r.Features = r.Number[:0], r.Label[:0], r.Features[:0]
}

// Slice returns rows [from, to) without copying.
func (r *Rows) Slice(from, to int) Rows {
	return Rows{r.Fields, r.Number[from:to], r.Label[from:to], r.Features[from*r.Fields : to*r.Fields]}
}

package model

import (
	"context"
	"fmt"
)

// RowsPerDay is the largest number of rows of a dataset. In a window of days, the number of
// a row is RowsPerDay times the first 26 bits of the digest of the row's day, plus the row's
// number in that day. Hence it does not depend on the other days.
const RowsPerDay = 1 << 37

// RowName names a row by its number in messages. It names the day of a row in a window by
// the first six hexadecimal digits of the day's digest.
func RowName(number int64) string {
	if number < RowsPerDay {
		return fmt.Sprintf("row %d", number)
	}
	return fmt.Sprintf("row %d of the day %06x", number%RowsPerDay, number/RowsPerDay>>2)
}

// RowSource calls each with batches of rows, always in the same order. It stops when the rows end or when each returns an error, which it then returns. A batch
// is valid only until each returns.
type RowSource func(ctx context.Context, each func(*Rows) error) error

// Rows is a batch of encoded rows, as estimators and evaluation read them. A reader
// reuses the slices for the next batch, so a caller that keeps a batch must copy it.
type Rows struct {
	Width    int       // number of ids of a row: m, and more with lists (see Architecture.Width)
	Inputs   int       // k, the number of dense inputs; 0 without any
	Number   []int64   // row numbers in the dataset, see RowsPerDay; they key all random draws for a row
	Label    []float32 // 0 or 1, or a finite number in data whose labels are numbers
	Features []int32   // [len, Width], global ids, field by field and position by position
	Dense    []float32 // [len, k], finite, in the order in which the model names its dense inputs
	Weight   []int32   // how often each row counts, at least 1; nil if all rows count once
}

// Len returns the number of rows.
func (r *Rows) Len() int { return len(r.Label) }

// Row returns the global ids of row i, [Width], without copying.
func (r *Rows) Row(i int) []int32 { return r.Features[i*r.Width : (i+1)*r.Width] }

// DenseRow returns the dense inputs of row i, without copying.
func (r *Rows) DenseRow(i int) []float32 { return r.Dense[i*r.Inputs : (i+1)*r.Inputs] }

// Times returns how often row i counts.
func (r *Rows) Times(i int) int64 {
	if r.Weight == nil {
		return 1
	}
	return int64(r.Weight[i])
}

// Reset empties r and keeps its memory for reuse.
func (r *Rows) Reset() {
	r.Number, r.Label, r.Features, r.Dense, r.Weight = r.Number[:0], r.Label[:0], r.Features[:0], r.Dense[:0], r.Weight[:0]
}

// Append adds a copy of row i of other, which sets the numbers of ids and dense inputs
// of r.
func (r *Rows) Append(other *Rows, i int) {
	r.Width, r.Inputs = other.Width, other.Inputs
	r.Number = append(r.Number, other.Number[i])
	r.Label = append(r.Label, other.Label[i])
	r.Features = append(r.Features, other.Row(i)...)
	r.Dense = append(r.Dense, other.DenseRow(i)...)
	if other.Weight != nil {
		r.Weight = append(r.Weight, other.Weight[i])
	}
}

// AppendAll adds copies of all rows of other, which sets the numbers of ids and dense
// inputs of r.
func (r *Rows) AppendAll(other *Rows) {
	r.Width, r.Inputs = other.Width, other.Inputs
	r.Number = append(r.Number, other.Number...)
	r.Label = append(r.Label, other.Label...)
	r.Features = append(r.Features, other.Features...)
	r.Dense = append(r.Dense, other.Dense...)
	r.Weight = append(r.Weight, other.Weight...)
}

// Slice returns rows [from, to) without copying.
func (r *Rows) Slice(from, to int) Rows {
	part := Rows{r.Width, r.Inputs, r.Number[from:to], r.Label[from:to], r.Features[from*r.Width : to*r.Width], r.Dense[from*r.Inputs : to*r.Inputs], nil}
	if r.Weight != nil {
		part.Weight = r.Weight[from:to]
	}
	return part
}

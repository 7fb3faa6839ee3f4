package scores

import (
	"math"
	"slices"
)

// RaiseUnseen raises the errors of the entries that occur in no scored row of a sample.
// errors are those of AggregateSE for the named aggregate, which are 0 for most of these
// entries, as if a sample without an entry proved that the entry is worth nothing. RaiseUnseen
// raises them to what the aggregate would be if the entry had occurred in one row, with the
// root mean square contribution of the entries of its look-up in the rows that activate them.
// It changes nothing if all rows of the dataset were scored, and nothing of pad rows and frozen fields, which
// are never players.
func (f *File) RaiseUnseen(aggregate string, errors []float64) {
	if f.Rows >= f.DatasetRows || f.Rows < 1 {
		return
	}
	n, pads := float64(f.Rows), f.Layout.FixedRows()
	for _, s := range f.Layout.Spans() {
		var squares, cells float64 // sums over the entries of the span: of n times the mean square, and of the rows that activate them
		for row := s.Row; row < s.Row+s.Rows; row++ {
			from, to := f.Shape.Row(row)
			cells += float64(f.Count[row]) * float64(to-from)
			for _, rms := range f.RMS[from:to] {
				squares += n * float64(rms) * float64(rms)
			}
		}
		if cells == 0 {
			continue
		}
		once := math.Sqrt(squares/cells) / n // the mean of one such contribution over all rows
		if aggregate == RMS {
			once *= math.Sqrt(n)
		}
		for row := s.Row; row < s.Row+s.Rows; row++ {
			if _, pad := slices.BinarySearch(pads, row); pad {
				continue
			}
			from, to := f.Shape.Row(row)
			for i := from; i < to && f.Count[row] == 0; i++ {
				errors[i] = max(errors[i], once)
			}
		}
	}
}

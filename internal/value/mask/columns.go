package mask

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"shaver/internal/click/model"
)

// ColumnOrder returns all entries in the order in which the rival SSEDS drops them, column by
// column. A column has the entries of all rows of a span at one position. The columns are
// sorted by the absolute value of the sum of their scores, and ties by their first entries.
// Within a column the entries are sorted by row. scores has one element for each entry.
func ColumnOrder(a *model.Architecture, scores []float64) ([]int32, error) {
	if a.Parameters() > math.MaxInt32 {
		return nil, fmt.Errorf("the table has %d entries, expected at most %d", a.Parameters(), math.MaxInt32)
	}
	type column struct {
		first, rows, step int // its first entry, number of entries, and the distance between them
		worth             float64
	}
	var columns []column
	for _, s := range a.Spans() {
		for c := range s.Dim {
			k := column{first: s.Entry + c, rows: s.Rows, step: s.Dim}
			for row := range k.rows {
				k.worth += scores[k.first+row*k.step]
			}
			k.worth = math.Abs(k.worth)
			columns = append(columns, k)
		}
	}
	slices.SortStableFunc(columns, func(x, y column) int { return cmp.Compare(x.worth, y.worth) })
	order := make([]int32, 0, len(scores))
	for _, k := range columns {
		for row := range k.rows {
			order = append(order, int32(k.first+row*k.step))
		}
	}
	return order, nil
}

// WholeColumns returns the least number of entries, at least drop, whose removal from the front
// of order leaves no column partly in it. Entries of one column must follow each other in order.
func WholeColumns(a *model.Architecture, order []int32, drop int) int {
	if drop == 0 {
		return 0
	}
	spans := a.Spans()
	column := func(i int32) int { // the first entry of its column
		s := spans[sort.Search(len(spans), func(k int) bool { return spans[k].Entry > int(i) })-1]
		return s.Entry + (int(i)-s.Entry)%s.Dim
	}
	for last := column(order[drop-1]); drop < len(order) && column(order[drop]) == last; {
		drop++
	}
	return drop
}

package ingest

import (
	"fmt"
	"math"
	"slices"
)

// echo is what is known about whether a column repeats the label: its value in the rows with each
// label. It is over at the first row that says otherwise, so that it costs almost nothing.
type echo struct {
	over  bool
	seen  [2]bool
	value [2]int32 // an id, or the bits of a number
}

// add adds a row.
func (e *echo) add(label float32, value int32) {
	k := 0
	if label == 1 {
		k = 1
	}
	switch {
	case !e.seen[k]:
		e.seen[k], e.value[k] = true, value
		e.over = e.seen[1-k] && e.value[1-k] == value
	case e.value[k] != value:
		e.over = true
	}
}

// echoes holds an echo for each field that is no list, and for each dense input. It is nil if labels
// are numbers.
type echoes []echo

func newEchoes(b *builder) echoes {
	if b.numbers {
		return nil
	}
	e := make(echoes, len(b.fields)+len(b.dense))
	for j := range b.lists {
		e[j].over = b.lists[j].length > 0
	}
	return e
}

// columns adds rows.
func (e echoes) columns(rows *columns) {
	for at := range e {
		for i := 0; i < len(rows.label) && !e[at].over; i++ {
			if at < len(rows.ids) {
				e[at].add(rows.label[i], rows.ids[at][i])
			} else {
				e[at].add(rows.label[i], int32(math.Float32bits(rows.dense[at-len(rows.ids)][i])))
			}
		}
	}
}

// leastEchoes is the number of rows from which a column repeats the label not by chance.
const leastEchoes = 20

// warnings returns a warning for each column that repeats the label in all rows of b.
func (e echoes) warnings(b *builder) (warnings []string) {
	names := slices.Concat(b.fields, b.dense)
	for at, column := range e {
		if n := b.rows(); !column.over && column.seen[0] && column.seen[1] && n >= leastEchoes {
			name := "dense input "
			if at < len(b.fields) {
				name = "field "
			}
			name += names[at]
			warnings = append(warnings, fmt.Sprintf("%s says the label in all %d rows: leave its column out, because a model would learn only this column", name, n))
		}
	}
	return warnings
}

package ingest

import (
	"slices"

	"shaver/internal/data/folders"
	"shaver/internal/data/lake"
	"shaver/internal/data/vocabulary"
)

// place is what is known about the rows of a file before they are read.
type place struct {
	columns   int  // number of columns in the file
	separator byte // of the columns of a text; 0 for a table
	quotes    bool // values of a text may be quoted

	// What the path of the file says.
	values [][]byte // values of the columns that are only in the path; they follow those of the file
	agree  []known  // columns that are in the file too

	conditions []condition // for the rows of a table
}

// condition is a condition for the cell at a position. The cells of columns that are only in conditions follow those of the others.
type condition struct {
	lake.Condition
	at      int
	numeric bool // the values of the column are numbers
}

// known is the value that a column of a file must have in all rows.
type known struct {
	at    int
	value []byte
}

// cell returns the cell of a column.
func (w *place) cell(cells [][]byte, at int) []byte {
	if at < w.columns {
		return cells[at]
	}
	return w.values[at-w.columns]
}

// add adds the columns of the folders of a file to the columns of the file, and returns the names of all
// columns. If whole is true, values that are whole numbers become integers.
func (w *place) add(names []string, given []folders.Column, whole bool) []string {
	for _, c := range given {
		value := []byte(c.Value)
		if whole {
			value = vocabulary.WholeNumber(value)
		}
		if at := slices.Index(names, c.Name); at >= 0 {
			w.agree = append(w.agree, known{at, value})
			continue
		}
		names = append(slices.Clip(names), c.Name)
		w.values = append(w.values, value)
	}
	return names
}

package checkpoint

import (
	"cmp"
	"slices"
	"strconv"
)

// Piece is the columns of the rows of a part that one table in the file of the model has. A part
// has one piece. In a NeuMF it has two, because each field has two tables, each of half of the columns.
type Piece struct {
	Part          // with the name and the first row of the piece's table
	Number int    // of the piece, from 0
	Label  string // name of the field, or its number if the model does not know the names
	Column int    // first column in the part
	Width  int    // number of columns
}

// Pieces returns the pieces of the embedding tables, by table in the order in which Parts first
// names it, and then by row.
func (c *Checkpoint) Pieces() []Piece {
	var pieces []Piece
	order := map[string]int{} // of the tables
	add := func(p Piece) {
		if _, ok := order[p.Name]; !ok {
			order[p.Name] = len(order)
		}
		pieces = append(pieces, p)
	}
	for _, part := range c.Parts() {
		label := strconv.Itoa(part.Field)
		if c.Fields != nil {
			label = c.Fields[part.Field]
		}
		towers := c.Towers(part.Field)
		if towers == nil {
			add(Piece{Part: part, Label: label, Width: part.Dim})
		}
		for k, name := range towers {
			p := Piece{Part: part, Label: label, Column: k * part.Dim / 2, Width: part.Dim / 2}
			p.Name, p.From = name, 0
			add(p)
		}
	}
	slices.SortStableFunc(pieces, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(order[a.Name], order[b.Name]), cmp.Compare(a.From, b.From))
	})
	for i := range pieces {
		pieces[i].Number = i
	}
	return pieces
}

// ParseHead reads a compact file without inflating its tables. It returns what Parse does, but
// Tensors has no values of the tables. Bad input is as for Parse.
func ParseHead(name string, data []byte) (*Checkpoint, error) {
	return parseState(name, data, noSidecar)
}

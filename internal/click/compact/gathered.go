package compact

import "shaver/internal/click/model"

// Gathered holds the rows of the tables that a batch of rows of data reads, which the caller fills from
// elsewhere. It implements model.Embedder for this batch. Only one goroutine may use it at a time.
type Gathered struct {
	book   *model.Book
	looks  []gatheredLook
	ids    int // number of ids of a row of data
	size   int // number of elements of the embedding of a row of data
	index  map[[2]int32]int32
	rows   []gatheredRow
	values []float32
}

// gatheredLook is like look.
type gatheredLook struct{ span, id, first, at int }

// gatheredRow is a row of a span, whose values begin at the element at of values.
type gatheredRow struct {
	span, row int32
	at        int
}

// NewGathered returns an empty Gathered for a model. It keeps book, which reads the baseline of the model.
func NewGathered(a *model.Architecture, book *model.Book) *Gathered {
	g := &Gathered{book: book, ids: a.Width(), size: a.Players(), index: map[[2]int32]int32{}}
	t := &Table{fields: make([]field, len(book.Spans)), codebook: book.Values[:a.BaselineSize()]}
	t.look(a, book.Spans)
	number := map[*field]int{}
	for i := range t.fields {
		number[&t.fields[i]] = i
	}
	for _, l := range t.looks {
		g.looks = append(g.looks, gatheredLook{number[l.field], l.id, l.first, l.at})
	}
	return g
}

// Collect replaces the rows by those that a batch reads, each once. features are the global ids of
// the batch, [rows, Width]. All entries of the new rows have the values of the baseline.
func (g *Gathered) Collect(features []int32) {
	clear(g.index)
	g.rows, g.values = g.rows[:0], g.values[:0]
	for from := 0; from < len(features); from += g.ids {
		for _, l := range g.looks {
			key := [2]int32{int32(l.span), features[from+l.id] - int32(l.first)}
			if _, ok := g.index[key]; ok {
				continue
			}
			g.index[key] = int32(len(g.rows))
			g.rows = append(g.rows, gatheredRow{key[0], key[1], len(g.values)})
			g.values = append(g.values, g.book.Of(l.span, int(key[1]))...)
		}
	}
}

// Len returns the number of rows.
func (g *Gathered) Len() int { return len(g.rows) }

// Row returns row i: the number of its span in model.Architecture.Spans, its number in the span, and its
// values, which the caller may change until the next call of Collect.
func (g *Gathered) Row(i int) (span, row int, values []float32) {
	r := g.rows[i]
	return int(r.span), int(r.row), g.values[r.at:][:g.book.Spans[r.span].Dim]
}

// Embed implements model.Embedder for the rows of data of the batch.
func (g *Gathered) Embed(x []float32, features []int32) {
	for from := 0; from < len(features); from += g.ids {
		for _, l := range g.looks {
			_, _, values := g.Row(int(g.index[[2]int32{int32(l.span), features[from+l.id] - int32(l.first)}]))
			copy(x[l.at:], values)
		}
		x = x[g.size:]
	}
}

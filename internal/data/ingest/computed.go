package ingest

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dense"
	"shaver/internal/data/rawtext"
)

// Computed is a field of a model whose ids follow from other elements of a row.
type Computed struct {
	Field   int        // number among the fields of the model
	Sources [][]Source // by position of the field; if they are the field itself, only ids outside it are replaced

	// ID returns the local id from the values of the sources of a position. A whole number is in whole too, where it is exact.
	ID func(values []float64, whole []int64) (int64, error)
}

// Source is a value from which an id follows.
type Source struct {
	Name     string // of the number: that of a dense input, or of a column that is nothing else
	Field    int    // number of the field of the model whose id it is, or -1
	Position int    // in the field, if that is a list
}

// computing has what an import needs to compute fields.
type computing struct {
	fields  []Computed
	names   []string // of all fields of the model
	sizes   []int
	lists   []list // by field; nil if none is a list
	inputs  int    // number of dense inputs that the dataset has; the others are sources only
	given   []int  // number of each field of the file among those of the model
	numbers []int  // for each source in the order of fields, the dense input that it is, or -1

	whole  []int64 // the numbers of a row, if they are whole
	row    []int32 // global ids of the model's fields
	first  []int   // position of each field's ids in row
	offset []int32 // global id of each field's first feature
	values []float64
	exact  []int64 // values, if they are whole
}

// setGuards takes the guards of ids out of the computed fields of the configuration.
func (e *encodedImport) setGuards() {
	var rest []Computed
	for _, f := range e.config.Computed {
		if f.Sources[0][0].Field != f.Field {
			rest = append(rest, f)
			continue
		}
		if e.guards == nil {
			e.guards = make([]func(int64) (int64, error), len(e.config.Sizes))
		}
		e.guards[f.Field] = func(id int64) (int64, error) { return f.ID([]float64{float64(id)}, []int64{id}) }
	}
	e.config.Computed = rest
}

// setComputed prepares the computation of the fields that the header does not have. Their sources
// that are neither fields nor dense inputs become dense inputs that the dataset does not get.
func (e *encodedImport) setComputed() error {
	c := &e.config
	if len(c.Computed) == 0 {
		return nil
	}
	if len(c.Names) != len(c.Sizes) {
		return fault.Inputf("the model computes ids, but its fields have no names")
	}
	s, err := rawtext.Open(e.groups[0].files[0])
	if err != nil {
		return err
	}
	header, err := e.readHeader(s)
	s.Close()
	if err != nil {
		return err
	}
	computed := make([]bool, len(c.Sizes))
	missing := 0
	for _, f := range c.Computed {
		computed[f.Field] = true
		if !slices.Contains(header.Columns, c.Names[f.Field]) {
			missing++
		}
	}
	if missing == 0 || !header.Named && len(header.Columns) == 1+len(c.Sizes)+len(c.Dense.Columns) {
		return nil // the file has their ids
	}
	p := &computing{fields: c.Computed, names: c.Names, sizes: c.Sizes, inputs: len(c.Dense.Columns), first: []int{0}, offset: model.Offsets(c.Sizes)}
	column := func(name string) int {
		return slices.IndexFunc(c.Dense.Columns, func(d DenseColumn) bool { return d.Input.Name == name || d.Input.Name == "" && d.Name == name })
	}
	c.Dense.Columns = slices.Clone(c.Dense.Columns)
	for _, f := range c.Computed {
		for _, sources := range f.Sources {
			for _, source := range sources {
				at := -1
				if source.Field < 0 {
					if at = column(source.Name); at < 0 {
						if !header.Named || !slices.Contains(header.Columns[1:], source.Name) {
							return fault.Setting(fault.Inputf("%s:1: there is no column %q, from which the model computes its field %q: expected the column, or the ids in a column %q",
								e.groups[0].files[0], source.Name, c.Names[f.Field], c.Names[f.Field]), DenseSetting)
						}
						at = len(c.Dense.Columns)
						c.Dense.Columns = append(c.Dense.Columns, DenseColumn{source.Name, dense.Input{Name: source.Name, Rule: dense.None}})
					}
				}
				p.numbers = append(p.numbers, at)
			}
		}
	}
	if len(c.Lists.Columns) > 0 {
		p.lists = make([]list, len(c.Sizes))
	}
	number := make([]int, len(c.Sizes)) // of each field of the model in the file
	names, sizes := []string{}, []int{} // of the fields of the file, which need not have any
	for j := range c.Sizes {
		if computed[j] {
			continue
		}
		number[j] = len(p.given)
		p.given, names, sizes = append(p.given, j), append(names, c.Names[j]), append(sizes, c.Sizes[j])
	}
	lists := c.Lists.Columns
	c.Lists.Columns = nil
	for _, l := range lists {
		p.lists[l.Field] = list{l.Length, l.Pad, c.Lists.Pads == model.Front}
		if !computed[l.Field] {
			l.Field = number[l.Field]
			c.Lists.Columns = append(c.Lists.Columns, l)
		}
	}
	for _, j := range positions(len(p.sizes), p.lists) {
		if j == len(p.first) {
			p.first = append(p.first, len(p.row))
		}
		p.row = append(p.row, 0)
	}
	for k, j := range p.given {
		if e.guards != nil {
			e.guards[k] = e.guards[j] // j >= k
		}
	}
	p.whole = make([]int64, len(c.Dense.Columns))
	c.Names, c.Sizes = names, sizes
	e.computing = p
	return nil
}

// fill returns the global ids of all fields of the model for a row of the file, whose global
// ids, numbers and dense inputs it is given. It keeps the result until the next call.
func (p *computing) fill(ids []int32, numbers []float64, w *denseWriter) ([]int32, error) {
	at, below := 0, int32(0)
	for _, j := range p.given {
		for i := range p.length(j) {
			p.row[p.first[j]+i] = ids[at] - below + p.offset[j]
			at++
		}
		below += int32(p.sizes[j])
	}
	next := 0
	for _, f := range p.fields {
		for i, sources := range f.Sources {
			p.values, p.exact = p.values[:0], p.exact[:0]
			for _, s := range sources {
				v, whole := 0.0, int64(0)
				switch k := p.numbers[next]; {
				case k < 0:
					whole = int64(p.row[p.first[s.Field]+s.Position] - p.offset[s.Field])
					v = float64(whole)
				case w.inputs[k].Rule == dense.None && !math.IsNaN(numbers[k]):
					v, whole = numbers[k], p.whole[k] // a dense input is float32
				default:
					v = float64(w.values[k])
					whole = int64(v)
				}
				p.values, p.exact = append(p.values, v), append(p.exact, whole)
				next++
			}
			id, err := f.ID(p.values, p.exact)
			if err != nil {
				return nil, badRow{fmt.Errorf("field %s is computed from the row: %w", p.names[f.Field], err)}
			}
			if id < 0 || id >= int64(p.sizes[f.Field]) {
				return nil, badRow{fmt.Errorf("field %s: the id that follows from the row is %d, expected 0 to %d", p.names[f.Field], id, p.sizes[f.Field]-1)}
			}
			p.row[p.first[f.Field]+i] = int32(id) + p.offset[f.Field]
		}
	}
	return p.row, nil
}

func (p *computing) length(j int) int {
	if p.lists == nil {
		return 1
	}
	return max(1, p.lists[j].length)
}

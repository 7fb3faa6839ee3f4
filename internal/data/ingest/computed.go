package ingest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/data/dense"
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
	fields   []Computed
	computed []bool // by field of the model
	numbers  []int  // for each source in the order of fields, the dense input that it is, or -1
	written  int    // number of dense inputs that the dataset gets; the others are sources only
}

// setComputed takes the computed fields of the configuration, and the guards of ids out of them.
func (e *encoded) setComputed(c *EncodedConfig) error {
	for _, f := range c.Computed {
		if f.Sources[0][0].Field != f.Field {
			e.computed = append(e.computed, f)
			continue
		}
		if e.guards == nil {
			e.guards = make([]func(int64) (int64, error), len(c.Sizes))
		}
		e.guards[f.Field] = func(id int64) (int64, error) { return f.ID([]float64{float64(id)}, []int64{id}) }
	}
	if len(e.computed) > 0 && len(c.Names) != len(c.Sizes) {
		return fault.Inputf("the model computes ids, but its fields have no names")
	}
	return nil
}

// chooseComputed prepares the computation of the fields that the header does not have. Their sources
// that are neither fields nor dense inputs become dense inputs that the dataset does not get.
func (r *importer) chooseComputed() error {
	e, from := r.encoded, &r.config.Format.Dense
	p := &computing{fields: e.computed, computed: make([]bool, len(e.names)), written: len(from.Columns)}
	missing := 0
	for _, f := range e.computed {
		p.computed[f.Field] = true
		if !slices.Contains(e.header.Columns, e.names[f.Field]) {
			missing++
		}
	}
	if missing == 0 || !e.header.Named && len(e.header.Columns) == 1+len(e.names)+len(from.Columns) {
		return nil // the file has their ids
	}
	column := func(name string) int {
		return slices.IndexFunc(from.Columns, func(d DenseColumn) bool { return d.Input.Name == name || d.Input.Name == "" && d.Name == name })
	}
	from.Columns = slices.Clone(from.Columns)
	for _, f := range e.computed {
		for _, sources := range f.Sources {
			for _, source := range sources {
				at := -1
				if source.Field < 0 {
					if at = column(source.Name); at < 0 {
						if !e.header.Named || !slices.Contains(e.header.Columns[1:], source.Name) {
							return fault.Setting(fmt.Errorf("there is no column %q, from which the model computes its field %q: expected the column (NAME=%s takes it from column NAME), or the ids in a column %q",
								source.Name, e.names[f.Field], source.Name, e.names[f.Field]), DenseSetting)
						}
						at = len(from.Columns)
						from.Columns = append(from.Columns, DenseColumn{source.Name, dense.Input{Name: source.Name, Rule: dense.None}})
					}
				}
				p.numbers = append(p.numbers, at)
			}
		}
	}
	e.computing = p
	return nil
}

// given returns the names of the model's fields that the file has.
func (p *computing) given(names []string) (given []string) {
	for j, name := range names {
		if !p.computed[j] {
			given = append(given, name)
		}
	}
	return given
}

// arrange gives l the fields of the model, whose names are given. Those of the file keep the names that they have there.
func (p *computing) arrange(l *layout, names []string) {
	fields, pick := slices.Clone(names), make([]int, len(names))
	next := 0
	for j, computed := range p.computed {
		if computed {
			pick[j] = -1
			continue
		}
		fields[j], pick[j] = l.fields[next], l.pick[next]
		next++
	}
	l.fields, l.pick, l.dense.written = fields, pick, p.written
}

// compute replaces the ids of the computed fields in a row, with which ids end.
func (e *encodedIDs) compute(ids [][]int32, p *rowParser) error {
	row := func(j int) []int32 { return ids[j][len(ids[j])-p.length(j):] }
	next := 0
	for _, f := range e.computing.fields {
		for i, sources := range f.Sources {
			e.values, e.exact = e.values[:0], e.exact[:0]
			for _, s := range sources {
				v, whole := 0.0, int64(0)
				switch k := e.computing.numbers[next]; {
				case k < 0:
					whole = int64(row(s.Field)[s.Position])
					v = float64(whole)
				case e.dense.inputs[k].Rule == dense.None && !math.IsNaN(p.numbers[k]):
					var err error
					v = p.numbers[k] // a dense input is float32
					if whole, err = strconv.ParseInt(strings.TrimSuffix(string(p.cells[p.inputs[k]]), ".0"), 10, 64); err != nil {
						whole = int64(v)
					}
				default:
					v = float64(e.dense.values[k])
					whole = int64(v)
				}
				e.values, e.exact = append(e.values, v), append(e.exact, whole)
				next++
			}
			name, size := p.fields[f.Field], e.fields[f.Field].high
			id, err := f.ID(e.values, e.exact)
			if err != nil {
				return fmt.Errorf("field %s is computed from the row: %w", name, err)
			}
			if id < 0 || id >= size {
				return fmt.Errorf("field %s: the id that follows from the row is %d, expected 0 to %d", name, id, size-1)
			}
			row(f.Field)[i] = int32(id)
		}
	}
	return nil
}

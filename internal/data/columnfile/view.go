package columnfile

import (
	"slices"

	"github.com/apache/arrow/go/v17/parquet"

	"shaver/internal/base/fault"
)

// View says how a Parquet file gives rows of a table that has other columns than the file.
type View struct {
	Columns []ViewColumn
	// Deleted says which rows of the file, counted from 0, are not rows of the table. It is called from several goroutines. nil = none.
	Deleted interface{ Contains(row uint64) bool }
}

// ViewColumn is a column of a table. The file's column has the field ID, if the file has field IDs at all, and otherwise the
// name Source. If the file has no such column, all rows have the same value.
type ViewColumn struct {
	Name   string
	Source string   // "" = none
	Former []string // names that the file's column may have instead of Source
	ID     int32    // 0 = none
	Value  string   // text of the value that all rows have if the file does not have the column; "" = it is missing
	Kind   string   // as File.Kind; the file's may differ as a type may be widened
	Double bool     // values are numbers of 64 bits, even if those of the file have 32
}

// OpenView opens a Parquet file as rows of a table. Columns of the file that the view does not name do not exist.
func OpenView(path string, v *View) (*File, error) {
	t, err := Open(path)
	if err != nil {
		return nil, err
	}
	p, ok := t.table.(*parquetTable)
	if !ok {
		t.Close()
		return nil, fault.Inputf("%s: not a Parquet file", path)
	}
	t.view, t.columns, t.chosen, t.sources = v, nil, nil, nil
	s := p.meta.Schema
	p.wide, p.zoned = map[int]bool{}, map[int]bool{}
	names, ids := map[string]int{}, map[int32]int{} // the first leaf of each field of the root
	for i := range s.NumColumns() {
		top := s.Column(i).ColumnPath()[0]
		if _, there := names[top]; !there {
			names[top] = i
		}
	}
	for i := range s.Root().NumFields() {
		f := s.Root().Field(i)
		if id := f.FieldID(); id > 0 {
			ids[id] = names[f.Name()]
		}
	}
	for i, c := range v.Columns {
		at, ok := ids[c.ID]
		if c.ID <= 0 || len(ids) == 0 {
			at, ok = names[c.Source]
			for i := 0; !ok && i < len(c.Former); i++ {
				at, ok = names[c.Former[i]]
			}
		}
		if !ok {
			at = -1
		}
		t.columns, t.sources, t.chosen = append(t.columns, c.Name), append(t.sources, at), append(t.chosen, i)
		p.wide[at], p.zoned[at] = c.Double, c.Kind == Instants
		if err := t.checkKind(p, &c, at); err != nil {
			t.Close()
			return nil, err
		}
	}
	return t, nil
}

// checkKind returns bad input if a column of the file has values of another kind than the table's.
func (t *File) checkKind(p *parquetTable, c *ViewColumn, at int) error {
	if at < 0 || c.Kind == "" || p.unfit(at, true) != "" {
		return nil
	}
	kind := p.kind(at)
	if kind == "" || kind == c.Kind || kind == Timestamps && c.Kind == Instants && p.meta.Schema.Column(at).PhysicalType() == parquet.Types.Int96 {
		return nil
	}
	return fault.Inputf("%s: column %q has %s, but the column of the table has %s", t.path, c.Name, kind, c.Kind)
}

// viewed returns the next block of the table's rows.
func (t *File) viewed() (*Block, error) {
	var there, places []int // the columns that the file has, and their places in the cells
	cells := make([][]byte, len(t.chosen))
	for k, column := range t.chosen {
		if at := t.sources[column]; at >= 0 {
			there, places = append(there, at), append(places, k)
		} else if value := t.view.Columns[column].Value; value != "" {
			cells[k] = []byte(value)
		}
	}
	p, err := t.table.next(there, t.between)
	if err != nil {
		return nil, err
	}
	from, read := uint64(t.rows), p.cells
	p.cells = func(visit func(row int, cells [][]byte) error) error {
		cells := slices.Clone(cells) // blocks are read concurrently
		return read(func(row int, found [][]byte) error {
			if t.view.Deleted != nil && t.view.Deleted.Contains(from+uint64(row)) {
				return nil
			}
			for i, k := range places {
				cells[k] = found[i]
			}
			return visit(row, cells)
		})
	}
	return p, nil
}

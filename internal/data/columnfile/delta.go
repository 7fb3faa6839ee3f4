package columnfile

import (
	"errors"
	"io"
	"math"
	"slices"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// deltaMark is the key in the metadata of a Parquet file of a delta. Its value is the name of
// the file without extension. deltaModel is the key of the digest of the model.
const (
	deltaMark  = "shaver.delta"
	deltaModel = "shaver.model"
)

// The names of the Parquet files of a delta. DeltaBaseline is written last of them.
const (
	DeltaKept     = "kept.parquet"
	DeltaDropped  = "dropped.parquet"
	DeltaBaseline = "baseline.parquet"
)

// DeltaPart is the rows of a table that have one baseline.
type DeltaPart struct {
	Table    string
	Field    string
	First    int       // number of the first row in the table
	Baseline []float32 // [d], which entries that are not kept read
	Values   []float32 // [rows, d]
	Dropped  []bool    // [rows, d], which entries are not kept; nil = those that equal Baseline
	Changed  []bool    // [rows], which rows the files have; nil = all
}

// rows returns the number of rows.
func (p *DeltaPart) rows() int { return len(p.Values) / len(p.Baseline) }

// has reports whether the files have row i.
func (p *DeltaPart) has(i int) bool { return p.Changed == nil || p.Changed[i] }

// kept appends the columns of row i whose entry is kept.
func (p *DeltaPart) kept(columns []int32, i int) []int32 {
	d := len(p.Baseline)
	for c, v := range p.Values[i*d : (i+1)*d] {
		dropped := math.Float32bits(v) == math.Float32bits(p.Baseline[c])
		if p.Dropped != nil {
			dropped = p.Dropped[i*d+c]
		}
		if !dropped {
			columns = append(columns, int32(c))
		}
	}
	return columns
}

// DeltaCount is what the files of a delta contain.
type DeltaCount struct {
	Kept    int `json:"kept"`    // ids in the file of kept entries
	Entries int `json:"entries"` // kept entries
	Dropped int `json:"dropped"` // ids in the file of dropped ids
}

// Delta writes the three Parquet files of a delta: what a store of embedding rows has to change so
// that it holds a pruned model. Model is the digest of the pruned model. The same arguments give the
// same bytes.
type Delta struct {
	Model string
	Parts []DeltaPart
}

// WriteKept writes a line with table, id, columns and values for each row that keeps an
// entry. values has the entries of columns.
func (d *Delta) WriteKept(w io.Writer, count *DeltaCount) error {
	columns, err := listNode("columns", schema.NewInt32Node("element", parquet.Repetitions.Required, -1))
	if err != nil {
		return err
	}
	values, err := listNode("values", schema.NewFloat32Node("element", parquet.Repetitions.Required, -1))
	if err != nil {
		return err
	}
	return d.write(w, "kept", schema.FieldList{schema.NewInt64Node("id", parquet.Repetitions.Required, -1), columns, values}, func(out *file.Writer) error {
		var g deltaGroup
		var found []int32
		for i := range d.Parts {
			p := &d.Parts[i]
			for row := range p.rows() {
				if !p.has(row) {
					continue
				}
				if found = p.kept(found[:0], row); len(found) == 0 {
					continue
				}
				g.add(p, row)
				for k, c := range found {
					g.columns, g.values = append(g.columns, c), append(g.values, p.Values[row*len(p.Baseline)+int(c)])
					g.repeated = append(g.repeated, int16(min(k, 1)))
				}
				count.Kept++
				count.Entries += len(found)
				if g.full() {
					if err := g.write(out, true); err != nil {
						return err
					}
				}
			}
		}
		return g.write(out, true)
	})
}

// WriteDropped writes a line with table and id for each row that keeps no entry.
func (d *Delta) WriteDropped(w io.Writer, count *DeltaCount) error {
	return d.write(w, "dropped", schema.FieldList{schema.NewInt64Node("id", parquet.Repetitions.Required, -1)}, func(out *file.Writer) error {
		var g deltaGroup
		var found []int32
		for i := range d.Parts {
			p := &d.Parts[i]
			for row := range p.rows() {
				if !p.has(row) {
					continue
				}
				if found = p.kept(found[:0], row); len(found) > 0 {
					continue
				}
				g.add(p, row)
				count.Dropped++
				if g.full() {
					if err := g.write(out, false); err != nil {
						return err
					}
				}
			}
		}
		return g.write(out, false)
	})
}

// WriteBaseline writes a line with table, field, first, rows and values for each part.
// values is the baseline of its rows.
func (d *Delta) WriteBaseline(w io.Writer) error {
	once := parquet.Repetitions.Required
	field, err := textNode("field")
	if err != nil {
		return err
	}
	values, err := listNode("values", schema.NewFloat32Node("element", once, -1))
	if err != nil {
		return err
	}
	columns := schema.FieldList{field, schema.NewInt64Node("first", once, -1), schema.NewInt64Node("rows", once, -1), values}
	return d.write(w, "baseline", columns, func(out *file.Writer) error {
		var g deltaGroup
		var fields []parquet.ByteArray
		var rows []int64
		for i := range d.Parts {
			p := &d.Parts[i]
			g.add(p, 0)
			fields, rows = append(fields, parquet.ByteArray(p.Field)), append(rows, int64(p.rows()))
			g.values = append(g.values, p.Baseline...)
			for c := range p.Baseline {
				g.repeated = append(g.repeated, int16(min(c, 1)))
			}
		}
		group := out.AppendRowGroup()
		if err := errors.Join(writeColumn(group, g.tables), writeColumn(group, fields), writeColumn(group, g.ids), writeColumn(group, rows)); err != nil {
			return err
		}
		if err := writeLevels(group, g.values, g.defined(), g.repeated); err != nil {
			return err
		}
		return group.Close()
	})
}

// write writes a file whose first column is table.
func (d *Delta) write(w io.Writer, name string, columns schema.FieldList, content func(*file.Writer) error) error {
	table, err := textNode("table")
	if err != nil {
		return err
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, slices.Concat(schema.FieldList{table}, columns), -1)
	if err != nil {
		return err
	}
	out := parquetWriter(w, root, "table", "field")
	if err := errors.Join(out.AppendKeyValueMetadata(deltaMark, name), out.AppendKeyValueMetadata(deltaModel, d.Model)); err != nil {
		return err
	}
	if err := content(out); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}

// listNode returns a column of lists without nulls.
func listNode(name string, element *schema.PrimitiveNode) (*schema.GroupNode, error) {
	return schema.ListOfWithName(name, element, parquet.Repetitions.Required, -1)
}

// deltaGroup collects a row group.
type deltaGroup struct {
	tables   []parquet.ByteArray
	ids      []int64
	columns  []int32
	values   []float32
	repeated []int16 // of columns and values
}

func (g *deltaGroup) add(p *DeltaPart, row int) {
	g.tables, g.ids = append(g.tables, parquet.ByteArray(p.Table)), append(g.ids, int64(p.First+row))
}

func (g *deltaGroup) full() bool {
	return len(g.ids) >= parquetGroup || len(g.values) >= 16*parquetGroup
}

// defined says that no element of a list is null.
func (g *deltaGroup) defined() []int16 { return slices.Repeat([]int16{1}, len(g.repeated)) }

// write writes the group, if it is not empty, and empties it.
func (g *deltaGroup) write(out *file.Writer, lists bool) error {
	if len(g.ids) == 0 {
		return nil
	}
	group := out.AppendRowGroup()
	if err := errors.Join(writeColumn(group, g.tables), writeColumn(group, g.ids)); err != nil {
		return err
	}
	if lists {
		defined := g.defined()
		if err := errors.Join(writeLevels(group, g.columns, defined, g.repeated), writeLevels(group, g.values, defined, g.repeated)); err != nil {
			return err
		}
	}
	*g = deltaGroup{g.tables[:0], g.ids[:0], g.columns[:0], g.values[:0], g.repeated[:0]}
	return group.Close()
}

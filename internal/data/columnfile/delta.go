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

// DeltaPart is the rows of a table that have the same words.
type DeltaPart struct {
	Table   string
	Field   string
	First   int         // number of the first row in the table
	Words   [][]float32 // [words][d], what entries that are not kept read
	Numbers []uint8     // [rows], the word of each row; nil = 0
	Values  []float32   // [rows, d]
	Dropped []bool      // [rows, d], which entries are not kept; nil = those that equal the first word
	Changed []bool      // [rows], which rows the files have; nil = all
}

// Dim returns the number of columns.
func (p *DeltaPart) Dim() int { return len(p.Words[0]) }

// Rows returns the number of rows.
func (p *DeltaPart) Rows() int { return len(p.Values) / p.Dim() }

// Number returns the number of the word of row i, which is 0 if p has no such row.
func (p *DeltaPart) Number(i int) uint8 {
	if i >= len(p.Numbers) {
		return 0
	}
	return p.Numbers[i]
}

// has reports whether the files have row i.
func (p *DeltaPart) has(i int) bool { return p.Changed == nil || p.Changed[i] }

// kept appends the columns of row i whose entry is kept.
func (p *DeltaPart) kept(columns []int32, i int) []int32 {
	d := p.Dim()
	for c, v := range p.Values[i*d : (i+1)*d] {
		dropped := math.Float32bits(v) == math.Float32bits(p.Words[0][c])
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
// that it holds a pruned model. The same arguments give the same bytes.
type Delta struct {
	Model   string // digest of the pruned model
	Parts   []DeltaPart
	Several bool // whether the files have the numbers of words, and of the word of each row
}

// WriteKept writes a line with table, id, columns and values for each row that keeps an
// entry, and with Several word. values has the entries of columns.
func (d *Delta) WriteKept(w io.Writer, count *DeltaCount) error {
	columns, errColumns := listNode("columns", schema.NewInt32Node("element", parquet.Repetitions.Required, -1))
	values, errValues := listNode("values", schema.NewFloat32Node("element", parquet.Repetitions.Required, -1))
	if err := errors.Join(errColumns, errValues); err != nil {
		return err
	}
	return d.writeRows(w, "kept", count, columns, values)
}

// WriteDropped writes a line with table and id for each row that keeps no entry, and with Several word.
func (d *Delta) WriteDropped(w io.Writer, count *DeltaCount) error {
	return d.writeRows(w, "dropped", count)
}

// writeRows writes the rows that keep an entry, with two lists, or the others, without lists.
func (d *Delta) writeRows(w io.Writer, name string, count *DeltaCount, lists ...schema.Node) error {
	columns := append(schema.FieldList{schema.NewInt64Node("id", parquet.Repetitions.Required, -1)}, lists...)
	return d.write(w, name, columns, "word", func(out *file.Writer) error {
		var g deltaGroup
		var found []int32
		for i := range d.Parts {
			p := &d.Parts[i]
			for row := range p.Rows() {
				if !p.has(row) {
					continue
				}
				if found = p.kept(found[:0], row); len(found) > 0 != (len(lists) > 0) {
					continue
				}
				g.add(p, row, int32(p.Number(row)))
				for k, c := range found {
					g.columns, g.values = append(g.columns, c), append(g.values, p.Values[row*p.Dim()+int(c)])
					g.repeated = append(g.repeated, int16(min(k, 1)))
				}
				if count.Entries += len(found); len(lists) > 0 {
					count.Kept++
				} else {
					count.Dropped++
				}
				if g.full() {
					if err := d.flush(&g, out); err != nil {
						return err
					}
				}
			}
		}
		return d.flush(&g, out)
	})
}

// WriteBaseline writes a line with table, field, first, rows and values for each part, and with Several words.
// values has the words of its rows, one after the other.
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
	return d.write(w, "baseline", columns, "words", func(out *file.Writer) error {
		var g deltaGroup
		var fields []parquet.ByteArray
		var rows []int64
		for i := range d.Parts {
			p := &d.Parts[i]
			g.add(p, 0, int32(len(p.Words)))
			fields, rows = append(fields, parquet.ByteArray(p.Field)), append(rows, int64(p.Rows()))
			words := slices.Concat(p.Words...)
			g.values = append(g.values, words...)
			for k := range words {
				g.repeated = append(g.repeated, int16(min(k, 1)))
			}
		}
		group := out.AppendRowGroup()
		if err := errors.Join(writeColumn(group, g.tables), writeColumn(group, fields), writeColumn(group, g.ids), writeColumn(group, rows)); err != nil {
			return err
		}
		if err := writeLevels(group, g.values, g.defined(), g.repeated); err != nil {
			return err
		}
		return d.close(&g, group)
	})
}

// write writes a file whose first column is table, and whose last one has the given name if Several is true.
func (d *Delta) write(w io.Writer, name string, columns schema.FieldList, last string, content func(*file.Writer) error) error {
	table, err := textNode("table")
	if err != nil {
		return err
	}
	if d.Several {
		columns = append(columns, schema.NewInt32Node(last, parquet.Repetitions.Required, -1))
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, slices.Concat(schema.FieldList{table}, columns), -1)
	if err != nil {
		return err
	}
	out := parquetWriter(w, root, "table", "field", "word")
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
	words    []int32
}

func (g *deltaGroup) add(p *DeltaPart, row int, words int32) {
	g.tables, g.ids, g.words = append(g.tables, parquet.ByteArray(p.Table)), append(g.ids, int64(p.First+row)), append(g.words, words)
}

func (g *deltaGroup) full() bool {
	return len(g.ids) >= parquetGroup || len(g.values) >= 16*parquetGroup
}

// defined says that no element of a list is null.
func (g *deltaGroup) defined() []int16 { return slices.Repeat([]int16{1}, len(g.repeated)) }

// flush writes a group, if it is not empty, and empties it. Only rows that keep an entry have lists.
func (d *Delta) flush(g *deltaGroup, out *file.Writer) error {
	if len(g.ids) == 0 {
		return nil
	}
	group := out.AppendRowGroup()
	if err := errors.Join(writeColumn(group, g.tables), writeColumn(group, g.ids)); err != nil {
		return err
	}
	if len(g.values) > 0 {
		defined := g.defined()
		if err := errors.Join(writeLevels(group, g.columns, defined, g.repeated), writeLevels(group, g.values, defined, g.repeated)); err != nil {
			return err
		}
	}
	return d.close(g, group)
}

// close writes the last column of a group, and empties the group.
func (d *Delta) close(g *deltaGroup, group file.SerialRowGroupWriter) error {
	if d.Several {
		if err := writeColumn(group, g.words); err != nil {
			return err
		}
	}
	*g = deltaGroup{g.tables[:0], g.ids[:0], g.columns[:0], g.values[:0], g.repeated[:0], g.words[:0]}
	return group.Close()
}

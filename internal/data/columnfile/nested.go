package columnfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"shaver/internal/base/fault"
	"shaver/internal/data/arrowio"
)

// maxNestedRow bounds the memory of a row of Nested, in bytes.
const maxNestedRow = 64 << 20

// Nested calls visit for each row of a Parquet file that may have structures, lists and maps. Only the fields that columns
// name are read, with all that they have. The name of a field of a structure follows that of the structure and a dot.
//
// A value is its text as a string, as in File, or a structure or a map as map[string]any, or a list as []any. Missing values of
// fields are left out, and so are fields of unsupported types, but columns must not name such a field itself. Columns that
// the file does not have are ignored. If it has none of them, no row is visited.
func Nested(path string, columns []string, visit func(row map[string]any) error) error {
	t, err := Open(path)
	if err != nil {
		return err
	}
	defer t.Close()
	p, ok := t.table.(*parquetTable)
	if !ok {
		return fault.Inputf("%s: not a Parquet file", path)
	}
	var visiting error
	err = arrowio.Guarded(func() error {
		n := &nested{table: p}
		root, err := n.field(p.meta.Schema.Root(), columns, 0, 0)
		if err != nil || root == nil {
			return err
		}
		for group := range p.groups {
			err := reopen(path, p.info, func(f *os.File) error {
				return n.rows(f, group, root, func(row map[string]any) error {
					visiting = visit(row)
					return visiting
				})
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if visiting != nil {
		return visiting
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// nested assembles rows from the values of their columns. Each value has a definition level, which says how many of the
// optional and repeated fields on its path exist, and a repetition level, which says which of the repeated fields it
// continues.
type nested struct {
	table  *parquetTable
	column int // index of the next column of the schema, and then the number of columns
	leaves []*nestedField
	room   int // bytes that the current row may still take
}

// nestedField is a field of the schema.
type nestedField struct {
	name               string
	form               nestedForm
	optional, repeated bool
	defined, nesting   int16 // smallest levels of values of the field that exist
	fields             []*nestedField
	leaf               *nestedLeaf // of the field, or of the first field below it
	column             int         // index of the leaf's column
}

// nestedForm is what the values of a field are.
type nestedForm int

const (
	nestedValue nestedForm = iota
	nestedStructure
	nestedList // a structure with a repeated field
	nestedMap
)

// nestedLeaf has the decoded values of a column.
type nestedLeaf struct {
	*parquetColumn
	repeated             [parquetBatch]int16
	level, levels, value int // position of the current level, number of levels, and position of the current value
}

// field returns a field of the schema with the fields below it that columns name, or nil if columns name no field in it. defined and
// nesting are the levels above it.
func (n *nested) field(node schema.Node, columns []string, defined, nesting int16) (*nestedField, error) {
	f := &nestedField{name: node.Name(), optional: node.RepetitionType() == parquet.Repetitions.Optional, repeated: node.RepetitionType() == parquet.Repetitions.Repeated}
	if f.optional || f.repeated {
		defined++
	}
	if f.repeated {
		nesting++
	}
	f.defined, f.nesting = defined, nesting
	group, ok := node.(*schema.GroupNode)
	if !ok {
		f.column = n.column
		n.column++
		path := n.table.meta.Schema.Column(f.column).Path()
		for _, column := range columns {
			if path != column && !strings.HasPrefix(path, column+".") {
				continue
			}
			kind := n.table.unfitValue(f.column)
			if kind == "" {
				n.leaves = append(n.leaves, f)
				return f, nil
			}
			if path == column {
				return nil, fault.Inputf("column %q is of %s, expected strings, numbers, truth values, dates or times", path, kind)
			}
		}
		return nil, nil
	}
	f.form = nestedStructure
	for i := range group.NumFields() {
		child, err := n.field(group.Field(i), columns, defined, nesting)
		if err != nil {
			return nil, err
		}
		if child != nil {
			f.fields = append(f.fields, child)
		}
	}
	if len(f.fields) == 0 {
		return nil, nil
	}
	if child := f.fields[0]; group.NumFields() == 1 && child.repeated {
		switch group.ConvertedType() {
		case schema.ConvertedTypes.List:
			f.form = nestedList
			if element, ok := group.Field(0).(*schema.GroupNode); ok && element.NumFields() == 1 && child.name != "array" && child.name != group.Name()+"_tuple" { // as Parquet's documentation distinguishes elements from the structures around them
				child.form = nestedList
			}
		case schema.ConvertedTypes.Map, schema.ConvertedTypes.MapKeyValue:
			if len(child.fields) == 2 && child.fields[0].form == nestedValue {
				f.form = nestedMap
			}
		}
	}
	return f, nil
}

// rows visits the rows of a row group.
func (n *nested) rows(f *os.File, group int, root *nestedField, visit func(row map[string]any) error) error {
	count, memory := n.table.meta.RowGroup(group).NumRows(), int64(n.table.memory)
	if count < 0 || count > 1<<31-1 {
		return fmt.Errorf("row group %d has %d rows", group, count)
	}
	for _, leaf := range n.leaves {
		chunk, err := n.table.chunk(f, group, int(count), leaf.column, &memory)
		if err != nil {
			return err
		}
		c, err := newParquetColumn(chunk, 0, false, false)
		if err != nil {
			return err
		}
		leaf.leaf = &nestedLeaf{parquetColumn: c}
	}
	root.settle()
	for row := range count {
		n.room = maxNestedRow
		for _, f := range n.leaves {
			err := f.leaf.need()
			if err == nil && f.leaf.repeated[f.leaf.level] != 0 {
				err = errNested
			}
			if err != nil {
				return fmt.Errorf("row group %d, row %d: %w", group, row, err)
			}
		}
		value, err := n.one(root)
		if err != nil {
			return fmt.Errorf("row group %d, row %d: %w", group, row, err)
		}
		if err := visit(value.(map[string]any)); err != nil {
			return err
		}
	}
	return nil
}

// settle gives each field the leaf whose levels say which of its values exist.
func (f *nestedField) settle() {
	for _, child := range f.fields {
		child.settle()
		f.leaf = f.fields[0].leaf
	}
}

var errNested = errors.New("the columns do not have the same rows")

// more decodes the next levels if none is left, and reports whether there are any.
func (l *nestedLeaf) more() (bool, error) {
	if l.level < l.levels {
		return true, nil
	}
	total, values, err := l.decode(parquetBatch, 0, l.parquetColumn.defined[:], l.repeated[:])
	if err != nil {
		return false, err
	}
	if err := l.chunk.Err(); total == 0 && err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	l.level, l.levels, l.value = 0, int(total), 0
	return total > 0, l.format(values)
}

// need is more for when the column must have another level.
func (l *nestedLeaf) need() error {
	ok, err := l.more()
	if err == nil && !ok {
		err = arrowio.ErrTruncated
	}
	return err
}

// read returns the next value of a field, or all of its values as a list if it is repeated.
func (n *nested) read(f *nestedField) (any, error) {
	if err := f.leaf.need(); err != nil {
		return nil, err
	}
	if f.leaf.parquetColumn.defined[f.leaf.level] < f.defined {
		return nil, f.skip()
	}
	if !f.repeated {
		return n.one(f)
	}
	var list []any
	for {
		value, err := n.one(f)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
		if n.room -= 16; n.room < 0 {
			return nil, fmt.Errorf("a row takes more than %d bytes", maxNestedRow)
		}
		if ok, err := f.leaf.more(); err != nil || !ok || f.leaf.repeated[f.leaf.level] != f.nesting {
			return list, err
		}
	}
}

// skip passes over a field that does not exist, for which each column has one level.
func (f *nestedField) skip() error {
	for _, child := range f.fields {
		if err := child.skip(); err != nil {
			return err
		}
	}
	if f.form != nestedValue {
		return nil
	}
	if err := f.leaf.need(); err != nil {
		return err
	}
	if f.leaf.parquetColumn.defined[f.leaf.level] >= f.defined {
		return errNested
	}
	f.leaf.level++
	return nil
}

// one returns a value of a field that exists.
func (n *nested) one(f *nestedField) (any, error) {
	if f.form == nestedValue {
		l := f.leaf
		if err := l.need(); err != nil {
			return nil, err
		}
		if l.parquetColumn.defined[l.level] != f.defined {
			return nil, errNested
		}
		text := l.cell(l.value)
		if n.room -= 16 + len(text); n.room < 0 {
			return nil, fmt.Errorf("a row takes more than %d bytes", maxNestedRow)
		}
		l.level++
		l.value++
		return string(text), nil
	}
	values := map[string]any{}
	for _, child := range f.fields {
		value, err := n.read(child)
		if err != nil {
			return nil, err
		}
		switch {
		case f.form == nestedList:
			return value, nil
		case f.form == nestedMap:
			pairs, _ := value.([]any)
			for _, pair := range pairs {
				pair := pair.(map[string]any)
				key, ok := pair[child.fields[0].name].(string)
				if !ok {
					return nil, fmt.Errorf("a key of %q is missing", f.name)
				}
				values[key] = pair[child.fields[1].name]
			}
		case value != nil:
			values[child.name] = value
		}
	}
	return values, nil
}

// Package iceberg reads snapshots of Iceberg tables, as the format's specification describes them in the versions 1, 2 and 3.
//
// The metadata and the manifests are not trusted. Malformed bytes are bad input, and memory is bounded.
package iceberg

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/folders"
	"shaver/internal/data/lake"
)

// Table is the metadata of a table.
type Table struct {
	Location string // URL or path of the folder
	name     string // of the metadata in errors
	metadata *metadata
}

// Read returns a snapshot of the table in a store. The metadata is that with the highest version in the folder metadata.
// Only tables that a file system or Hadoop's catalogue keeps are certain to have no file of a failed commit there. For other
// tables, see Load.
func Read(ctx context.Context, store lake.Store, r lake.Request) (*lake.Snapshot, error) {
	name, err := newest(ctx, store)
	if err != nil {
		return nil, err
	}
	path, err := local(ctx, store, name)
	if err != nil {
		return nil, err
	}
	data, err := files.Small(path, mostMetadata, "the metadata of an Iceberg table")
	if err != nil {
		return nil, err
	}
	t, err := parseTable(name, data)
	if err != nil {
		return nil, err
	}
	return t.Read(ctx, store, r)
}

func parseTable(name string, data []byte) (*Table, error) {
	m, err := parseMetadata(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Table{s3(m.Location), name, m}, nil
}

// Read returns a snapshot of the table. A name that begins with the table's location is relative in the store, which thus
// may have a copy of the table.
func (t *Table) Read(ctx context.Context, store lake.Store, r lake.Request) (*lake.Snapshot, error) {
	s, err := t.read(ctx, store, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return s, nil
}

func (t *Table) read(ctx context.Context, store lake.Store, r lake.Request) (*lake.Snapshot, error) {
	m := t.metadata
	snapshot, schema, err := m.at(r.At)
	if err != nil {
		return nil, err
	}
	for _, s := range m.Specs {
		s.resolve(schema)
	}
	columns, err := m.views(schema.Fields)
	if err != nil {
		return nil, err
	}
	manifests, err := m.manifests(ctx, store, snapshot)
	if err != nil {
		return nil, err
	}
	data, deletes, err := m.files(ctx, store, manifests, conditional(schema, r.Where))
	if err != nil {
		return nil, err
	}
	read := &lake.Snapshot{Format: folders.Iceberg, Table: m.UUID, ID: fmt.Sprint(snapshot.ID), Values: values(data)}
	for _, c := range columns {
		read.Columns = append(read.Columns, lake.Column{Name: c.Name, Kind: c.Kind})
	}
	if data, read.Where, err = m.filter(schema, data, r.Where); err != nil {
		return nil, err
	}
	for _, f := range data {
		if f.format != "PARQUET" {
			return nil, fault.Inputf("%s: the file has the format %s, expected PARQUET", f.name, f.format)
		}
	}
	deleted, err := m.deleted(ctx, store, data, deletes)
	if err != nil {
		return nil, err
	}
	shared := map[string][]columnfile.ViewColumn{} // by partition
	for _, f := range data {
		key := fmt.Sprintf("%d %q", f.spec.ID, f.texts)
		if shared[key] == nil {
			shared[key] = f.view(columns)
		}
		x := lake.File{Name: f.name, Bytes: f.bytes, View: columnfile.View{Columns: shared[key]}}
		if rows := deleted[f]; rows != nil && !rows.IsEmpty() {
			x.View.Deleted = rows
			if x.Deletes, err = digest(rows); err != nil {
				return nil, err
			}
		}
		read.Files = append(read.Files, x)
	}
	read.Sort()
	return read, nil
}

// view returns columns with the values of those that the file may lack because it is partitioned by them.
func (f *file) view(columns []columnfile.ViewColumn) []columnfile.ViewColumn {
	columns = slices.Clone(columns)
	for i, p := range f.spec.parts {
		for k := range columns {
			if p.source != 0 && columns[k].ID == p.source {
				columns[k].Value = f.texts[i]
			}
		}
	}
	return columns
}

// part returns the part of the file's spec with a name, and the file's text for it. The part is nil if the spec has no such part.
func (f *file) part(name string) (text string, p *part) {
	for i := range f.spec.parts {
		if f.spec.parts[i].name == name {
			return f.texts[i], &f.spec.parts[i]
		}
	}
	return "", nil
}

// values returns the distinct texts of the parts that the specs of all files have.
func values(data []*file) map[string][]string {
	found := map[string]map[string]int{} // number of files
	for _, f := range data {
		for i, p := range f.spec.parts {
			if found[p.name] == nil {
				found[p.name] = map[string]int{}
			}
			found[p.name][f.texts[i]]++
		}
	}
	all := map[string][]string{}
	for name, texts := range found {
		files := 0
		for text, n := range texts {
			files += n
			all[name] = append(all[name], text)
		}
		if files != len(data) {
			delete(all, name)
		}
		slices.Sort(all[name])
	}
	return all
}

// conditional returns the IDs of the columns that conditions name.
func conditional(c *schema, where lake.Conditions) (ids []int32) {
	for _, w := range where {
		if column := c.column(w.Column); column != nil {
			ids = append(ids, column.ID)
		}
	}
	return ids
}

// filter returns the files that may have rows for which the conditions hold, and the conditions that rows in them may fail.
func (m *metadata) filter(c *schema, data []*file, where lake.Conditions) ([]*file, lake.Conditions, error) {
	var open lake.Conditions
	kept := slices.Clone(data)
	for _, w := range where {
		column := c.column(w.Column)
		if column == nil && !m.has(w.Column) {
			return nil, nil, m.unknown(c, w.Column)
		}
		if err := m.checkFields(&w); err != nil {
			return nil, nil, err
		}
		decided := true
		for _, f := range data {
			if _, p := f.part(w.Column); p == nil {
				if decided = false; column == nil {
					return nil, nil, fault.Inputf("the condition %s: %s is not partitioned by the field %q: name a column instead", &w, f.name, w.Column)
				}
			}
		}
		kept = slices.DeleteFunc(kept, func(f *file) bool {
			text, p := f.part(w.Column)
			if p == nil {
				return !f.bounds[column.ID].mayHold(&w, column, f.rows)
			}
			return !w.Holds([]byte(text), p.numeric)
		})
		if !decided {
			open = append(open, w)
		}
	}
	return kept, open, nil
}

// checkFields returns bad input if a condition on a partition field has a constant of another form than the texts of the field.
func (m *metadata) checkFields(w *lake.Condition) error {
	for _, s := range m.Specs {
		for _, p := range s.parts {
			if p.name != w.Column || p.source != 0 || w.Value == "" {
				continue
			}
			if _, err := time.Parse(p.form, w.Value); p.form != "" && err != nil {
				return fault.Inputf("the condition %s: the partition field has texts such as %s", w, time.Date(2026, 11, 29, 13, 0, 0, 0, time.UTC).Format(p.form))
			}
			if p.numeric {
				return w.Check(columnfile.Numbers)
			}
		}
	}
	return nil
}

// has reports whether a spec has a part with a name.
func (m *metadata) has(name string) bool {
	return slices.ContainsFunc(m.Specs, func(s *spec) bool {
		return slices.ContainsFunc(s.parts, func(p part) bool { return p.name == name })
	})
}

// unknown returns the error about a condition on neither a column nor a field.
func (m *metadata) unknown(c *schema, name string) error {
	var columns, fields []string
	for _, f := range c.Fields {
		columns = append(columns, f.Name)
	}
	for _, s := range m.Specs {
		for _, p := range s.parts {
			if p.source == 0 && !slices.Contains(fields, p.name) {
				fields = append(fields, p.name)
			}
		}
	}
	slices.SortFunc(fields, strings.Compare)
	return fault.Inputf("no column or partition field %q: the columns are %q, and the partition fields are %q", name, columns, fields)
}

// mayHold reports whether a condition may hold for a value of a column in a file with a number of rows.
func (b bounds) mayHold(w *lake.Condition, column *field, rows int64) bool {
	numeric := column.Type.of() == columnfile.Numbers
	if b.nulls == rows && rows > 0 {
		return w.Holds(nil, numeric)
	}
	low, ok := column.Type.bound(b.low)
	high, both := column.Type.bound(b.high)
	if b.low == nil || b.high == nil || !ok || !both {
		return true
	}
	float := column.Type == "float" || column.Type == "double"
	return w.MayHold(low, high, numeric, b.nulls != 0 || float && b.nans != 0)
}

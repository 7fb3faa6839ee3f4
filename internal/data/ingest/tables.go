package ingest

import (
	"fmt"
	"path/filepath"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/dataset"
	"shaver/internal/data/folders"
	"shaver/internal/data/lake"
)

// tableInput is a Parquet or Arrow file.
type tableInput struct {
	path  string
	table *columnfile.File
	where *place
}

func (in *tableInput) place() *place { return in.where }

// openTable opens a Parquet or Arrow file. Only the columns that the format needs will be
// read.
func (r *importer) openTable(path string) (input, error) {
	conditions, open := r.config.Where, columnfile.Open
	if table := r.table(path); table != nil {
		conditions, open = table.Where, func(path string) (*columnfile.File, error) { return columnfile.OpenView(path, table.Parts[path]) }
	}
	t, err := open(path)
	if err != nil {
		return nil, err
	}
	names := t.Columns()
	given, err := r.folderColumns(path)
	if err != nil {
		t.Close()
		return nil, err
	}
	if f := r.config.Format; f.Columns != nil {
		names = nil
		wanted := f.Taken()
		for _, c := range f.Columns {
			wanted = append(wanted, c.Name)
		}
		for _, c := range f.Dense.Columns {
			wanted = append(wanted, c.Name)
		}
		for _, name := range wanted {
			inFolder := slices.ContainsFunc(given, func(g folders.Column) bool { return g.Name == name })
			if !slices.Contains(names, name) && (!inFolder || slices.Contains(t.Columns(), name)) {
				names = append(names, name)
			}
		}
		if r.layout == nil && slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(t.Columns(), name) }) {
			names = t.Columns() // so that setLayout says what the missing column is for
		}
	}
	where, err := r.setLayout(names, 0, path)
	if err != nil {
		err = fault.Inputf("%s: %w", path, err)
	} else {
		err = r.chooseColumns(t, names, where, conditions, given)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return &tableInput{path, t, where}, nil
}

// chooseColumns chooses the columns of the given names, and those of the conditions.
func (r *importer) chooseColumns(t *columnfile.File, names []string, where *place, conditions lake.Conditions, given []folders.Column) error {
	all := slices.Clone(names)
	for _, c := range conditions {
		switch there := slices.Contains(t.Columns(), c.Column); {
		case there && !slices.Contains(all, c.Column):
			all = append(all, c.Column)
		case !there && !slices.ContainsFunc(given, func(g folders.Column) bool { return g.Name == c.Column }):
			return fault.Inputf("%s: no column %q for the condition %s, the columns are %q", t.Path(), c.Column, c.String(), t.Columns())
		}
	}
	if err := t.Choose(all, r.layout.listColumns(), r.layout.separator); err != nil {
		return err
	}
	for _, c := range conditions {
		if slices.Contains(r.layout.listColumns(), c.Column) {
			return fault.Inputf("%s: the condition %s: the column has lists, expected one with a value in each row", t.Path(), c)
		}
		if at := slices.Index(all, c.Column); at >= 0 {
			if err := c.Check(t.Kind(at)); err != nil {
				return fmt.Errorf("%s: %w", t.Path(), err)
			}
			where.conditions = append(where.conditions, condition{c, at, t.Kind(at) == columnfile.Numbers})
		}
	}
	return r.checkKinds(t, names, t.Path())
}

// checkKinds returns bad input if a column has values of another kind than in the earlier files, so that the same text may
// stand for other values. Numbers may be strings. Labels and weights have checks of their own.
func (r *importer) checkKinds(t *columnfile.File, names []string, path string) error {
	plain := func(kind string) bool { return kind == columnfile.Strings || kind == columnfile.Numbers }
	for k, name := range names {
		kind, earlier := t.Kind(k), r.kinds[name]
		if earlier == "" {
			r.kinds[name] = kind
		} else if kind != "" && kind != earlier && !(plain(kind) && plain(earlier)) && !slices.Contains(r.config.Format.Taken(), name) {
			return fault.Inputf("%s: column %q has %s, but the earlier files have %s: expected one type in all files", path, name, kind, earlier)
		}
	}
	return nil
}

func (in *tableInput) next(b *block) error {
	var err error
	if b.table, err = in.table.Next(); err == nil {
		b.rows, b.read = b.table.Len, b.table.Read
	}
	return err
}

// describe reads the file again to compute its digest, because a table is not read from
// front to back.
func (in *tableInput) describe() (dataset.File, error) {
	digest, size, err := in.table.Digest()
	return dataset.File{File: filepath.Base(in.path), SHA256: digest, Bytes: size}, err
}

func (in *tableInput) close() { in.table.Close() }

// parseTable is like parse, for a block of a table.
func (c *blockParser) parseTable(b *block, visit func(row uint64, label float32, values [][]byte) error) error {
	c.parser.single = b.table.Single
	err := b.table.Rows(func(i int, cells [][]byte) error {
		for _, w := range b.where.conditions {
			if !w.Holds(cells[w.at], w.numeric) {
				return nil
			}
		}
		cells = cells[:b.where.columns]
		row := b.row + uint64(i)
		label, values, err := c.parser.parse(cells, b.where, true)
		bad := err != nil
		if !bad {
			err = visit(row, label, values)
			bad = isBad(err)
		}
		if bad {
			err = b.bad.reject(fault.Inputf("%s: row %d: %w", b.path, b.table.Row+int64(i), err), 1)
		}
		if err != nil {
			return stop{err}
		}
		return nil
	})
	if s, ok := err.(stop); ok {
		return s.error
	}
	if err != nil {
		return fmt.Errorf("%s: %w", b.path, err)
	}
	return nil
}

// stop marks an error that comes from our callback and not from reading the table.
type stop struct{ error }

package ingest

import (
	"fmt"
	"path/filepath"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/dataset"
	"shaver/internal/data/folders"
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
	t, err := columnfile.Open(path)
	if err != nil {
		return nil, err
	}
	names := t.Columns()
	if f := r.config.Format; f.Columns != nil {
		names = nil
		given, err := folders.Columns(path)
		if err != nil {
			t.Close()
			return nil, err
		}
		wanted := append([]Column{{Name: f.label()}}, f.Columns...)
		for _, c := range f.Dense.Columns {
			wanted = append(wanted, Column{Name: c.Name})
		}
		for _, c := range wanted {
			inFolder := slices.ContainsFunc(given, func(g folders.Column) bool { return g.Name == c.Name })
			if !slices.Contains(names, c.Name) && (!inFolder || slices.Contains(t.Columns(), c.Name)) {
				names = append(names, c.Name)
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
		err = t.Choose(names, r.layout.listColumns(), r.layout.separator)
	}
	if err == nil {
		err = r.checkKinds(t, names, path)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return &tableInput{path, t, where}, nil
}

// checkKinds returns bad input if a column has values of another kind than in the earlier files, so that the same text may
// stand for other values. Numbers may be strings. Labels have a check of their own.
func (r *importer) checkKinds(t *columnfile.File, names []string, path string) error {
	plain := func(kind string) bool { return kind == columnfile.Strings || kind == columnfile.Numbers }
	for k, name := range names {
		kind, earlier := t.Kind(k), r.kinds[name]
		if earlier == "" {
			r.kinds[name] = kind
		} else if kind != "" && kind != earlier && !(plain(kind) && plain(earlier)) && name != r.config.Format.label() {
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
	i := int64(0)
	c.parser.single = b.table.Single
	err := b.table.Rows(func(cells [][]byte) error {
		row := b.row + uint64(i)
		label, values, err := c.parser.parse(cells, b.where, true)
		bad := err != nil
		if !bad {
			err = visit(row, label, values)
			bad = isBad(err)
		}
		if bad {
			err = b.bad.reject(fault.Inputf("%s: row %d: %w", b.path, b.table.Row+i, err), 1)
		}
		i++
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

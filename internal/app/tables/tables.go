// Package tables gives imports the rows of tables with a log: those of Delta Lake and Iceberg, in local folders, in object
// stores and in catalogues.
package tables

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"shaver/internal/app/places"
	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/dataset"
	"shaver/internal/data/folders"
	"shaver/internal/data/ingest"
	"shaver/internal/data/lake"
	"shaver/internal/data/lake/deltalog"
	"shaver/internal/data/lake/iceberg"
	"shaver/internal/ops/remote"
)

// Table is a table with a log.
type Table struct {
	Name   string // for messages: its URL without settings, the path of its folder, or its name in a catalogue
	store  lake.Store
	format func(context.Context, lake.Store, lake.Request) (*lake.Snapshot, error)
	origin string // in the manifest of a dataset
}

// Open returns the table at a path or a URL, or nil if the path is that of something else, such as a file. With the URL of an
// Iceberg REST catalogue, path is the name of a table there. The context is that of a command that takes URLs.
func Open(ctx context.Context, path, catalog string) (*Table, error) {
	t := &Table{Name: path, origin: path}
	if catalog != "" {
		loaded, err := iceberg.Load(ctx, catalog, path)
		if err != nil {
			return nil, err
		}
		path, t.format = loaded.Location, loaded.Read
		if local, err := lake.LocalPath(path); err == nil && local != "" {
			path = local
		} else if !remote.Is(path) {
			return nil, fault.Inputf("%s: its folder is %s: expected a local path, or a URL of the schemes s3, gs, azblob or file", t.Name, fault.Address(path))
		}
	}
	found := ""
	if remote.Is(path) {
		l, err := remote.Parse(path)
		if err != nil {
			return nil, err
		}
		session := places.Session(ctx)
		if session == nil {
			return nil, fmt.Errorf("%s: this command does not read object stores", l)
		}
		t.store = &objects{session, l}
		if found = places.TableFormat(ctx, session, l); catalog == "" {
			t.Name, t.origin = l.String(), l.String()
		}
	} else {
		t.store = lake.Folder(path)
		if found = folders.Table(path, nil); catalog == "" {
			whole, err := filepath.Abs(path)
			if err != nil {
				return nil, err
			}
			t.origin = filepath.Base(whole)
		}
	}
	switch {
	case t.format != nil:
	case found == folders.Delta:
		t.format = deltalog.Read
	case found == folders.Iceberg:
		t.format = iceberg.Read
	default:
		return nil, nil
	}
	return t, nil
}

// Read returns a snapshot.
func (t *Table) Read(ctx context.Context, r lake.Request) (*lake.Snapshot, error) {
	s, err := t.format(ctx, t.store, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	for _, c := range r.Where {
		for _, column := range s.Columns {
			if column.Name == c.Column {
				err = cmp.Or(err, c.Check(column.Kind))
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	if len(s.Files) == 0 {
		if len(r.Where) > 0 {
			return nil, fault.Inputf("%s: %w in the snapshot %s for which %s holds", t.Name, lake.ErrNoRows, s.ID, r.Where)
		}
		return nil, fault.Inputf("%s: the snapshot %s has no rows", t.Name, s.ID)
	}
	return s, nil
}

// Input returns the files of a snapshot, which it copies if they are not local, and what an import has to know of them.
// where are the conditions of the request.
func (t *Table) Input(ctx context.Context, s *lake.Snapshot, where lake.Conditions) ([]string, *ingest.Table, error) {
	files, err := fetch(ctx, t.store, s)
	if err != nil {
		return nil, nil, err
	}
	parts := map[string]*columnfile.View{}
	for i, path := range files {
		parts[path] = &s.Files[i].View
	}
	return files, &ingest.Table{
		Table: dataset.Table{Format: s.Format, Table: t.origin, ID: s.Table, Snapshot: s.ID, Where: where.String(), Files: s.Digest()},
		Parts: parts, Where: s.Where,
	}, nil
}

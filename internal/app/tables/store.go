package tables

import (
	"context"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/data/lake"
	"shaver/internal/ops/remote"
)

// objects are the files of a table in an object store.
type objects struct {
	session *remote.Session
	at      remote.Location
}

func (o *objects) List(ctx context.Context, folder string) ([]string, error) {
	return o.session.Files(ctx, o.at.Join(folder))
}

func (o *objects) Local(ctx context.Context, names []string) ([]string, error) {
	return o.local(ctx, names, 0)
}

// local is Local for files that have the given number of bytes.
func (o *objects) local(ctx context.Context, names []string, bytes int64) ([]string, error) {
	all := make([]remote.Location, len(names))
	for i, name := range names {
		var err error
		if all[i], err = o.place(name); err != nil {
			return nil, err
		}
	}
	return o.session.FetchAll(ctx, o.at, all, bytes)
}

// schemes are the names that programs of Hadoop have for the schemes of object stores.
var schemes = map[string]string{"s3a": "s3", "s3n": "s3", "gcs": "gs"}

// place returns the place of a file of the table. A file in another bucket is reached with the settings of the table's.
func (o *objects) place(name string) (l remote.Location, err error) {
	scheme, rest, isURL := strings.Cut(name, "://")
	switch {
	case o.at.Scheme == "file" && strings.HasPrefix(name, "/"):
		l = o.at
		l.Key = name[1:]
		return l, nil
	case !isURL:
		return o.at.Join(name), nil
	}
	if s := schemes[scheme]; s != "" {
		scheme = s
	}
	if scheme != o.at.Scheme {
		return l, fault.Inputf("the table names the file %s, which is in another kind of store", fault.Address(name))
	}
	l = o.at
	l.Bucket, l.Key, _ = strings.Cut(rest, "/")
	return l, nil
}

// fetch returns the paths of the files of a snapshot. Of files of a store that earlier ones had, it deletes the copies.
func fetch(ctx context.Context, store lake.Store, s *lake.Snapshot) ([]string, error) {
	names, bytes := make([]string, len(s.Files)), int64(0)
	for i, f := range s.Files {
		names[i] = f.Name
		bytes += f.Bytes
	}
	o, ok := store.(*objects)
	if !ok {
		return store.Local(ctx, names)
	}
	paths, err := o.local(ctx, names, bytes)
	if err != nil {
		return nil, err
	}
	needed := slices.Sorted(slices.Values(paths))
	return paths, o.session.Keep(o.at, func(name string) bool {
		folder, _, _ := strings.Cut(name, "/")
		_, there := slices.BinarySearch(needed, o.session.Local(o.at.Join(name)))
		return there || folder == "_delta_log" || folder == "metadata"
	})
}

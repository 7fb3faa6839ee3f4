package lake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"shaver/internal/base/fault"
)

// Folder returns the store of the table in a local folder.
func Folder(path string) Store { return folder(path) }

type folder string

func (f folder) List(ctx context.Context, name string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(string(f), filepath.FromSlash(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, ctx.Err()
}

func (f folder) Local(ctx context.Context, names []string) ([]string, error) {
	paths := make([]string, len(names))
	for i, name := range names {
		path, err := LocalPath(name)
		switch {
		case err != nil:
			return nil, err
		case path == "" && !filepath.IsLocal(filepath.FromSlash(name)):
			return nil, fault.Inputf("%s: the table names the file %q: expected a file in its folder, or an absolute path", string(f), name)
		case path == "":
			path = filepath.Join(string(f), filepath.FromSlash(name))
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fault.Inputf("%s: %w: the table says that it has this file", path, fs.ErrNotExist)
		} else if err != nil {
			return nil, err
		}
		paths[i] = path
	}
	return paths, ctx.Err()
}

// LocalPath returns the path of a name that is absolute and a path or the URL of a local file, and "" for a relative name.
// Another URL is bad input.
func LocalPath(name string) (string, error) {
	scheme, rest, isURL := strings.Cut(name, ":")
	switch {
	case filepath.IsAbs(name):
		return name, nil
	case !isURL || strings.ContainsAny(scheme, "/.=%"):
		return "", nil
	case scheme != "file":
		return "", fault.Inputf("the table names the file %s: give the table by its URL, so that its store is read", fault.Address(name))
	}
	path, err := url.PathUnescape("/" + strings.TrimLeft(rest, "/"))
	if err != nil {
		return "", fmt.Errorf("%q is not the URL of a file: %w", name, err)
	}
	return filepath.FromSlash(path), nil
}

// Module gives this module another path, such as that of the repository where you keep it:
//
//	go run ./release/module example.org/team/shaver
//
// It changes go.mod, and the path in imports, commands and pages. CHANGELOG.md and docs/evidence keep it, because they say what was.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./release/module PATH")
		os.Exit(2)
	}
	changed, err := rename(".", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(1)
	}
	fmt.Printf("%d files changed\n", len(changed))
}

var (
	declared = regexp.MustCompile(`(?m)^module (\S+)$`)
	valid    = regexp.MustCompile(`^[\w~-][\w.~-]*(/[\w~-][\w.~-]*)*$`)
)

// rename changes the path of the module in root, and returns the names of the files that it changed.
func rename(root, to string) (changed []string, err error) {
	if !valid.MatchString(to) {
		return nil, fmt.Errorf("the path %q is invalid, expected one such as example.org/team/shaver", to)
	}
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	from := declared.FindSubmatch(text)
	if from == nil {
		return nil, fmt.Errorf("go.mod has no line such as \"module shaver\"")
	}
	packages, err := mentions(root, string(from[1]))
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch name = filepath.ToSlash(name); {
		case d.IsDir() && (name == ".git" || name == "bin" || name == "dist" || name == "docs/evidence"):
			return fs.SkipDir
		case !d.Type().IsRegular() || name == "CHANGELOG.md":
			return nil
		}
		old, err := os.ReadFile(path)
		if err != nil || bytes.IndexByte(old, 0) >= 0 {
			return err // binary files do not have the path
		}
		text := packages.ReplaceAll(old, []byte("${1}"+to+"/${2}"))
		if name == "go.mod" {
			text = declared.ReplaceAll(text, []byte("module "+to))
		}
		if bytes.Equal(old, text) {
			return nil
		}
		if filepath.Ext(name) == ".go" {
			if text, err = format.Source(text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		changed = append(changed, name)
		return os.WriteFile(path, text, 0o644) // an existing file keeps its permissions
	})
	return changed, err
}

// mentions returns a pattern of the paths of packages of the module. Its groups are what stands before a path, and the first folder of
// the path. Such a folder of root has Go files, so shaver/values.yaml is not a path of a package.
func mentions(root, module string) (*regexp.Regexp, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, e := range entries {
		found := errors.New("found")
		err := filepath.WalkDir(filepath.Join(root, e.Name()), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && e.IsDir() && filepath.Ext(path) == ".go" {
				return found
			}
			return err
		})
		if err == found {
			folders = append(folders, regexp.QuoteMeta(e.Name()))
		} else if err != nil {
			return nil, err
		}
	}
	return regexp.Compile(`(^|[^\w./~-])` + regexp.QuoteMeta(module) + `/((?:` + strings.Join(folders, "|") + `)\b)`)
}

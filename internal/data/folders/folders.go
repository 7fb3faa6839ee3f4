// Package folders finds the files of folders, and the columns that the names of folders give
// to the rows of their files.
package folders

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"shaver/internal/base/fault"
)

// Files replaces each folder in paths by the files in it and in its folders, in the order
// of their names. All files of a folder must have the same extension. Files and folders
// whose names begin with a dot or an underscore are left out, because writers give such
// names to files without rows. A folder such as _day=3 is a partition and not left out.
// Files of a table that has a log of its files, and of a job that has not ended, are bad input.
func Files(paths []string) ([]string, error) {
	var files []string
	g := guard{}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil { // a missing file is reported by its reader
			files = append(files, path)
			continue
		}
		root, found := filepath.Dir(path), []string{path}
		if info.IsDir() {
			root = path
			found, err = filesIn(path)
		}
		if refused := g.check(root, found, info.IsDir()); refused != nil {
			return nil, refused
		}
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

func filesIn(folder string) (files []string, err error) {
	root := folder + string(filepath.Separator) // WalkDir then follows a link to the folder itself
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := path != root && (strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), "_") && !(entry.IsDir() && strings.Contains(entry.Name(), "=")))
		switch {
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden || entry.IsDir():
			return nil
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() { // a symbolic link, which WalkDir does not follow
			return fault.Inputf("%s is a link to a folder, whose files would be left out: give that folder itself", path)
		}
		if len(files) > 0 && extension(files[0]) != extension(path) {
			return fault.Inputf("%s: %s and %s have different extensions: give the files of one format", folder, Relative(folder, files[0]), Relative(folder, path))
		}
		files = append(files, path)
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fault.Inputf("%s: the folder has no files with rows", folder)
	}
	if err != nil && !fault.IsInput(err) {
		err = fmt.Errorf("cannot list the folder: %w", err)
	}
	return files, err
}

// extension returns the end of a file's name from its last dot, or from the one before if
// the file is compressed text, such as .csv.gz.
func extension(path string) string {
	last := filepath.Ext(path)
	if last == ".gz" || last == ".zst" {
		return filepath.Ext(strings.TrimSuffix(path, last)) + last
	}
	return last
}

// Relative returns a path without the folder that it begins with.
func Relative(folder, path string) string {
	if name, err := filepath.Rel(folder, path); err == nil {
		return name
	}
	return path
}

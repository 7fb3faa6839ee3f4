package folders

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Column is a column whose value for all rows of a file is in the name of a folder, such
// as day=3. Hive, Spark, pandas, polars, pyarrow and DuckDB write such folders.
type Column struct {
	Name  string
	Value string // UTF-8 without NUL
}

// hiveMissing is the value that stands for a missing value.
const hiveMissing = "__HIVE_DEFAULT_PARTITION__"

// Columns returns the columns in the names of the folders of path, from the first
// folder to the last. Percent signs begin escaped bytes, as in URLs.
func Columns(path string) ([]Column, error) {
	var found []Column
	for _, folder := range strings.Split(filepath.ToSlash(filepath.Dir(path)), "/") {
		name, value, ok := strings.Cut(folder, "=")
		if !ok || name == "" {
			continue
		}
		name, value = unescape(name), unescape(value)
		if value == hiveMissing {
			value = ""
		}
		if slices.ContainsFunc(found, func(c Column) bool { return c.Name == name }) {
			return nil, fmt.Errorf("two folders of its path give values of the column %q", name)
		}
		if !utf8.ValidString(value) || strings.IndexByte(value, 0) >= 0 {
			return nil, fmt.Errorf("the folder %q has a value that is not UTF-8 or contains NUL", folder)
		}
		found = append(found, Column{name, value})
	}
	return found, nil
}

// unescape replaces percent escapes. Text with other percent signs is left as it is.
func unescape(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

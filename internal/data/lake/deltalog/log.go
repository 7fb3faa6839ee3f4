package deltalog

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/data/columnfile"
)

// log is a file of the log.
type log struct{ name, path string }

// maxLine bounds a line of the log, in bytes.
const maxLine = 64 << 20

// read calls visit for each action as JSON, with its place. The action of a Parquet file has only the named columns, and all
// its values are strings.
func (l log) read(columns []string, visit func(place string, action []byte) error) error {
	row, within := 0, false
	next := func(unit string, action []byte) error {
		if row++; len(action) == 0 {
			return nil
		}
		place := fmt.Sprintf("%s, %s %d", l.name, unit, row)
		err := visit(place, action)
		if err == nil {
			return nil
		}
		if !fault.IsInput(err) { // of package json
			err = fault.Inputf("%w: expected an action of Delta's protocol", err)
		}
		within = true
		return fmt.Errorf("%s: %w", place, err)
	}
	err := l.actions(columns, next)
	if err != nil && !within {
		err = fmt.Errorf("%s: %w", l.name, err)
	}
	return err
}

func (l log) actions(columns []string, next func(unit string, action []byte) error) error {
	if strings.HasSuffix(l.name, ".parquet") {
		return columnfile.Nested(l.path, columns, func(values map[string]any) error {
			action, err := json.Marshal(values)
			if err != nil {
				return err
			}
			return next("row", action)
		})
	}
	f, err := files.Open(l.path, "a file of the log of a Delta table")
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if err := next("line", lines.Bytes()); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fault.Inputf("a line has more than %d bytes", maxLine)
	}
	return lines.Err()
}

// absolute matches paths that do not begin at the table.
var absolute = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*:)?/`)

// fileName returns the name of a file, as in lake.Store, by its path in the log, which is a part of a URL. A local file has one
// name, whether the path has a scheme or not.
func fileName(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "file:/"); ok {
		path = "/" + strings.TrimLeft(rest, "/")
	}
	name, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return "", fault.Inputf("path %q: %w: expected a part of a URL", path, err)
	case !absolute.MatchString(path) && (!fs.ValidPath(name) || name == "."):
		return "", fault.Inputf("path %q leads out of the table, or to no file: expected a path in the table", path)
	}
	return name, nil
}

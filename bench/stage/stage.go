// Package stage runs the stages of a measurement. The result of each is a file or a folder, so that
// an interrupted measurement continues.
package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"shaver/internal/base/atomicfile"
)

// Folder is a folder with the program shaver, for the results of stages.
type Folder string

// Path returns the path of a result.
func (f Folder) Path(name string) string { return filepath.Join(string(f), name) }

// Has reports whether there is a result.
func (f Folder) Has(name string) bool {
	_, err := os.Stat(f.Path(name))
	return err == nil
}

// Make runs shaver, which makes the named result as its last step, unless the result exists.
func (f Folder) Make(name string, args ...string) error {
	if f.Has(name) {
		return nil
	}
	_, err := f.shaver(args)
	return err
}

// Train is like Make for a command that improves its result while it runs. args lack --out, which
// Train adds.
func (f Folder) Train(name string, args ...string) error {
	if f.Has(name) {
		return nil
	}
	unfinished := f.Path("unfinished-" + name)
	if _, err := f.shaver(append(args, "--out", unfinished)); err != nil {
		return err
	}
	return os.Rename(unfinished, f.Path(name))
}

// Print is like Make for a command that prints JSON, which becomes the result. It stores the result
// in v.
func (f Folder) Print(name string, v any, args ...string) error {
	return f.Measure(name, v, func() error {
		out, err := f.shaver(append(args, "-o", "json"))
		if err != nil {
			return err
		}
		return json.Unmarshal(out, v)
	})
}

// Measure stores the named result in v. If the result is missing, it calls measure, which sets v,
// and writes v as JSON.
func (f Folder) Measure(name string, v any, measure func() error) error {
	data, err := os.ReadFile(f.Path(name))
	if err == nil {
		if err := json.Unmarshal(data, v); err != nil {
			return fmt.Errorf("%s: %w; delete the file to measure again", f.Path(name), err)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := measure(); err != nil {
		return err
	}
	return atomicfile.Write(f.Path(name), func(w io.Writer) error { return json.NewEncoder(w).Encode(v) })
}

// shaver runs the program and returns what it prints to stdout.
func (f Folder) shaver(args []string) ([]byte, error) {
	var out, log strings.Builder
	c := exec.Command(f.Path("shaver"), args...)
	c.Stdout, c.Stderr = &out, &log
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("shaver %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), log.String())
	}
	return []byte(out.String()), nil
}

// Import imports the public split of the flights in a folder of rows and checkpoints.
func (f Folder) Import(name, folder string) error {
	in := func(name string) string { return filepath.Join(folder, name) }
	return f.Make(name, "dataset", "import", "csv", "--ids", "local", "--train", in("train.csv.gz"), "--val", in("val.csv.gz"), "--test", in("test.csv.gz"), "--model", in("deepfm.pth"), "--out", f.Path(name))
}

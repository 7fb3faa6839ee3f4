package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
)

// Outputs decides what the output files of a command may replace. The rules are the same
// for every command:
//
//   - An input of the command is never replaced.
//   - A file that shaver wrote, of the same kind, is replaced.
//   - Anything else is replaced only with --force. Scores of another job, and another job's
//     progress, count as anything else.
//   - A folder is never replaced.
//   - A name whose extension promises another format is refused.
//
// A command names its inputs, and then checks its outputs before it begins work that may
// take hours.
type Outputs struct {
	Force     bool
	Forceless bool // the command has no flag --force, so that errors do not name it
	inputs    []string
}

// Flag adds --force to c. anything is what the flag allows the command to replace.
func (o *Outputs) Flag(c *cobra.Command, anything string) {
	c.Flags().BoolVar(&o.Force, "force", false, "replace "+anything+"; an input is never replaced")
}

// Inputs names files that the command reads, or would read if they existed, and folders of which
// it reads files. Empty names have no effect.
func (o *Outputs) Inputs(paths ...string) {
	for _, path := range paths {
		if path == "" {
			continue
		}
		if real, err := filepath.EvalSymlinks(path); err == nil { // WalkDir follows no link
			path = real
		}
		_ = filepath.WalkDir(path, func(at string, _ fs.DirEntry, _ error) error {
			o.inputs = append(o.inputs, at)
			return nil // a folder that cannot be read ends no command here
		})
	}
}

// Obstacle returns why the file at path may not be replaced without --force, as the rest
// of a sentence about the file, such as "is not a model that shaver wrote". It returns ""
// if the file may be replaced.
type Obstacle func(path string) string

// Unless returns an obstacle for every file that ours does not accept. kind says what the
// accepted files are, such as "a model".
func Unless(ours func(path string) bool, kind string) Obstacle {
	return func(path string) string {
		if ours(path) {
			return ""
		}
		return "is not " + kind + " that shaver wrote"
	}
}

// Any is the obstacle of a command that cannot recognise its own files.
func Any(string) string { return "already exists" }

// promises are the extensions whose readers expect a format.
var promises = []string{
	".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".parquet", ".arrow", ".feather", ".html", ".htm", ".pdf", ".svg", ".png", ".jpg", ".xlsx",
	".gz", ".zst", ".zip", ".safetensors", ".onnx", ".pth", ".pt", ".ckpt", ".bin", ".h5", ".hdf5", ".keras", ".pb", ".tflite", ".npz", ".npy", ".pkl", ".joblib",
}

// checkName returns an error if the extension of path promises a format other than those
// with the given extensions.
func checkName(path string, formats []string) error {
	extension := strings.ToLower(filepath.Ext(path))
	if len(formats) == 0 || slices.Contains(formats, extension) || !slices.Contains(promises, extension) {
		return nil
	}
	return fault.Usagef("cannot write %s: a reader of %s files could not read the file; expected the extension %s", path, extension, strings.Join(formats, " or "))
}

// Check returns an error unless the command may write a file at path, which the user gave
// as flag. A command writes a new file and then renames it (package atomicfile), which
// would replace a device. So whatever is at path must be a regular file. formats are the
// extensions of the formats that the command writes, in lower case; without them every name
// will do.
func (o *Outputs) Check(flag, path string, obstacle Obstacle, formats ...string) error {
	if path == "" {
		return fault.Usagef(`%s "": expected the name of a file`, flag)
	}
	for _, input := range o.inputs {
		if samePlace(path, input) {
			return fault.Usagef("cannot write %s: it is an input of this command; name another file", path)
		}
	}
	switch there, err := os.Stat(path); {
	case err == nil && there.IsDir():
		return fault.Usagef("cannot write %s: it is a folder; name a file", path)
	case err == nil && !there.Mode().IsRegular() || isDevice(path):
		return fault.Usagef("cannot write %s: it is not a regular file", path)
	case err == nil && !o.Force:
		if text := obstacle(path); text != "" {
			remedy := "name another file, or give --force to replace it"
			if o.Forceless {
				remedy = "name another file"
			}
			return fault.Usagef("cannot write %s: it %s; %s", path, text, remedy)
		}
	}
	if err := checkName(path, formats); err != nil {
		return err
	}
	if err := atomicfile.Probe(path); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// CheckFolder returns wrong usage if the folder at path, which need not exist, is the folder of a
// dataset that the command reads, or is in one.
func CheckFolder(path string, datasets ...string) error {
	at, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	for end := at; ; end = filepath.Dir(end) { // end exists, unless it is still to be made
		if real, err := filepath.EvalSymlinks(end); err == nil {
			at = filepath.Join(real, strings.TrimPrefix(at, end))
			break
		} else if end == filepath.Dir(end) {
			break
		}
	}
	for up := at; ; up = filepath.Dir(up) {
		there, err := os.Stat(up)
		for _, dataset := range datasets {
			if input, errInput := os.Stat(dataset); err == nil && errInput == nil && os.SameFile(there, input) {
				where := "in the folder"
				if up == at {
					where = "the folder"
				}
				return fault.Usagef("cannot write to %s: it is %s of the dataset; name another folder", path, where)
			}
		}
		if up == filepath.Dir(up) {
			return nil
		}
	}
}

// samePlace reports whether a file that is written to a would replace b or, if b does not
// exist, take its place.
func samePlace(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX == nil && errY == nil {
		return os.SameFile(x, y)
	}
	if errX == nil || errY == nil || !strings.EqualFold(filepath.Base(a), filepath.Base(b)) {
		return false
	}
	x, errX = os.Stat(filepath.Dir(a))
	y, errY = os.Stat(filepath.Dir(b))
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// isDevice reports whether path is in a folder of devices, such as /dev/stdout. There a
// symbolic link leads to the file, and writing would replace the link.
func isDevice(path string) bool {
	if runtime.GOOS == "windows" {
		return false // os.Stat recognises a device by its name
	}
	whole, err := filepath.Abs(path)
	return err == nil && (filepath.Dir(whole) == "/dev" || strings.HasPrefix(whole, "/dev/fd/") || strings.HasPrefix(whole, "/proc/"))
}

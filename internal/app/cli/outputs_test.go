package cli

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"shaver/internal/base/fault"
)

// Check follows the rules of Outputs: inputs are never replaced, by any path; what has an
// obstacle needs --force; and only a regular file can be replaced.
func TestOutputs(t *testing.T) {
	t.Chdir(t.TempDir())
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(os.MkdirAll("data", 0o755))
	for _, name := range []string{"data/train.arrow", "mine", "ours"} {
		ok(os.WriteFile(filepath.FromSlash(name), []byte(name), 0o600))
	}
	ok(os.Symlink("data", "link"))
	ok(os.Link(filepath.FromSlash("data/train.arrow"), "hard"))
	ok(os.Symlink("hard", "soft"))
	ok(os.MkdirAll("folder/part", 0o755)) // of which all files are inputs
	ok(os.WriteFile(filepath.FromSlash("folder/part/head"), nil, 0o600))
	ok(os.Symlink("folder", "linked"))
	ok(os.Link(filepath.FromSlash("folder/part/head"), "hardhead"))
	whole, err := filepath.Abs("data")
	ok(err)
	obstacle := Unless(func(path string) bool { return path == "ours" }, "a thing")
	for _, test := range []struct {
		path  string
		text  string // text of the error; "" = no error
		force string // the same with --force
	}{
		{"new", "", ""},
		{"ours", "", ""},
		{"new.arrow", "", ""},
		{"new.ARROW", "", ""},
		{"new.2026-11-27", "", ""},
		{"new.Parquet", "cannot write new.Parquet: a reader of .parquet files could not read the file; expected the extension .arrow or .csv", "cannot write new.Parquet"},
		{"mine", "cannot write mine: it is not a thing that shaver wrote; name another file, or give --force to replace it", ""},
		{"", `--out "": expected the name of a file`, `--out "": expected`},
		{"data", "cannot write data: it is a folder", "it is a folder"},
		{"data/train.arrow", "it is an input of this command; name another file", "it is an input"},
		{"link/./train.arrow", "it is an input", "it is an input"},
		{whole + "/../data/train.arrow", "it is an input", "it is an input"},
		{"hard", "it is an input", "it is an input"},
		{"soft", "it is an input", "it is an input"},
		{"link/test.arrow", "it is an input", "it is an input"}, // which does not exist
		{"link/scores.arrow", "", ""},
		{"folder/part/head", "it is an input", "it is an input"},
		{"linked/part/../part/head", "it is an input", "it is an input"},
		{"hardhead", "it is an input", "it is an input"},
		{"folder/part/new", "", ""},
	} {
		for _, force := range []bool{false, true} {
			o := Outputs{Force: force}
			o.Inputs("", "data/train.arrow", "data/test.arrow", "linked")
			want := test.text
			if force {
				want = test.force
			}
			err := o.Check("--out", test.path, obstacle, ".arrow", ".csv")
			if (err == nil) != (want == "") || err != nil && (!fault.IsUsage(err) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%q, force %v: %v, expected %q", test.path, force, err, want)
			}
		}
	}
	if err := new(Outputs).Check("--out", filepath.Join("nowhere", "x"), Any); !fault.IsInput(err) || !strings.Contains(err.Error(), "there is no folder nowhere") {
		t.Errorf("in a folder that does not exist: %v", err)
	}
	if runtime.GOOS != "windows" {
		for _, path := range []string{os.DevNull, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/../dev/stdout"} {
			if err := (&Outputs{Force: true}).Check("--out", path, Any); !fault.IsUsage(err) || !strings.Contains(err.Error(), "it is not a regular file") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	left, err := filepath.Glob(".*")
	if ok(err); len(left) > 0 {
		t.Errorf("Check leaves %v", left)
	}
}

// A folder for results is not that of a dataset, nor in it, by any path.
func TestCheckFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.MkdirAll(filepath.FromSlash("days/mon"), 0o755), os.Mkdir("other", 0o755)); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{"days/mon": "it is the folder", "days/../days/mon": "it is the folder", "days/mon/new/er": "it is in the folder", "days": "", "other": "", "new/er": "", "days/monday": ""}
	if os.Symlink(filepath.FromSlash("days/mon"), "link") == nil {
		tests["link"], tests["link/new"] = "it is the folder", "it is in the folder"
	}
	for path, want := range tests {
		if err := CheckFolder(filepath.FromSlash(path), "other/x", filepath.FromSlash("days/mon")); (err == nil) != (want == "") || err != nil && (!fault.IsUsage(err) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, expected %q", path, err, want)
		}
	}
}

//go:build unix

package stage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program is a shaver that appends a line to the file log and writes its last argument, the file of
// --out, unless the file full exists.
const program = `#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >>log
if [ -e full ]; then echo no space >&2; exit 1; fi
if [ "$1" = print ]; then echo '{"auc": 0.75}'; exit; fi
for last; do :; done
echo done >"$last"
`

// Each stage runs until it succeeds, and then never again.
func TestStages(t *testing.T) {
	f := Folder(t.TempDir())
	if err := os.WriteFile(f.Path("shaver"), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	var printed, measured struct{ AUC float64 }
	run := func() error {
		if err := f.Make("data", "import", "--out", "data"); err != nil {
			return err
		}
		if err := f.Train("model", "train"); err != nil {
			return err
		}
		if err := f.Print("printed.json", &printed, "print"); err != nil {
			return err
		}
		return f.Measure("measured.json", &measured, func() error { measured.AUC = .5; return nil })
	}
	if err := os.WriteFile(f.Path("full"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Fatalf("run returned %v", err)
	}
	if err := os.Remove(f.Path("full")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		printed.AUC, measured.AUC = 0, 0
		if err := run(); err != nil {
			t.Fatal(err)
		}
		if printed.AUC != .75 || measured.AUC != .5 {
			t.Errorf("printed %v, measured %v", printed, measured)
		}
	}
	log, err := os.ReadFile(f.Path("log"))
	if err != nil {
		t.Fatal(err)
	}
	want := "import --out data\nimport --out data\ntrain --out " + f.Path("unfinished-model") + "\nprint -o json\n"
	if string(log) != want {
		t.Errorf("the commands were\n%sexpected\n%s", log, want)
	}
	if left, err := filepath.Glob(f.Path("unfinished-*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v (%v)", left, err)
	}
	if err := os.WriteFile(f.Path("measured.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(); err == nil || !strings.Contains(err.Error(), "measured.json") {
		t.Errorf("a torn result gave %v", err)
	}
}

package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteIsWholeOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string, fail error) error {
		return Write(path, func(w io.Writer) error {
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
			return fail
		})
	}
	if err := write("one", nil); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := write("two", broken); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "one" {
		t.Errorf("file holds %q, %v", text, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("%d files remain, expected 1", len(entries))
	}
	if err := write("three", nil); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); string(text) != "three" {
		t.Errorf("file holds %q", text)
	}
	if err := Probe(path); err != nil {
		t.Error(err)
	}
	if err := Probe(filepath.Join(path, "below", "file")); err == nil || strings.Contains(err.Error(), ".tmp") {
		t.Errorf("a probe in a file: error %v, expected one without the temporary name", err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("%d files remain after a probe, expected 1", len(entries))
	}
	if err := Write(filepath.Join(path, "below"), func(io.Writer) error { return nil }); err == nil {
		t.Error("no error for a path inside a file")
	}
}

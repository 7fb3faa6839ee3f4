package cli

import (
	"testing"
	"testing/fstest"
)

// HelpText joins texts by empty lines, and panics at the name of a file that is missing.
func TestHelpText(t *testing.T) {
	files := fstest.MapFS{"help/a.txt": {Data: []byte("one\n\ntwo\n")}, "help/b.txt": {Data: []byte("three\n")}}
	if text := HelpText(files, "a", "b"); text != "one\n\ntwo\n\nthree" {
		t.Errorf("text %q", text)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic for a missing file")
		}
	}()
	HelpText(files, "a", "c")
}

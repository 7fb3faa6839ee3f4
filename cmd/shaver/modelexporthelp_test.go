package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The command prints the file of each framework.
func TestExportHelp(t *testing.T) {
	for _, name := range []string{"deepctr-torch", "fuxictr", "keras", "pytorch", "recbole", "torch-rechub", "torchrec"} {
		if !slices.Contains(frameworks(), name) {
			t.Errorf("no snippet for %s", name)
		}
	}
	for _, name := range frameworks() {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{"model", "export-help", "--for", name})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join("snippets", name+".py"))
		if err != nil {
			t.Fatal(err)
		}
		if out.String() != string(text) {
			t.Errorf("%s: printed\n%s\nwant\n%s", name, &out, text)
		}
		if !strings.Contains(out.String(), `"model.onnx"`) {
			t.Errorf("%s: no export to model.onnx", name)
		}
		for i, line := range strings.Split(out.String(), "\n") {
			if len(line) > 120 {
				t.Errorf("%s.py:%d: %d columns, want at most 120", name, i+1, len(line))
			}
		}
	}
}

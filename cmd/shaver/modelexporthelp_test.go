package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The command has the frameworks of the issue, and prints the file of each.
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

// docs/guide/models.md shows every snippet as the command prints it, and no other Python.
func TestExportHelpPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "models.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for i, part := range strings.Split(string(text), "```python\n") {
		code, _, closed := strings.Cut(part, "```")
		if i == 0 {
			continue
		}
		if !closed {
			t.Fatalf("docs/guide/models.md: Python block %d has no end", i)
		}
		shown[code] = true
	}
	for _, name := range frameworks() {
		want, err := snippet(name)
		if err != nil {
			t.Fatal(err)
		}
		if !shown[want] {
			t.Errorf("docs/guide/models.md does not show cmd/shaver/snippets/%s.py as it is", name)
		}
		delete(shown, want)
	}
	for code := range shown {
		t.Errorf("docs/guide/models.md shows Python that shaver model export-help does not print:\n%s", code)
	}
}

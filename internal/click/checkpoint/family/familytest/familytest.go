// Package familytest has state dicts for tests: small ones, and those that real packages saved.
package familytest

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/click/model"
)

// Case is a checkpoint that a real package saved; see testdata/families/README.md.
type Case struct {
	Name   string `json:"-"`
	Folder string `json:"-"` // where File is
	File   string `json:"file"`
	Family string `json:"family"`
	Form   string `json:"form"`
	Kind   string `json:"kind"`
	Fields []struct {
		Name string `json:"name"`
		Rows int    `json:"rows"`
	} `json:"fields"`
	Dense []string  `json:"dense"`
	Rows  [][]int32 `json:"rows"`
	Want  []float64 `json:"logits"`
}

// Cases returns the cases in folder, except that of PyTorch's old format.
func Cases(t *testing.T, folder string) []Case {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases in %s: %v", folder, err)
	}
	var all []Case
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c := Case{Folder: folder, Name: strings.TrimSuffix(filepath.Base(name), ".json")}
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.Contains(c.Name, "legacy") {
			all = append(all, c)
		}
	}
	return all
}

// Said returns what the file next to c's file has to hold, or "".
func (c *Case) Said() string {
	if c.Family == "deepctr-torch" && c.Form == "whole module" {
		return "" // the classes of the modules say it
	}
	said := map[string]any{}
	kind, structure, _ := strings.Cut(c.Kind, " ")
	if kind != "fm" && c.Family != "recbole" && c.Family != "pytorch-fm" {
		said["activation"] = "relu"
	}
	if c.Family != "fuxictr" && structure == "" && (kind != "fm" || c.Family != "pytorch-fm") {
		said["kind"] = strings.ReplaceAll(kind, "-", "")
	}
	if c.Family == "recbole" || c.Family == "pytorch-fm" {
		said["field_dims"] = c.Dims()
	}
	if len(said) == 0 {
		return ""
	}
	text, _ := json.Marshal(said) // strings and numbers do not fail
	return string(text)
}

// Key returns the key of the state dict, if the file has several.
func (c *Case) Key() string {
	if c.Name == "wrapped-ambiguous" {
		return "model"
	}
	return ""
}

// Dims returns the sizes of the fields.
func (c *Case) Dims() (dims []int) {
	for _, f := range c.Fields {
		dims = append(dims, f.Rows)
	}
	return dims
}

// Path returns the path of c's file.
func (c *Case) Path() string { return filepath.Join(c.Folder, c.File) }

// CopyTo copies c's file to a folder, with said in the file next to it, and returns its
// path.
func (c *Case) CopyTo(t *testing.T, folder, said string) string {
	t.Helper()
	data, err := os.ReadFile(c.Path())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, c.File)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if said != "" {
		if err := os.WriteFile(path+".json", []byte(said), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// rows returns c's rows for the model m.
func (c *Case) rows(m *model.Model) *model.Rows {
	rows := &model.Rows{Width: m.Fields()}
	offsets := m.Offsets()
	for i, row := range c.Rows {
		rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, 0)
		for j, id := range row {
			rows.Features = append(rows.Features, offsets[j]+id)
		}
	}
	return rows
}

// Logits returns the logits of m for the rows of c.
func (c *Case) Logits(m *model.Model) []float64 {
	logits := make([]float64, len(c.Rows))
	m.NewScorer().Logits(logits, c.rows(m))
	return logits
}

// Near checks that logits differ from the expected ones by less than the tolerance.
func Near(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) == 0 || len(got) != len(want) {
		t.Errorf("%s: %d logits, expected %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= tolerance) {
			t.Errorf("%s: row %d has the logit %v, expected %v", what, i, got[i], want[i])
			return
		}
	}
}

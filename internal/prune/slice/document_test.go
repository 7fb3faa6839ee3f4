package slice_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/prune/slice"
)

func contents(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// interrupted is a context that is cancelled once a file has a text.
type interrupted struct {
	context.Context
	file, text string
}

func (c interrupted) Err() error {
	if data, err := os.ReadFile(c.file); err == nil && bytes.Contains(data, []byte(c.text)) {
		return context.Canceled
	}
	return nil
}

// A path that is interrupted after a step goes on from there, and has the bytes of one that was not interrupted. A
// budget whose steps are known is not measured, and another budget goes on from another number of fields.
func TestStoredPath(t *testing.T) {
	file, data := useless(t)
	folder := t.TempDir()
	whole, part := filepath.Join(folder, "whole.json"), filepath.Join(folder, "part.json")
	options := func(path string, fields, columns int) *slice.Options {
		return &slice.Options{Model: file, Dataset: []string{data}, KeepFields: fields, KeepColumns: columns, Rows: 3000, Path: path, Out: filepath.Join(folder, "out.safetensors")}
	}
	write := func(path string, fields, columns int) *slice.Result {
		t.Helper()
		r, err := options(path, fields, columns).Write(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := write(whole, 2, 4)
	model := contents(t, first.Out)
	if !slice.Written(whole) {
		t.Errorf("not a path: %s", contents(t, whole))
	}
	for _, text := range []string{`"field": "idle"`, `"gone": [`} {
		ctx := interrupted{t.Context(), part, text}
		if _, err := options(part, 2, 4).Write(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("not interrupted: %v", err)
		}
		if p, err := slice.ReadPath(part); err != nil || len(p.Fields) == 0 {
			t.Fatalf("path %+v, %v", p, err)
		}
	}
	again := write(part, 2, 4)
	if !bytes.Equal(contents(t, part), contents(t, whole)) || !bytes.Equal(contents(t, again.Out), model) {
		t.Errorf("the path that was interrupted is\n%s\nexpected\n%s", contents(t, part), contents(t, whole))
	}

	// A rise that no measurement gives comes from the file.
	p, err := slice.ReadPath(whole)
	if err != nil {
		t.Fatal(err)
	}
	p.Fields[0].Rise.Value, p.Fields[0].Rise.Low, p.Fields[0].Rise.High = 7, nil, nil
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(whole, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := write(whole, 3, 0); len(r.Path) != 1 || r.Path[0].Rise.Value != 7 || !bytes.Equal(contents(t, whole), text) || *r.Loss != *first.Loss {
		t.Errorf("the path %+v was measured again", r.Path)
	}

	// From three fields the columns are another branch, and the first one stays.
	write(part, 3, 5)
	if p, err = slice.ReadPath(part); err != nil || len(p.Columns) != 2 || p.Columns[1].Fields != 3 || len(p.Columns[1].Steps) != 1 || len(p.Columns[0].Steps) != 2 {
		t.Errorf("branches %+v, %v", p.Columns, err)
	}

	// The path of something else is refused, with both sides, and replaced only if that is allowed.
	other := options(part, 3, 0)
	other.Fields = []string{"hour"}
	if _, err := other.Write(t.Context()); !fault.IsInput(err) || !strings.Contains(err.Error(), `part.json is the path of the model without the fields [], but this one begins without ["hour"]`) {
		t.Error(err)
	}
	other = options(part, 3, 0)
	other.Model, other.Fields = first.Out, nil
	if _, err := other.Write(t.Context()); !fault.IsInput(err) || !strings.Contains(err.Error(), "part.json is the path of the model with the digest "+p.Model[:12]+", but the model has ") {
		t.Error(err)
	}
	other.KeepFields, other.KeepColumns, other.Restart = 2, 0, true
	if r, err := other.Write(t.Context()); err != nil || len(r.Path) != 1 {
		t.Errorf("result %+v, %v", r, err)
	}
	if p, err = slice.ReadPath(part); err != nil || len(p.Fields) != 1 || p.Columns != nil {
		t.Errorf("path %+v, %v", p, err)
	}
}

// removals is a path of a model of four fields and three columns.
const removals = `{"version": "shaver.removals/1", "model": "ab", "dataset": "cd", "rows": 100, "compared": 60, "removed": ["d"],
"whole": {"loss": 0.5, "auc": 0.7, "fields": 4, "columns": 3, "look_ups": 4, "entries": 120, "multiplications": 96, "bytes": 900},
"fields": [{"field": "a", "rise": {"value": 0.01, "low": -0.01, "high": 0.03}, "loss": 0.51, "fields": 2, "columns": 3, "look_ups": 2, "entries": 60, "multiplications": 48, "bytes": 600},
{"field": "b", "rise": null, "loss": 0.52, "fields": 1, "columns": 3, "look_ups": 1, "entries": 30, "multiplications": 24, "bytes": 400}],
"columns": [{"fields": 2, "steps": [{"gone": [1], "rise": {"value": 0.02, "low": null, "high": null}, "loss": 0.52, "fields": 2, "columns": 2, "look_ups": 2, "entries": 40, "multiplications": 32, "bytes": 500}]}]}`

// ParsePath takes only a document whose steps follow each other.
func TestParsePath(t *testing.T) {
	if p, err := slice.ParsePath([]byte(removals)); err != nil || len(p.Fields) != 2 || len(p.Columns) != 1 {
		t.Fatalf("path %+v, %v", p, err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"shaver.removals/1", "shaver.removals/2", `the version of the path is "shaver.removals/2", this program reads shaver.removals/1`},
		{`"rows"`, `"row"`, `unknown field "row"`},
		{`"compared": 60`, `"compared": 101`, "the path compared on 101 of 100 rows: expected 1 or more, and not all"},
		{`"compared": 60`, `"compared": 60, "loss": "hinge"`, `the loss of the path is "hinge"`},
		{`"loss": 0.5, "auc": 0.7`, `"loss": 1e101`, "the whole model: the loss is 1e+101"},
		{`"auc": 0.7`, `"auc": 1.5`, "an AUC in [0, 1]"},
		{`"bytes": 900`, `"bytes": 0`, "expected numbers of at least 1"},
		{`"multiplications": 96`, `"multiplications": -1`, "it costs -1 multiplications"},
		{`"field": "a"`, `"gone": [0]`, `step 1 of the fields removes the field "" and the columns [0]: expected a field`},
		{`"field": "b"`, `"field": "a"`, `step 2 of the fields removes "a", which is gone before`},
		{`"field": "b"`, `"field": "d"`, `step 2 of the fields removes "d", which is gone before`},
		{`"fields": 2, "columns": 3`, `"fields": 3, "columns": 3`, "step 1 of the fields: 3 fields and 3 columns are left: expected 2 and 3"},
		{`"value": 0.01`, `"value": 0.04`, "step 1 of the fields: the rise of the loss is not a number in its interval"},
		{`{"fields": 2, "steps"`, `{"fields": 4, "steps"`, "the path does not lead to 4 fields"},
		{`"gone": [1]`, `"gone": [3]`, "columns of 2 fields: step 1 removes the column 3: expected one of 3 that is left"},
		{`"gone": [1]`, `"gone": [1, 1]`, "step 1 removes the column 1"},
		{`"gone": [1]`, `"field": "c"`, `step 1 removes the field "c" and the columns []: expected columns`},
		{`"fields": 1, "columns": 3`, `"fields": 0, "columns": 3`, "step 2 of the fields: it costs"},
	} {
		text := strings.Replace(removals, c.old, c.new, 1)
		if _, err := slice.ParsePath([]byte(text)); text == removals || !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error for %s: %v, expected %q", c.new, err, c.want)
		}
	}
}

// Tables of different numbers of columns have the number 0, until the fields with the others are gone.
func TestPathToEqualTables(t *testing.T) {
	text := `{"version": "shaver.removals/1", "model": "MODEL", "dataset": "DATA", "rows": 100, "compared": 60,
		"whole": {"loss": 0.5, "fields": 2, "columns": 0, "look_ups": 2, "entries": 9, "bytes": 900},
		"fields": [{"field": "a", "loss": 0.5, "fields": 1, "columns": 3, "look_ups": 1, "entries": 6, "bytes": 800}]}`
	text = strings.NewReplacer("MODEL", strings.Repeat("0", 64), "DATA", strings.Repeat("0", 64)).Replace(text)
	p, err := slice.ParsePath([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if whole, left := p.Whole.ColumnsText(), p.Fields[0].ColumnsText(); whole != "-" || left != "3" {
		t.Errorf("columns %q and %q, expected - and 3", whole, left)
	}
}

// A document that ParsePath accepts can be encoded and parsed again.
func FuzzPath(f *testing.F) {
	f.Add([]byte(removals))
	f.Add([]byte(`{"version": "shaver.removals/1", "rows": 1, "compared": 1, "fields": [], "whole": {"fields": 1, "columns": 1, "look_ups": 1, "entries": 1, "bytes": 1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := slice.ParsePath(data)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("error %v is not bad input", err)
			}
			return
		}
		first, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := slice.ParsePath(first)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%s became %s, error %v", first, second, err)
		}
	})
}

package slice_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/prune/slice"
)

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
		{`"multiplications": 96`, `"multiplications": -1`, "multiplications of at least 0"},
		{`"field": "a"`, `"gone": [0]`, `fields: step 1 removes the field "" and the columns [0]: expected a field`},
		{`"field": "b"`, `"field": "a"`, `fields: step 2 removes the field "a"`},
		{`"field": "b"`, `"field": "d"`, `fields: step 2 removes the field "d"`},
		{`"fields": 2, "columns": 3`, `"fields": 3, "columns": 3`, "fields: step 1: 3 fields and 3 columns are left: expected 2 and 3"},
		{`"value": 0.01`, `"value": 0.04`, "fields: step 1: the rise of the loss is not a number in its interval"},
		{`{"fields": 2, "steps"`, `{"fields": 4, "steps"`, "the path does not lead to 4 fields"},
		{`"gone": [1]`, `"gone": [3]`, `columns of 2 fields: step 1 removes the field "" and the columns [3]`},
		{`"gone": [1]`, `"gone": [1, 1]`, "the columns [1 1]: expected columns that it has left"},
		{`"gone": [1]`, `"field": "c"`, `step 1 removes the field "c" and the columns []: expected columns`},
		{`"fields": 1, "columns": 3`, `"fields": 0, "columns": 3`, "fields: step 2: it costs"},
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

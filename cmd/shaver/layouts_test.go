package main

import (
	"strings"
	"testing"

	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/slice"
)

// Tables of different numbers of columns have no number of columns.
func TestSliceOfDifferentTables(t *testing.T) {
	cost := slice.Cost{Fields: 3, LookUps: 3, Entries: 9}
	r := &cut.Sliced{Before: cost, After: cost, Loss: new(float64), Path: []slice.Step{{Field: "a", Figures: slice.Figures{Cost: cost}}}}
	var text strings.Builder
	slicedTable(&text, r)
	if strings.Contains(text.String(), "columns") {
		t.Errorf("the table has columns:\n%s", text.String())
	}
	r.After.Columns = 8
	text.Reset()
	slicedTable(&text, r)
	stepTable(&text, r, false)
	for _, want := range []string{"columns\t- -> 8\n", "\na\t3\t-\t0\t"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, text.String())
		}
	}
}

// A field whose rows are those of another field has no counts and sums of its own.
func TestInspectSharedRows(t *testing.T) {
	sum := 0.
	field := func(name, rowsOf string, seen int) scores.FieldFacts {
		return scores.FieldFacts{FieldSummary: scores.FieldSummary{Name: name, Features: 9, RowsOf: rowsOf, Seen: seen}, Sum: &sum, SumAbs: &sum}
	}
	for _, path := range []*scores.Path{nil, {}} {
		facts := &scores.Facts{Path: path, ValueFacts: &scores.ValueFacts{}, NoInterval: new(int), Fields: []scores.FieldFacts{field("brand", "", 7), field("recent", "brand", 0)}}
		var text strings.Builder
		scoresTable(&text, facts)
		for _, want := range []string{"\nbrand\t9\t7", "\nrecent\t9\tin brand"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the table has no %q:\n%s", want, text.String())
			}
		}
	}
}

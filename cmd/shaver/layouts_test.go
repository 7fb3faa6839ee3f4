package main

import (
	"strings"
	"testing"

	"shaver/internal/prune/slice"
)

// Tables of different numbers of columns have no number of columns.
func TestSliceOfDifferentTables(t *testing.T) {
	cost := slice.Cost{Fields: 3, LookUps: 3, Entries: 9}
	r := &slice.Result{Before: cost, After: cost}
	var text strings.Builder
	sliceTable(&text, r)
	if strings.Contains(text.String(), "columns") {
		t.Errorf("the table has columns:\n%s", text.String())
	}
	r.After.Columns = 8
	text.Reset()
	sliceTable(&text, r)
	removalTable(&text, []slice.Step{{Field: "a", Figures: slice.Figures{Cost: cost}}}, nil)
	for _, want := range []string{"columns\t- -> 8\n", "\na\t3\t-\t0\t"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, text.String())
		}
	}
}

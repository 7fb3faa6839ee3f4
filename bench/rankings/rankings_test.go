package main

import (
	"strings"
	"testing"

	"shaver/bench/paired"
)

// A cell in which another ranking is clearly better than the reference is named, with the one that leads most.
func TestCount(t *testing.T) {
	r := &result{Title: "A", Real: true, Cells: map[string][][]paired.Cell{}}
	for i := range sparsities {
		for k, by := range rankings {
			var c paired.Cell
			c[paired.AUC].Value, c[paired.AUC].SE = .7, .001
			switch {
			case by.name == reference:
			case i == 1 && by.name == "frequency":
				c[paired.AUC].Difference = .01
			case i == 2 && by.name == nothing:
				c[paired.AUC].Difference = .0001
			default:
				c[paired.AUC].Difference = -.001 * float64(k)
			}
			r.Cells[by.name] = append(r.Cells[by.name], []paired.Cell{c})
		}
	}
	var text strings.Builder
	count(&text, []*result{r}, paired.AUC)
	want := "\nAUC: in 6 of 7 cells no ranking is better than path beyond its interval. The others: A at 0.8 by frequency +.0100 ± .0020. Worse than nothing kept: A at 0.9.\n"
	if text.String() != want {
		t.Errorf("count printed %q, expected %q", text.String(), want)
	}
}

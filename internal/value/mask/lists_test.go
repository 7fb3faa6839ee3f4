package mask

import (
	"math"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// The entries of pad rows come last, and count as kept in every budget.
func TestPadsLast(t *testing.T) {
	a := modeltest.Lists()
	entries := a.Parameters()
	order := make([]int32, entries)
	for i := range order {
		order[i] = int32(i)
	}
	if got, most := PadsLast(&a, order); most != entries-2 || !slices.Equal(got[most:], []int32{0, 1}) || !slices.Equal(got[:most], order[2:]) {
		t.Errorf("%d may be dropped: %v", most, got)
	}
	drop, err := Budget{Sparsity, .5}.Drop(&a, &listBook, nil)
	if err != nil || Parameters(&a, drop, &listBook) != entries-drop+6 {
		t.Errorf("%d entries are dropped and %d parameters kept, error %v", drop, Parameters(&a, drop, &listBook), err)
	}
	plain := modeltest.LookUps()
	order = order[:3]
	if got, most := PadsLast(&plain, order); &got[0] != &order[0] || most != 3 {
		t.Errorf("without pads the order is %v, of which %d may be dropped", got, most)
	}
}

// listBook is a baseline of modeltest.Lists.
var listBook = model.Baseline{Values: []float32{.5, .25, .5, .25, 0, 1}}

// The rivals know pads and shared rows.
func TestRivalsOfLists(t *testing.T) {
	a := modeltest.Lists()
	table, counts := make([]float32, a.Parameters()), make([]int64, a.Features())
	for i := range table {
		table[i] = float32(math.Sin(float64(i)))
	}
	for f := range counts {
		counts[f] = int64(f)
	}
	for _, per := range []string{PerTable, PerField, PerRow} {
		out := Quantize(&a, table, 4, per)
		if !slices.Equal(out[:2], table[:2]) || slices.Equal(out[10:13], table[10:13]) && per != PerRow {
			t.Errorf("%s: %v becomes %v", per, table, out)
		}
	}
	got := Frequency(&a, table, listBook, counts)
	if want := math.Abs(float64(table[7])-.25) * math.Sqrt(3+11); math.Abs(got[7]-want) > 1e-9 { // item 3 is features 3 and 11
		t.Errorf("entry 7 has the score %v, expected %v", got[7], want)
	}
	mask := make([]bool, len(table))
	for i := 2; i < len(mask); i++ {
		mask[i] = true
	}
	pruned := Apply(&a, table, mask, listBook)
	if !slices.Equal(pruned[:4], []float32{table[0], table[1], .5, .25}) || pruned[16] != 1 {
		t.Errorf("the pruned table is %v", pruned)
	}
	if empty, all := EmptyFeatures(&a, mask), Features(&a); empty != 4+3+4 || all != 5+3+4 { // the rows of history are those of item
		t.Errorf("%d of %d features are empty, expected 11 of 12", empty, all)
	}
	bins := Bins(&a, []int64{0, 5, 1, 2, 3, 7, 8, 9, 1, 1, 1, 1}, mask, 2)
	if len(bins[2]) != 0 || len(bins[0]) != 2 || bins[0][0].Features+bins[0][1].Features != 4 || bins[0][0].Least != 1 || bins[0][0].Kept != 0 {
		t.Errorf("bins %+v, expected those of the items without the pad", bins)
	}
}

// A previous mask must have the same lists and the same shared rows.
func TestPreviousOfLists(t *testing.T) {
	before, after := modeltest.Lists(), modeltest.Lists()
	after.FieldDims = []int{6, 3, 6, 4}
	after.Tables[0].Rows = 6
	dropped := make([]bool, before.Parameters())
	dropped[5], dropped[12] = true, true
	got, err := Previous(&after, &before, dropped)
	want := slices.Repeat([]Choice{WasKept}, 19)
	want[5], want[10], want[11], want[14] = WasDropped, WasAbsent, WasAbsent, WasDropped
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("choices %v, expected %v; error %v", got, want, err)
	}
	churn, fields := ChurnOf(&after, got, make([]bool, 19))
	if churn.Entries != 19 || fields[0].Entries != 12 || fields[2].Entries != 0 {
		t.Errorf("churn %+v of fields %+v", churn, fields)
	}
	for want, spoil := range map[string]func(a *model.Architecture){
		"field 2 has 3 positions": func(a *model.Architecture) { a.Lists[0].Length = 2 },
		"reads the rows of look-up 0": func(a *model.Architecture) {
			a.Tables[0].Rows, a.LookUps[1].Offset = 10, 5
		},
	} {
		other := modeltest.Lists()
		spoil(&other)
		if _, err := Previous(&other, &before, dropped); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
}

// A dropped entry reads the word of its row, and the score of an entry is its distance from that word.
func TestRivalsOfWords(t *testing.T) {
	a := modeltest.Lists()
	b := model.Baseline{
		Values: []float32{1, 2, 1, 2, 3, 4, 10, 20, 30, 300}, Words: []int{2, 3, 1},
		Numbers: []uint8{0, 1, 0, 1, 0 /* items */, 2, 0, 1 /* users */, 0, 0, 0, 0 /* tags */},
	}
	all := []float32{1, 2, 10, 20, 1, 2, 10, 20, 1, 2, 300, 3, 30, 4, 4, 4, 4} // what each entry reads if it is dropped
	table, mask, counts := make([]float32, len(all)), make([]bool, len(all)), make([]int64, a.Features())
	for i := range table {
		table[i], mask[i] = float32(i)/7, i%3 > 0
	}
	for f := range counts {
		counts[f] = 1
	}
	pruned, scores, rows, shape := Apply(&a, table, mask, b), Frequency(&a, table, b, counts), a.RowCounts(counts), a.Shape()
	for i, v := range table {
		if mask[i] && pruned[i] != all[i] || !mask[i] && pruned[i] != v {
			t.Errorf("entry %d, dropped %v, is %v, expected %v or %v", i, mask[i], pruned[i], all[i], v)
		}
		if want := math.Abs(float64(v)-float64(all[i])) * math.Sqrt(float64(rows[shape.RowOf(i)])); math.Abs(scores[i]-want) > 1e-9 {
			t.Errorf("entry %d has the score %v, expected %v", i, scores[i], want)
		}
	}
	if got := Parameters(&a, len(all)-2, &b); got != 2+10 { // two entries and the words
		t.Errorf("%d parameters, expected 12", got)
	}
}

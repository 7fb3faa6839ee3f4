package sweep

import (
	"math"
	"slices"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
)

// No method changes the rows of pads, at any budget, and a budget that needs them is an
// error.
func TestMethodsKeepPads(t *testing.T) {
	a := modeltest.Lists()
	m := modeltest.ListModel("mean", 3)
	entries := slices.Clone(m.Weights.Embedding)
	entries[0], entries[1] = 0, 0
	counts := make([]int64, a.Features())
	for f := range counts {
		counts[f] = int64(1 + f)
	}
	book := model.Baseline{Values: []float32{.5, .25, .5, .25, 1, 2}}
	file := &scores.File{Fields: []string{"item", "user", "history", "tags"}, Layout: scores.LayoutOf(&a), Baseline: book, DatasetRows: 4}
	file.Result = tally.Result{Rows: 2, Scores: tally.Scores{Shape: a.Shape(), Count: make([]int64, 12), Values: tally.NewValues(17)}}
	for i := range file.Phi {
		file.Phi[i], file.RMS[i] = float64(i), float32(i) // those of pads are among the smallest
	}
	for _, values := range compact.Encodings() {
		u := &Unpruned{Architecture: &a, Names: file.Fields, Entries: entries, Counts: func() ([]int64, error) { return counts, nil }, Values: values}
		methods := []Method{}
		for _, name := range Rivals() {
			method, err := u.Rival(name, "codebook", book, 3)
			if err != nil {
				t.Fatal(err)
			}
			methods = append(methods, method)
		}
		for _, aggregate := range scores.Aggregates() {
			method, err := u.ByScores(file, 0, aggregate, mask.Abs)
			if err != nil {
				t.Fatal(err)
			}
			methods = append(methods, method)
		}
		for _, method := range methods {
			budgets := method.Own()
			if budgets == nil {
				budgets = []mask.Budget{{Unit: mask.Sparsity, Amount: .5}, {Unit: mask.Sparsity, Amount: 15. / 17}}
				if _, _, err := method.Cut(mask.Budget{Unit: mask.Sparsity, Amount: 1}); !fault.IsUsage(err) {
					t.Errorf("error %v for a budget that drops everything", err)
				}
			}
			for _, b := range budgets {
				p, table, err := method.Cut(b)
				if err != nil {
					t.Fatal(err)
				}
				if table[0] != 0 || table[1] != 0 {
					t.Errorf("%s as %s, %v: the row of the pad becomes %v", p.Method, values, b.Amount, table[:2])
				}
				if slices.Equal(table[2:], entries[2:]) {
					t.Errorf("%s as %s, %v: nothing changes", p.Method, values, b.Amount)
				}
			}
		}
	}
	for _, z := range []float64{0, 2} {
		choices := slices.Repeat([]mask.Choice{mask.WasDropped}, 17)
		order, err := StableOrder(file, scores.RMS, mask.Abs, entries, choices, z)
		if err != nil || !slices.Contains(order[15:], 0) || !slices.Contains(order[15:], 1) {
			t.Errorf("order %v, error %v", order, err)
		}
	}
}

// A list is in a slice because of its rarest feature, and pads do not count.
func TestSlicesOfLists(t *testing.T) {
	a := modeltest.Lists()
	counts := slices.Repeat([]int64{5000}, a.Features())
	counts[8], counts[10] = 7, 50 // the pad of history and its feature 2
	counts[14] = 3                // feature 1 of tags
	s := NewSlicer(&a, []string{"item", "user", "history", "tags"}, counts, nil)
	s.Add(&model.Rows{Width: 7, Number: []int64{0, 1, 2, 3}, Label: []float32{0, 1, 1, 0}, Features: []int32{
		0, 5, 8, 8, 8, 13, 13, // only pads
		0, 5, 9, 10, 8, 13, 13, // history is rare
		0, 5, 9, 9, 8, 13, 14, // tags are rare
		0, 5, 9, 10, 8, 14, 14, // both
	}})
	rows := map[string]int64{}
	for _, of := range s.slices {
		rows[of.Field] += of.Rows
		if of.Field == "" && of.Most == nil && of.Rows != 1 {
			t.Errorf("%d rows have no rare feature, expected 1", of.Rows)
		}
	}
	if rows[""] != 4 || rows["item"] != 0 || rows["user"] != 0 || rows["history"] != 2 || rows["tags"] != 2 {
		t.Errorf("the slices have %v rows", rows)
	}
	if got := s.rarest([]int32{0, 5, 8, 8, 8, 13, 13}, 2); got != math.MaxInt64 {
		t.Errorf("a list of pads occurs %d times", got)
	}
}

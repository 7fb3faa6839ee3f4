package sweep

import (
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
)

// path returns the table of a model and scores whose order drops the entries backwards.
func path(t *testing.T) (*Unpruned, *scores.File) {
	t.Helper()
	m, start, f := table(t, estimator.Path)
	f.Values = tally.NewRanks(m.Parameters())
	for i := range f.Rank {
		f.Rank[i] = int32(m.Parameters() - 1 - i)
	}
	return start, f
}

// The order of a path is that in which its method drops entries. A previous mask changes it only
// with hysteresis. The method has no aggregate in its name.
func TestByPath(t *testing.T) {
	start, f := path(t)
	n := len(start.Entries)
	method, err := start.ByScores(f, 0, scores.ByPath, mask.Abs)
	if err != nil {
		t.Fatal(err)
	}
	dropped, err := method.Dropped(mask.Budget{Unit: mask.Sparsity, Amount: .25})
	if err != nil {
		t.Fatal(err)
	}
	for i, gone := range dropped {
		if gone != (i >= n-n/4) {
			t.Errorf("entry %d of %d is dropped: %t", i, n, gone)
		}
	}
	p, _, err := method.Cut(mask.Budget{Unit: mask.Sparsity, Amount: .25})
	if err != nil || p.Method != "path" {
		t.Errorf("method %s, %v", p.Method, err)
	}
	d := &Document{Sources: []ScoresFile{{Options: f.Spec.Options}}}
	if aggregate, err := d.AggregateOf(&p); err != nil || aggregate != scores.ByPath || len(d.Flags(&p, aggregate)) != 0 {
		t.Errorf("aggregate %q, flags %v, %v", aggregate, d.Flags(&p, aggregate), err)
	}
	if _, err := d.AggregateOf(&Point{Method: "path-rms", Source: p.Source}); !fault.IsInput(err) || !strings.Contains(err.Error(), "expected one of path") {
		t.Error(err)
	}
	choices := make([]mask.Choice, n)
	want, err := Order(f, scores.ByPath, mask.Abs, start.Entries)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := StableOrder(f, scores.ByPath, mask.Abs, start.Entries, choices, 0); err != nil || !slices.Equal(got, want) {
		t.Errorf("the order %v, expected %v; error %v", got, want, err)
	}
	choices[n-1], choices[n-2] = mask.WasKept, mask.WasDropped // the first two that the path drops
	got, err := StableOrder(f, scores.ByPath, mask.Abs, start.Entries, choices, 1)
	if err != nil || got[0] != int32(n-2) || slices.Index(got, int32(n-1)) <= 1 {
		t.Errorf("with a previous mask the order is %v, error %v", got, err)
	}
	for _, failed := range []error{
		func() error { _, err := Order(f, scores.RMS, mask.Abs, start.Entries); return err }(),
		func() error { _, err := Order(f, scores.ByPath, mask.Signed, start.Entries); return err }(),
	} {
		if !fault.IsUsage(failed) {
			t.Error(failed)
		}
	}
}

package train

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// newEvolution returns a search whose best candidates keep few columns of even fields and many
// of odd ones. The metrics have few values, so that there are ties.
func newEvolution() *Evolution {
	return &Evolution{
		Seed: 3, Dim: 8, Alive: []int{10, 30, 0, 5}, Budget: 200,
		Fitness: func(_ context.Context, columns []int) (*Metrics, error) {
			auc := .5
			for j, c := range columns {
				auc += float64((2*(j%2)-1)*c/2) / 100
			}
			return &Metrics{AUC: &auc}, nil
		},
	}
}

// A search has 600 candidates within the budget. The best is the first with the best metrics, and
// it beats those of the first generation. The same seed gives the same candidates.
func TestEvolution(t *testing.T) {
	e := newEvolution()
	best, err := e.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Seen) != 600 {
		t.Fatalf("the search has %d candidates", len(e.Seen))
	}
	for i, c := range e.Seen {
		if n := e.Entries(c.Columns); n > e.Budget || slices.Min(c.Columns) < 1 || slices.Max(c.Columns) > e.Dim {
			t.Errorf("candidate %d, %v, keeps %d entries of %d", i, c.Columns, n, e.Budget)
		}
		if c.Metrics.Better(best.Metrics) {
			t.Errorf("candidate %d is better than the best", i)
		}
	}
	first := slices.IndexFunc(e.Seen, func(w Widths) bool { return *w.Metrics.AUC == *best.Metrics.AUC })
	if !reflect.DeepEqual(e.Seen[first].Columns, best.Columns) {
		t.Errorf("the best is %v, expected the first with its AUC, %v", best.Columns, e.Seen[first].Columns)
	}
	if first < population {
		t.Errorf("the best candidate, %d, is of the first generation", first)
	}
	again := newEvolution()
	if _, err := again.Run(t.Context()); err != nil || !reflect.DeepEqual(e.Seen, again.Seen) {
		t.Errorf("a second search has other candidates (%v)", err)
	}
}

// The elite is the best 15 of all candidates so far, and the older one of equal ones.
func TestElite(t *testing.T) {
	e := newEvolution()
	if _, err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{20, 40, 400} {
		best := e.elite(n)
		if len(best) != elite {
			t.Fatalf("the elite of %d has %d candidates", n, len(best))
		}
		age := func(w Widths) int {
			return slices.IndexFunc(e.Seen[:n], func(o Widths) bool { return &o.Columns[0] == &w.Columns[0] })
		}
		for i, w := range best[1:] {
			if before := best[i]; w.Metrics.Better(before.Metrics) || !before.Metrics.Better(w.Metrics) && age(w) < age(before) {
				t.Errorf("of %d, the elite's number %d precedes number %d", n, i, i+1)
			}
		}
		worst := best[elite-1]
		for i, w := range e.Seen[:n] {
			if w.Metrics.Better(worst.Metrics) && !slices.ContainsFunc(best, func(o Widths) bool { return &o.Columns[0] == &w.Columns[0] }) {
				t.Errorf("candidate %d of %d is better than the elite's last", i, n)
			}
		}
	}
}

// A search that is stopped after any candidate continues with the same candidates.
func TestEvolutionContinues(t *testing.T) {
	whole := newEvolution()
	if _, err := whole.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	for _, n := range []int{1, 20, 33, 599} {
		e := newEvolution()
		e.Done = func() error {
			if len(e.Seen) == n {
				return stop
			}
			return nil
		}
		if _, err := e.Run(t.Context()); err != stop {
			t.Fatalf("the search ends with %v", err)
		}
		e.Done = nil
		if _, err := e.Run(t.Context()); err != nil || !reflect.DeepEqual(e.Seen, whole.Seen) {
			t.Errorf("a search that stopped after %d candidates has other candidates (%v)", n, err)
		}
	}
}

// A budget that few draws meet is met, and one that none can meet is an error.
func TestEvolutionBudget(t *testing.T) {
	e := newEvolution()
	e.Budget = 45 // one column of each feature
	best, err := e.Run(t.Context())
	if err != nil || e.Entries(best.Columns) != 45 {
		t.Errorf("the best candidate keeps %d entries (%v), expected 45", e.Entries(best.Columns), err)
	}
	e = newEvolution()
	e.Budget = 44
	if _, err := e.Run(t.Context()); err == nil {
		t.Error("a search within fewer entries than features succeeds")
	}
}

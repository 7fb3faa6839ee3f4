package night_test

import (
	"testing"
	"time"

	"shaver/internal/app/night"
	"shaver/internal/prune/nightly"
)

// The metrics are those of the last night, and say when a night was published.
func TestMetrics(t *testing.T) {
	at := []string{"2026-11-20T03:00:00Z", "2026-11-21T03:00:00Z"}
	n := night.Metrics([]nightly.Line{
		{Night: "a", Number: 1, Outcome: nightly.Published, Finished: at[0], Rows: 7},
		{Night: "b", Number: 2, Outcome: nightly.Failed, Finished: at[1], Rows: 8},
	})
	if n.Number != 2 || n.Published || n.Rows != 8 || n.Finished.Format(time.RFC3339) != at[1] || n.LastPublished.Format(time.RFC3339) != at[0] {
		t.Errorf("%+v", n)
	}
	if !night.Time("").IsZero() || !night.Time("yesterday").IsZero() {
		t.Error("a line without a time has one")
	}
}

// A portion of nothing is undefined.
func TestPortion(t *testing.T) {
	if p := night.Portion(1, 4); p == nil || *p != .25 || night.Portion(1, 0) != nil {
		t.Errorf("%v", p)
	}
}

// The simulated nights have at least one whole window of days.
func TestLeastRows(t *testing.T) {
	if one, more := night.LeastRows(1), night.LeastRows(3); one != 2500 || more != 3500 {
		t.Errorf("%d and %d rows", one, more)
	}
}

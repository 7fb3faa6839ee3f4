package shapley

import (
	"maps"
	"slices"
	"testing"

	"shaver/internal/estimator"
)

// Every estimator that is declared has a constructor, and no other name has one.
func TestEveryEstimatorIsComputed(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(evaluators)), slices.Sorted(slices.Values(estimator.Names())); !slices.Equal(got, want) {
		t.Errorf("constructors of %v, estimators %v", got, want)
	}
}

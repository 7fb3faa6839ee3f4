package shapley

import (
	"maps"
	"slices"
	"testing"

	"shaver/internal/value/estimator"
)

// Exactly the declared estimators have constructors.
func TestEveryEstimatorIsComputed(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(evaluators)), slices.Sorted(slices.Values(estimator.Names())); !slices.Equal(got, want) {
		t.Errorf("constructors exist for %v, declared estimators are %v", got, want)
	}
}

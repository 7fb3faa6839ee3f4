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
	// Jobs of pairs of fields take every estimator that jobs of fields take.
	var pairs []string
	for _, name := range estimator.Names() {
		if o := (estimator.Options{Estimator: name}); o.ValidateFields() == nil {
			pairs = append(pairs, name)
		}
	}
	if got, want := slices.Sorted(maps.Keys(pairEvaluators)), slices.Sorted(slices.Values(pairs)); !slices.Equal(got, want) {
		t.Errorf("constructors for pairs exist for %v, jobs of fields take %v", got, want)
	}
}

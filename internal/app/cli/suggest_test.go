package cli

import "testing"

// A mistyped name gets the nearest one, and a name that is nothing like the others gets
// none.
func TestNearest(t *testing.T) {
	names := []string{"score", "scores", "sweep", "study", "model", "max-rows", "rows-per-shard", "sparsities"}
	for typed, want := range map[string]string{
		"score": "score", "scroe": "score", "scoers": "scores", "SWEEP": "sweep", "sweeep": "sweep", "modle": "model", "max_rows": "max-rows",
		"rows": "rows-per-shard", "st": "study", "s": "", "": "", "bogus": "", "mo": "model",
		"sparsity": "sparsities",
	} {
		if got := nearest(typed, names); got != want {
			t.Errorf("%q: %q, expected %q", typed, got, want)
		}
	}
}

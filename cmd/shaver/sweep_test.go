package main

import (
	"errors"
	"math"
	"path/filepath"
	"testing"

	"shaver/internal/evaluate"
	"shaver/internal/fault"
)

// TestSelect compares what is chosen with sweeps of the validation and the test
// split.
func TestSelect(t *testing.T) {
	q := filepath.Join(t.TempDir(), "q")
	shaver(t, nil, "quickstart", "--rows", "3000", "--out", q)
	sweep := func(flags ...string) (points []point) {
		shaver(t, &points, append([]string{"sweep", "--model", filepath.Join(q, "model.safetensors"), "--scores", filepath.Join(q, "scores.arrow"),
			"--dataset", filepath.Join(q, "dataset"), "--sparsities", "0.9,0.99"}, flags...)...)
		return points
	}
	all := []string{"--aggregate", "sum,abs,rms"}
	validation, test, chosen := sweep(append(all, "--split", "val")...), sweep(all...), sweep("--select")
	if len(chosen) != 2 || len(test) != 8 || len(validation) != 8 {
		t.Fatalf("%d chosen of %d and %d", len(chosen), len(validation), len(test))
	}
	for i, c := range chosen {
		best := i * 4
		for j := best; j < i*4+4; j++ {
			if *validation[j].AUC > *validation[best].AUC {
				best = j
			}
		}
		want := test[best]
		if c.ValidationAUC == nil || *c.ValidationAUC != *validation[best].AUC || c.Method != want.Method || *c.AUC != *want.AUC || c.Sparsity != want.Sparsity {
			t.Errorf("chose %+v, expected %+v for its validation AUC of %v", c, want, *validation[best].AUC)
		}
	}
}

func TestChoose(t *testing.T) {
	candidates := []candidate{{method: "a"}, {method: "b"}, {method: "c"}}
	measure := func(auc map[string]float64) func(candidate) (evaluate.Metrics, error) {
		return func(c candidate) (evaluate.Metrics, error) { return evaluate.Metrics{AUC: auc[c.method]}, nil }
	}
	best, auc, err := choose(candidates, measure(map[string]float64{"a": .5, "b": .7, "c": .7}))
	if err != nil || best.method != "b" || auc != .7 {
		t.Errorf("chose %s with %v, %v", best.method, auc, err)
	}
	if _, _, err := choose(candidates, measure(map[string]float64{"a": math.NaN()})); !fault.IsInput(err) {
		t.Errorf("one label: %v", err)
	}
	broken := errors.New("broken")
	if _, _, err := choose(candidates, func(candidate) (evaluate.Metrics, error) { return evaluate.Metrics{}, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

package job

import (
	"fmt"
	"testing"

	"shaver/internal/value/estimator"
)

// Each setting that changes a job's id is named, with both values.
func TestDifferences(t *testing.T) {
	plain := Spec{Model: "0123456789abcdef", Dataset: "d", Splits: []string{"train"}, Sample: 1, Baseline: "zero", Options: estimator.Options{Estimator: "permutation", Passes: 1}, Seed: 1, Kernel: "k"}
	if list := Differences(&plain, &plain); len(list) > 0 {
		t.Errorf("a job differs from itself in %v", list)
	}
	for want, change := range map[string]func(*Spec){
		"model 0123456789ab ff":             func(s *Spec) { s.Model = "ff" },
		"dataset d e":                       func(s *Spec) { s.Dataset = "e" },
		"splits train train,val":            func(s *Spec) { s.Splits = []string{"train", "val"} },
		"sample 1 0.5":                      func(s *Spec) { s.Sample = .5 },
		"baseline zero codebook":            func(s *Spec) { s.Baseline = "codebook" },
		"estimator permutation taylor":      func(s *Spec) { s.Estimator = "taylor" },
		"passes 1 3":                        func(s *Spec) { s.Passes = 3 },
		"seed 1 9":                          func(s *Spec) { s.Seed = 9 },
		"kernel k l":                        func(s *Spec) { s.Kernel = "l" },
		"until none paper 0.1":              func(s *Spec) { s.Until = &Until{Rule: Paper, Bound: .1} },
		"days 0 2":                          func(s *Spec) { s.Days = []string{"e", "f"} },
		"baseline values computed 0123":     func(s *Spec) { s.BaselineValues = "0123" },
		"previous scores none abcdef012345": func(s *Spec) { s.Previous = &Previous{Values: "abcdef0123456789", Generation: 1} },
		"audit 0 0.25":                      func(s *Spec) { s.Audit = .25 },
	} {
		other := plain
		change(&other)
		list := Differences(&plain, &other)
		if len(list) != 1 || fmt.Sprint(list[0].Name, " ", list[0].A, " ", list[0].B) != want {
			t.Errorf("%v, expected %s", list, want)
		}
	}
}

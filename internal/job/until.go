package job

import (
	"fmt"
	"slices"
	"strings"
)

// The rules by which a job ends before all its rows and passes are done.
const (
	// Paper is the rule of the paper's code: the largest standard error is below
	// Bound times the range of the values, and all rows had a pass.
	Paper = "paper"
	// Overlap: of the entries that pruning to Sparsity keeps, Bound are the same
	// by the first half of the work and by the second.
	Overlap = "overlap"
)

// Rules returns all of them.
func Rules() []string { return []string{Paper, Overlap} }

// Until says when a job ends before all its rows and passes are done. It looks at
// the sums where a round ends.
type Until struct {
	Rule     string  `json:"rule,omitempty"`     // one of Rules; "" = none but the time
	Bound    float64 `json:"bound,omitempty"`    // of Rule, (0, 1)
	Sparsity float64 `json:"sparsity,omitempty"` // of Overlap, (0, 1)
	// Seconds ends the job where the next round would end later, by the rate so
	// far; 0 = not. It makes the scores depend on more than the job.
	Seconds float64 `json:"seconds,omitempty"`
}

// MaxUntilPasses bounds the passes of a job with Until, whose plan has a round each.
const MaxUntilPasses = 256

// What Until has if nothing else is asked for.
const (
	PaperBound   = 0.01
	OverlapBound = 0.8
	AtSparsity   = 0.9
)

// SetDefaults sets what Rule needs and is not set.
func (u *Until) SetDefaults() {
	switch u.Rule {
	case Paper:
		if u.Bound == 0 {
			u.Bound = PaperBound
		}
	case Overlap:
		if u.Bound == 0 {
			u.Bound = OverlapBound
		}
		if u.Sparsity == 0 {
			u.Sparsity = AtSparsity
		}
	}
}

// Validate reports what no job with so many passes can have.
func (u *Until) Validate(passes int) error {
	portion := func(v float64) bool { return v > 0 && v < 1 }
	switch {
	case u.Rule != "" && !slices.Contains(Rules(), u.Rule):
		return fmt.Errorf("rule %q: the rules to stop by are %s", u.Rule, strings.Join(Rules(), ", "))
	case u.Rule == "" && u.Bound != 0:
		return fmt.Errorf("a bound of %g belongs to a rule to stop by, which is not given", u.Bound)
	case u.Rule != Overlap && u.Sparsity != 0:
		return fmt.Errorf("a sparsity of %g belongs to the rule %s, which is not given", u.Sparsity, Overlap)
	case u.Rule != "" && !portion(u.Bound):
		return fmt.Errorf("bound %g of the rule %s is outside (0, 1)", u.Bound, u.Rule)
	case u.Rule == Overlap && !portion(u.Sparsity):
		return fmt.Errorf("sparsity %g of the rule %s is outside (0, 1)", u.Sparsity, u.Rule)
	case !(u.Seconds >= 0) || u.Rule == "" && u.Seconds == 0:
		return fmt.Errorf("%g seconds to stop after: more than 0", u.Seconds)
	case passes > MaxUntilPasses:
		return fmt.Errorf("%d passes: a job that stops by a rule or in time takes at most %d", passes, MaxUntilPasses)
	}
	return nil
}

// Portioned reports whether there is anything to decide before all rows had a pass.
func (u *Until) Portioned() bool { return u.Rule == Overlap || u.Seconds > 0 }

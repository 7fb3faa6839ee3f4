package job

import (
	"fmt"
	"slices"
	"strings"
)

// The rules by which a job ends before all its rows and passes are done.
const (
	// Paper is the rule of the paper's code. The job ends when every row has had a pass
	// and the largest standard error is below Bound times the range of the values.
	Paper = "paper"
	// Overlap ends the job when the first and the second half of the work agree. They
	// agree if, when each half is used to prune to Sparsity, the two sets of kept entries
	// have more than the portion Bound in common.
	Overlap = "overlap"
	// Error ends the job when the root mean square of the standard errors is below Bound
	// times that of the values. In a paired job these are the errors as an estimate of
	// what a full job would compute.
	Error = "error"
)

// Rules returns the names of all rules.
func Rules() []string { return []string{Paper, Overlap, Error} }

// Until says when a job ends before all its rows and passes are done. It is applied to
// the sums at the end of each round.
type Until struct {
	Rule     string  `json:"rule,omitempty"`     // one of Rules; "" = only Seconds counts
	Bound    float64 `json:"bound,omitempty"`    // threshold of Rule, in (0, 1)
	Sparsity float64 `json:"sparsity,omitempty"` // sparsity for Overlap, in (0, 1)
	// Seconds ends the job if, at the rate so far, the next round would end after this
	// many seconds; 0 = no limit. With a limit, the scores depend on more than the job.
	Seconds float64 `json:"seconds,omitempty"`
}

// MaxUntilPasses bounds the passes of a job with Until, because its plan has a round for
// each pass.
const MaxUntilPasses = 256

// The defaults of Until.
const (
	PaperBound   = 0.01
	OverlapBound = 0.8
	AtSparsity   = 0.9
	ErrorBound   = 0.05
)

// SetDefaults gives every field that Rule needs and that is zero its default.
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
	case Error:
		if u.Bound == 0 {
			u.Bound = ErrorBound
		}
	}
}

// Validate reports settings that no job with that many passes can have.
func (u *Until) Validate(passes int) error {
	portion := func(v float64) bool { return v > 0 && v < 1 }
	switch {
	case u.Rule != "" && !slices.Contains(Rules(), u.Rule):
		return fmt.Errorf("rule %q: expected one of %s", u.Rule, strings.Join(Rules(), ", "))
	case u.Rule == "" && u.Bound != 0:
		return fmt.Errorf("a bound of %g needs a rule", u.Bound)
	case u.Rule != Overlap && u.Sparsity != 0:
		return fmt.Errorf("a sparsity of %g needs the rule %s", u.Sparsity, Overlap)
	case u.Rule != "" && !portion(u.Bound):
		return fmt.Errorf("bound %g of the rule %s is outside (0, 1)", u.Bound, u.Rule)
	case u.Rule == Overlap && !portion(u.Sparsity):
		return fmt.Errorf("sparsity %g of the rule %s is outside (0, 1)", u.Sparsity, u.Rule)
	case !(u.Seconds >= 0) || u.Rule == "" && u.Seconds == 0:
		return fmt.Errorf("%g seconds: expected more than 0", u.Seconds)
	case passes > MaxUntilPasses:
		return fmt.Errorf("%d passes: a job with a rule or a time limit may have at most %d", passes, MaxUntilPasses)
	}
	return nil
}

// Portioned reports whether the job may end before every row has had a pass.
func (u *Until) Portioned() bool { return u.Rule == Overlap || u.Rule == Error || u.Seconds > 0 }

package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"shaver/internal/scores"
)

// count writes an integer in groups of three digits.
func count[T int | int64](n T) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// percent writes a portion as a percentage.
func percent(p float64) string {
	switch v := 100 * p; {
	case v == 0 || v >= 9.95:
		return fmt.Sprintf("%.0f%%", v)
	case v >= .1:
		return fmt.Sprintf("%.1f%%", v)
	}
	return "<0.1%"
}

// rate writes a portion as a percentage with two decimals.
func rate(p float64) string { return fmt.Sprintf("%.2f%%", 100*p) }

// number writes a sparsity or a ratio with up to four digits.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// value writes a number of nat, or a dash for NaN.
func value(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// duration writes a number of seconds in seconds, minutes or hours.
func duration(seconds float64) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%.3g s", seconds)
	case seconds < 7200:
		return fmt.Sprintf("%.3g min", seconds/60)
	}
	return fmt.Sprintf("%.3g h", seconds/3600)
}

// coreTime returns the CPU time of a run in core-hours, or in core-seconds if it is short.
func coreTime(seconds float64, note string) fact {
	if seconds < 36 {
		return fact{"core-seconds", fmt.Sprintf("%.3g", seconds), note}
	}
	return fact{"core-hours", fmt.Sprintf("%.3g", seconds/3600), note}
}

// summary returns the facts at the top of the page.
func (f *Facts) summary() []fact {
	s := f.Scores
	all := []fact{{"rows scored", count(s.Rows), ""}, {"entries", count(len(s.Phi)), ""}}
	if f.Run != nil {
		note := ""
		if f.Run.Resumed {
			note = "at least"
		}
		all = append(all, coreTime(f.Run.CPUSeconds, note))
	}
	if d := f.Sweep; d != nil {
		if d.Unpruned.AUC != nil {
			all = append(all, fact{"AUC, unpruned", fmt.Sprintf("%.4f", *d.Unpruned.AUC), ""})
		}
		all = append(all, fact{"LogLoss, unpruned", fmt.Sprintf("%.4f nat", d.Unpruned.LogLoss), ""})
	}
	return all
}

// rankedBy explains each aggregate.
var rankedBy = map[string]string{
	scores.Sum: "|phi|, where phi is the mean contribution over rows",
	scores.Abs: "the mean over rows of the absolute contribution",
	scores.RMS: "the root mean square of the contribution over rows",
}

// job returns facts about the job: what determines the scores, and what computing them took.
func (f *Facts) job() []fact {
	s, spec := f.Scores, &f.Scores.Spec
	all := []fact{
		{"job", spec.ID(), ""},
		{"estimator", spec.Estimator, spec.Effort()},
		{"seed", strconv.FormatUint(spec.Seed, 10), ""},
		{"baseline", spec.Baseline, "the value of a dropped entry"},
		{"rows", count(s.Rows), fmt.Sprintf("of %s of %s", count(s.DatasetRows), strings.Join(spec.Splits, ", "))},
	}
	if s.QuarantinedRows > 0 {
		all = append(all, fact{"missing rows", count(s.QuarantinedRows), "in shards that could not be computed"})
	}
	off := "how much the sum of all values differs from the difference of the two mean losses"
	if s.EfficiencySE > 0 {
		off += "; its standard error is " + value(s.EfficiencySE) + " nat, and an error of more than twice that indicates bias"
	}
	all = append(all,
		fact{"kernel", spec.Kernel, "the arithmetic that computed the scores"},
		fact{"mean loss", fmt.Sprintf("%.6f nat", s.LossFull), fmt.Sprintf("%.6f nat with everything dropped", s.LossEmpty)},
		fact{"efficiency error", value(s.EfficiencyError) + " nat", off})
	if r := f.Run; r != nil {
		took := duration(r.CPUSeconds) + " of CPU time in " + duration(r.Seconds)
		if r.Resumed {
			took += ", not including an earlier run that was interrupted"
		}
		all = append(all,
			coreTime(r.CPUSeconds, took),
			fact{"shards", count(r.Shards), fmt.Sprintf("workers: %d", r.Workers)})
	}
	return append(all,
		fact{"ranked by", f.Aggregate, rankedBy[f.Aggregate]},
		fact{"model", spec.Model, "SHA-256"}, fact{"dataset", spec.Dataset, "SHA-256"}, fact{"scores", f.Digest, "SHA-256"})
}

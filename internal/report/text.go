package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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

// percent writes a portion.
func percent(p float64) string {
	switch v := 100 * p; {
	case v == 0 || v >= 9.95:
		return fmt.Sprintf("%.0f%%", v)
	case v >= .1:
		return fmt.Sprintf("%.1f%%", v)
	}
	return "<0.1%"
}

// rate writes a portion of which small differences count.
func rate(p float64) string { return fmt.Sprintf("%.2f%%", 100*p) }

// number writes four digits, as sparsities and ratios have.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// value writes an amount of nat.
func value(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// duration writes seconds as a person would.
func duration(seconds float64) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%.3g s", seconds)
	case seconds < 7200:
		return fmt.Sprintf("%.3g min", seconds/60)
	}
	return fmt.Sprintf("%.3g h", seconds/3600)
}

// coreTime is what a run cost: in core-hours, or in seconds where those would be a
// number nobody reads.
func coreTime(seconds float64, note string) fact {
	if seconds < 36 {
		return fact{"core-seconds", fmt.Sprintf("%.3g", seconds), note}
	}
	return fact{"core-hours", fmt.Sprintf("%.3g", seconds/3600), note}
}

// summary is what stands first.
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

// job is what decides the scores, and what they took.
func (f *Facts) job() []fact {
	s, spec := f.Scores, &f.Scores.Spec
	all := []fact{
		{"job", spec.ID(), ""},
		{"estimator", spec.Estimator, spec.Effort()},
		{"seed", strconv.FormatUint(spec.Seed, 10), ""},
		{"baseline", spec.Baseline, "what a dropped entry reads"},
		{"rows", count(s.Rows), fmt.Sprintf("of %s of %s", count(s.DatasetRows), strings.Join(spec.Splits, ", "))},
	}
	if s.QuarantinedRows > 0 {
		all = append(all, fact{"missing rows", count(s.QuarantinedRows), "in shards that could not be computed"})
	}
	off := "how far the values sum off the difference of the two losses"
	if s.EfficiencySE > 0 {
		off += "; its standard error is " + value(s.EfficiencySE) + ", and what is beyond two of it is bias"
	}
	all = append(all,
		fact{"kernel", spec.Kernel, "the arithmetic that computed it"},
		fact{"mean loss", fmt.Sprintf("%.6f nat", s.LossFull), fmt.Sprintf("%.6f nat with everything dropped", s.LossEmpty)},
		fact{"efficiency error", value(s.EfficiencyError) + " nat", off})
	if r := f.Run; r != nil {
		took := duration(r.CPUSeconds) + " of CPU within " + duration(r.Seconds)
		if r.Resumed {
			took += ", and what an earlier run took that was cut off"
		}
		all = append(all,
			coreTime(r.CPUSeconds, took),
			fact{"shards", count(r.Shards), fmt.Sprintf("workers: %d", r.Workers)})
	}
	return append(all,
		fact{"ranked by", f.Aggregate, f.symbol()},
		fact{"model", spec.Model, "SHA-256"}, fact{"dataset", spec.Dataset, "SHA-256"}, fact{"scores", f.Digest, "SHA-256"})
}

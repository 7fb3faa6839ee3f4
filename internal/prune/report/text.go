package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
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
	case math.IsNaN(v):
		return "-"
	case v == 0 || v >= 9.95:
		return fmt.Sprintf("%.0f%%", v)
	case v >= .1:
		return fmt.Sprintf("%.1f%%", v)
	}
	return "<0.1%"
}

// dropped writes a sparsity as a percentage, and says 100% only if nothing is left.
func dropped(p float64) string {
	if v := 100 * p; v >= 99.5 && v < 100 {
		return fmt.Sprintf("%.6g%%", min(v, 99.9999))
	}
	return percent(p)
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

// decimal writes a metric with four decimals, or a dash for NaN.
func decimal(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.4f", v)
}

// signed writes a difference of a metric with its sign.
func signed(v float64) string {
	text := fmt.Sprintf("%+.4f", v)
	switch {
	case strings.Trim(text, "+-0.") == "":
		return "0.0000"
	case v < 0:
		return "−" + text[1:]
	}
	return text
}

// size writes a number of bytes in binary units, as the commands do, or a dash if it is
// unknown.
func size(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	v := float64(*bytes)
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		switch {
		case unit == "B" && v < 1024, v >= 9.95 && v < 999.5:
			return fmt.Sprintf("%.0f %s", v, unit)
		case v < 9.95:
			return fmt.Sprintf("%.1f %s", v, unit)
		}
		v /= 1024
	}
	return fmt.Sprintf("%.0f TiB", v)
}

// list joins words by commas and "and".
func list(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}

// capital returns text with a capital letter at its start.
func capital(text string) string {
	r, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(r)) + text[size:]
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

// summary returns the facts at the top of the page.
func (f *Facts) summary() []fact {
	s := f.Scores
	players := fact{"entries", count(len(f.Entries)), ""}
	if s.Spec.OfFields() {
		players = fact{"fields", count(len(s.Fields)), ""}
	}
	all := []fact{{"rows scored", count(s.Rows), ""}, players, {"estimator", s.Spec.Estimator, ""}, {"baseline", s.Spec.Baseline, ""}}
	if r := f.Run; r != nil {
		took := duration(r.Seconds)
		if r.Resumed {
			took = "at least " + took
		}
		all = append(all, fact{"time of the job", took, ""})
		if !r.Finished.IsZero() {
			all = append(all, fact{"finished", r.Finished.UTC().Format("2006-01-02 15:04 UTC"), ""})
		}
	}
	return all
}

// rankedBy explains each aggregate.
var rankedBy = map[string]string{
	scores.Sum: "|phi|, where phi is the mean contribution over rows",
	scores.Abs: "the mean over rows of the absolute contribution",
	scores.RMS: "the root mean square of the contribution over rows",

	scores.ByPath: "the order in which the path dropped the entries; it is not a Shapley value",
}

// summed names the aggregate of an entry in a sum over the entries of a feature.
var summed = map[string]string{scores.Sum: "the values", scores.Abs: "the mean absolute contributions", scores.RMS: "the root mean squares of the contributions"}

// job returns facts about the job: what determines the scores, and what computing them took.
func (f *Facts) job() []fact {
	s, spec, replaced := f.Scores, &f.Scores.Spec, "the value of a dropped entry"
	if spec.OfFields() {
		replaced = "the value of an absent field"
	}
	if words := s.WordsText(&s.Baseline); words != "" {
		replaced += ", one of several: " + words
	}
	all := []fact{
		{"job", spec.ID(), ""},
		{"estimator", spec.Estimator, spec.Effort()},
		{"seed", strconv.FormatUint(spec.Seed, 10), ""},
		{"baseline", spec.Baseline, replaced},
		{"rows", count(s.Rows), fmt.Sprintf("of %s of %s", count(s.DatasetRows), strings.Join(spec.Splits, ", "))},
	}
	upTo := ""
	if spec.Tasks != nil { // rows lack labels
		upTo = "at most "
		all = append(all, fact{"tasks", oneLine(model.TasksText(spec.Tasks)), "labels with the weights of their losses"})
	}
	if f := spec.Fresh; f != nil {
		all = append(all, fact{"fresh rows", upTo + count(f.Count()), fmt.Sprintf("on which the model was not trained; each counts %d times", f.Weight)})
	}
	if most := spec.LargestWeight; most > 0 {
		all = append(all, fact{"weights", count(s.Weight), fmt.Sprintf("sum of the weights of the rows, which are at most %s", count(most))})
	}
	if s.QuarantinedRows > 0 {
		all = append(all, fact{"missing rows", count(s.QuarantinedRows), "in shards that could not be computed"})
	}
	if s.Walked > 0 {
		all = append(all, fact{"rows by walks", count(s.Walked), scores.WalkedNote})
	}
	off := "how much the sum of all values differs from the difference of the two mean losses"
	if s.EfficiencySE > 0 {
		off += "; its standard error is " + value(s.EfficiencySE) + " nat, and an error of more than twice that indicates bias"
	}
	all = append(all, fact{"kernel", spec.Kernel, "the arithmetic that computed the scores"})
	if s.Ranks() {
		all = append(all, fact{"mean loss", fmt.Sprintf("%.6f nat", s.LossFull), ""})
	} else {
		all = append(all,
			fact{"mean loss", fmt.Sprintf("%.6f nat", s.LossFull), fmt.Sprintf("%.6f nat with everything dropped", s.LossEmpty)},
			fact{"efficiency error", value(s.EfficiencyError) + " nat", off})
	}
	if r := f.Run; r != nil {
		note := ""
		if r.Resumed {
			note = "not including an earlier run that was interrupted"
		}
		all = append(all,
			fact{"time", duration(r.Seconds), note},
			fact{"CPU time", duration(r.CPUSeconds), note},
			fact{"shards", count(r.Shards), ""}, fact{"workers", count(r.Workers), ""})
		if !r.Finished.IsZero() {
			all = append(all, fact{"finished", r.Finished.UTC().Format(time.RFC3339), ""})
		}
		if r.Program != "" {
			all = append(all, fact{"scored by", r.Program, ""})
		}
	}
	if f.Program != "" {
		all = append(all, fact{"page by", f.Program, ""})
	}
	if !s.Spec.OfFields() {
		all = append(all, fact{"ranked by", f.Aggregate, rankedBy[f.Aggregate]})
	}
	all = append(all, tableFacts(f.Tables)...)
	return append(all,
		fact{"model", spec.Model, "SHA-256"}, fact{"dataset", spec.Dataset, "SHA-256"}, fact{"scores", f.Digest, "SHA-256"})
}

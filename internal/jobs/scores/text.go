package scores

import (
	"fmt"
	"io"

	"shaver/internal/jobs/job"
)

// WriteTable writes the audit as lines of a table. Tabs separate the cells.
func (a *Audit) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "audit\t%d rows\t%d entries, compared with %s\n", a.Rows, a.Entries, a.Reference)
	fmt.Fprintf(w, "  relative RMS\t%s\tincluding noise\n", FigureText(a.RelativeRMS))
	fmt.Fprintf(w, "  bias\t%s\texcluding noise; up to %s may be chance\n", FigureText(a.RelativeBias), FigureText(a.BiasNoise))
	fmt.Fprintf(w, "  Spearman\t%s\t%s on one half of the rows and on the other half: %s\n", FigureText(a.Spearman), a.Reference, FigureText(a.ReferenceSpearman))
	for _, o := range a.Overlaps {
		fmt.Fprintf(w, "  overlap at %g\t%.3f\t%.3f\n", o.Sparsity, o.Overlap, o.Reference)
	}
}

// FigureText returns v with three decimals, or "undefined" if it is nil.
func FigureText(v *float64) string {
	if v == nil {
		return "undefined"
	}
	return fmt.Sprintf("%.3f", *v)
}

// Text says in words how the job ended. until is the job's rule; it may be nil if Figure is
// nil.
func (s *Stopped) Text(until *job.Until) string {
	why := map[string]string{RuleMet: "the rule is met", TimeOver: "the time is over", AllDone: "all rows and passes are done"}[s.Reason]
	text := why + " after " + counted(s.Rounds, "round", "rounds")
	if s.Passes > 1 {
		text += fmt.Sprintf(", %d passes", s.Passes)
	}
	if s.Figure != nil {
		text += fmt.Sprintf("; %s %.3g, bound %g", until.Rule, *s.Figure, until.Bound)
	}
	return text
}

// WalkedNote explains the number of rows of tally.Result.Walked.
const WalkedNote = "with values too large; they have those of walks instead"

// WriteEfficiency writes an efficiency error and its standard error, unless that is 0, as a line of
// a table. bias is the result of Bias, and warning that of File.Warning; each that is not "" gets a
// line more.
func WriteEfficiency(w io.Writer, efficiencyError, se float64, bias, warning string) {
	text := fmt.Sprintf("%.3g", efficiencyError)
	if se != 0 {
		text += fmt.Sprintf("\tstandard error %.2g", se)
	}
	fmt.Fprintf(w, "efficiency error\t%s\n", text)
	if bias != "" {
		fmt.Fprintf(w, "\t\t%s\n", bias)
	}
	if warning != "" {
		fmt.Fprintf(w, "warning\t%s\n", warning)
	}
}

// Effort describes in words how much work a job does for each row.
func Effort(s *job.Spec) string {
	effort := s.Options.Effort()
	if s.Until != nil {
		effort += " at most"
	}
	return effort
}

func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", more)
}

package benchmark

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"shaver/internal/prune/sweep"
)

// Mean combines the repeats of a line.
type Mean struct {
	Line
	Models       int          // number of repeats with a model
	AUC, LogLoss sweep.Spread // NaN without a model, or if it is undefined for one
	Parameters   float64      // means over the models
	Bytes        float64
	Seconds      float64 // mean processor time of a model, with the scoring that it needs
	Resumed      bool    // whether a part of this time is missing
}

// MeanOf returns the mean of the repeats of a line.
func (d *Document) MeanOf(l Line) Mean {
	m := Mean{Line: l}
	var auc, logLoss []float64
	for i := range d.Results {
		r := &d.Results[i]
		if r.Line != l {
			continue
		}
		if r.Failed != "" {
			continue
		}
		m.Seconds += r.Seconds
		m.Resumed = m.Resumed || r.Resumed
		if s := d.scoringOf(r); s != nil {
			m.Seconds += s.Seconds
			m.Resumed = m.Resumed || s.Resumed
		}
		m.Models++
		m.Parameters += float64(r.Parameters)
		m.Bytes += float64(r.Bytes)
		logLoss = append(logLoss, r.LogLoss)
		if r.AUC != nil {
			auc = append(auc, *r.AUC)
		}
	}
	if len(auc) == len(logLoss) {
		m.AUC = sweep.SpreadOf(auc)
	} else {
		m.AUC = sweep.SpreadOf(nil)
	}
	m.LogLoss = sweep.SpreadOf(logLoss)
	m.Parameters /= float64(m.Models)
	m.Bytes /= float64(m.Models)
	m.Seconds /= float64(m.Models)
	return m
}

// scoringOf returns the scoring on which a result depends, or nil if it depends on none.
func (d *Document) scoringOf(r *Result) *Scoring {
	for i := range d.Scorings {
		s := &d.Scorings[i]
		if s.Kind != r.Kind || s.Seed != r.Seed {
			continue
		}
		taylor := r.Method == SSEDS || r.Method == SNIP
		if taylor && s.Estimator == taylorEstimator && s.Initial == (r.Method == SNIP) || r.Baseline != "" && s.Estimator != taylorEstimator && (s.Estimator == pathEstimator) == (r.Method == Path) && s.Baseline == r.Baseline {
			return s
		}
	}
	return nil
}

// The names of the estimators of SNIP and SSEDS, and of Path.
const (
	taylorEstimator = "taylor"
	pathEstimator   = "path"
)

// WriteTable writes a table of the results of each kind of model, and a summary of it. Columns
// are separated by tabs.
func (d *Document) WriteTable(w io.Writer) {
	for i, kind := range d.Kinds() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "SPARSITY\tMETHOD (%s)\tAUC\tLOGLOSS\tPARAMETERS\tFILE\tSEEDS\tTIME\tSEARCH\n", kind)
		for _, l := range d.Lines(kind) {
			m := d.MeanOf(l)
			search := "-"
			if s := d.FindSearch(l.Kind, l.Method, l.Sparsity); s != nil {
				search = fmt.Sprintf("%s for %d trials", spent(s.Seconds, s.Resumed), s.Trials)
			}
			parameters, bytes, time := "-", "-", "-"
			if m.Models > 0 {
				parameters, bytes, time = fmt.Sprintf("%.0f", m.Parameters), fmt.Sprintf("%.2f MB", m.Bytes/1e6), spent(m.Seconds, m.Resumed)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", sparsityText(l.Sparsity), &l, m.AUC, m.LogLoss, parameters, bytes, m.Models, time, search)
		}
		d.writeFailures(w, kind)
		d.writeSummary(w, kind)
	}
}

// spent returns a time as text. resumed means that a part of it is missing.
func spent(seconds float64, resumed bool) string {
	if resumed {
		return "over " + Duration(seconds)
	}
	return Duration(seconds)
}

// Duration returns a number of seconds as text for people.
func Duration(seconds float64) string {
	switch {
	case seconds < 10:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds < 600:
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.0f min", seconds/60)
}

// writeFailures writes why some results have no model.
func (d *Document) writeFailures(w io.Writer, kind string) {
	for i := range d.Results {
		if r := &d.Results[i]; r.Kind == kind && r.Failed != "" {
			fmt.Fprintf(w, "no %s at %s with seed %d: %s\n", &r.Line, sparsityText(r.Sparsity), r.Seed, r.Failed)
		}
	}
}

// Best returns the mean with the highest AUC among the lines of a kind and a sparsity that
// belong to a group. It returns nil without any.
func (d *Document) Best(kind string, sparsity float64, group func(*Line) bool) (best *Mean) {
	for _, l := range d.Lines(kind) {
		if l.Sparsity != sparsity || !group(&l) {
			continue
		}
		if m := d.MeanOf(l); !math.IsNaN(m.AUC.Mean) && (best == nil || m.AUC.Mean > best.AUC.Mean) {
			best = &m
		}
	}
	return best
}

// The groups of lines that the summary compares.
func singleShot(l *Line) bool { return l.SingleShot() }
func tuned(l *Line) bool      { return l.Tuned }
func masked(l *Line) bool     { return l.Method == SNIP || l.Method == SSEDS }
func small(l *Line) bool      { return slices.Contains(Tables(), l.Method) }

// writeSummary writes the best line of each group at each sparsity. The paper claims that
// single-shot pruning is at least as good as trained tables in most cases.
func (d *Document) writeSummary(w io.Writer, kind string) {
	var sparsities []float64
	for _, l := range d.Lines(kind) {
		if l.Method != Full && !slices.Contains(sparsities, l.Sparsity) {
			sparsities = append(sparsities, l.Sparsity)
		}
	}
	if len(sparsities) == 0 {
		return
	}
	fmt.Fprintf(w, "\nSPARSITY\tBEST SINGLE-SHOT\tBEST TUNED\tBEST OF SNIP AND SSEDS\tBEST TRAINED TABLE\n")
	for _, sparsity := range sparsities {
		fmt.Fprint(w, sparsityText(sparsity))
		for _, group := range []func(*Line) bool{singleShot, tuned, masked, small} {
			cell := "-"
			if best := d.Best(kind, sparsity, group); best != nil {
				best.Tuned = false // the column says so
				cell = fmt.Sprintf("%s %s", best.AUC, &best.Line)
			}
			fmt.Fprintf(w, "\t%s", cell)
		}
		fmt.Fprintln(w)
	}
}

func sparsityText(sparsity float64) string { return strconv.FormatFloat(sparsity, 'g', -1, 64) }

package benchmark

import (
	"fmt"
	"io"
	"math"

	"shaver/internal/prune/sweep"
)

// Sweep returns the results of a kind as a sweep of models that are measured as they are, in which the results of a line are
// repeats. The unpruned model has the mean metrics of the models with the full table.
func (d *Document) Sweep(kind string) *sweep.Document {
	s := &sweep.Document{Version: sweep.ModelsVersion, Dataset: d.Dataset, Kind: kind, Split: "test", Rows: d.Rows.Test}
	full, auc, logLoss := 0., 0., 0.
	for _, l := range d.Lines(kind) {
		for i := range d.Results {
			r := &d.Results[i]
			switch {
			case r.Line != l || r.Failed != "":
			case l.Method == Full:
				s.Entries, full, logLoss = r.Parameters, full+1, logLoss+r.LogLoss
				if r.AUC != nil {
					auc += *r.AUC
					s.Unpruned.AUC = new(auc / full)
				}
				s.Unpruned.LogLoss = new(logLoss / full)
			default:
				s.Points = append(s.Points, sweep.Point{
					Method: l.String(), Model: new(len(s.Models)), Sparsity: l.Sparsity, Parameters: r.Parameters,
					Measure: sweep.Measure{Metrics: sweep.Metrics{AUC: r.AUC, LogLoss: &r.LogLoss}},
				})
				s.Models = append(s.Models, sweep.ModelFile{Training: fmt.Sprint(l), Seed: &r.Seed, Sparsity: l.Sparsity})
			}
		}
	}
	if s.Unpruned.LogLoss == nil { // no full table could be trained
		s.Unpruned.LogLoss = new(math.NaN())
	}
	return s
}

// WriteTable writes for each kind the table of its sweep, and why results have no model. Columns are separated by tabs.
func (d *Document) WriteTable(w io.Writer) {
	for i, kind := range d.Kinds() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, kind)
		d.Sweep(kind).WriteTable(w)
		for i := range d.Results {
			if r := &d.Results[i]; r.Kind == kind && r.Failed != "" {
				fmt.Fprintf(w, "no %s at %v with seed %d: %s\n", &r.Line, r.Sparsity, r.Seed, r.Failed)
			}
		}
	}
}

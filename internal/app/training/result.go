package training

import (
	"fmt"
	"io"

	"shaver/internal/app/cli"
	"shaver/internal/click/train"
)

// Result is what "train" and "tune" print.
type Result struct {
	Out     string        `json:"out"`
	Rows    int64         `json:"rows"`
	Best    int           `json:"best"`              // number of the epoch whose model is at Out, or of the trial from 1
	Find    []FindEpoch   `json:"find,omitempty"`    // epochs in which the entries to keep were found
	Kept    int           `json:"kept,omitempty"`    // number of these entries
	History []train.Epoch `json:"history,omitempty"` // absent with a search
	Trials  []Trial       `json:"trials,omitempty"`
}

// BestEpoch returns the epoch whose model was written, or nil with a search.
func (r *Result) BestEpoch() *train.Epoch { return bestOf(r.History, r.Best) }

// WriteTable writes the epochs or the trials.
func (r *Result) WriteTable(w io.Writer) {
	if r.Trials != nil {
		r.search(w)
		return
	}
	fmt.Fprintf(w, "EPOCH\tLOSS\tVALIDATION AUC\tLOGLOSS\t\n")
	for _, e := range r.Find {
		auc, logLoss, note := "-", "-", ""
		if e.Validation != nil {
			auc, logLoss = cli.Metric(e.Validation.AUC), cli.Metric(&e.Validation.LogLoss)
		}
		if e.Remaining > 0 {
			note = fmt.Sprintf("%d entries left", e.Remaining)
		}
		fmt.Fprintf(w, "find %d\t%.6f\t%s\t%s\t%s\n", e.Number, *e.Loss, auc, logLoss, note)
	}
	for _, e := range r.History {
		Settings, auc, logLoss, best := "-", "-", "-", ""
		if e.Loss != nil {
			Settings = fmt.Sprintf("%.6f", *e.Loss)
		}
		if e.Validation != nil {
			auc, logLoss = cli.Metric(e.Validation.AUC), cli.Metric(&e.Validation.LogLoss)
		}
		if e.Number == r.Best {
			best = "written to " + r.Out
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", e.Number, Settings, auc, logLoss, best)
	}
}

// search writes the trials of a search.
func (r *Result) search(w io.Writer) {
	fmt.Fprintf(w, "TRIAL\tLEARNING RATE\tWEIGHT DECAY\tDROPOUT\tEPOCHS\tVALIDATION AUC\tLOGLOSS\t\n")
	for i, t := range r.Trials {
		auc, logLoss, note := "-", "-", ""
		if t.Best != nil {
			auc, logLoss = cli.Metric(t.Best.Validation.AUC), cli.Metric(&t.Best.Validation.LogLoss)
		}
		switch {
		case i+1 == r.Best:
			note = fmt.Sprintf("epoch %d written to %s", t.Best.Number, r.Out)
		default:
			note = t.reason()
		}
		fmt.Fprintf(w, "%d\t%g\t%g\t%g\t%d\t%s\t%s\t%s\n", i+1, t.LearningRate, t.WeightDecay, t.Dropout, t.Epochs, auc, logLoss, note)
	}
}

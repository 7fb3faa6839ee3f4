// Package gate decides whether a pruned model predicts well enough to replace its model.
package gate

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/evaluate"
	"shaver/internal/num/loss"
	"shaver/internal/prune/sweep"
)

// The versions of the format of a Document.
const (
	Version        = "shaver.check/1"
	SquaredVersion = "shaver.check/2" // the loss is squared
)

// Bounds says how much worse than its model a pruned model may be.
type Bounds struct {
	AUCDrop     float64 // largest drop of the AUC, in [0, 1]
	LogLossRise float64 // largest rise of the LogLoss, nat, finite and at least 0
	RMSERise    float64 // largest rise of the RMSE with the squared loss, finite and at least 0
	// Confident demands that the whole 95% intervals of the differences lie within the
	// bounds. Otherwise the differences on the rows decide.
	Confident bool
}

// DefaultBounds are the bounds of a check that names none.
var DefaultBounds = Bounds{AUCDrop: .001, LogLossRise: .001, RMSERise: .001}

// Check returns wrong usage for a bound that is out of range.
func (b *Bounds) Check() error {
	if !(b.AUCDrop >= 0 && b.AUCDrop <= 1) {
		return fault.Refuse("max-auc-drop", b.AUCDrop, "expected a number from 0 to 1")
	}
	for _, rise := range []struct {
		name  string
		bound float64
	}{{"max-logloss-rise", b.LogLossRise}, {"max-rmse-rise", b.RMSERise}} {
		if !(rise.bound >= 0) || math.IsInf(rise.bound, 0) {
			return fault.Refuse(rise.name, rise.bound, "expected a finite number of at least 0")
		}
	}
	return nil
}

// within returns the bound, if it is the same for all metrics of the log loss.
func (b *Bounds) within() []float64 {
	if b.AUCDrop == b.LogLossRise && sweep.CheckBounds(b.AUCDrop) == nil {
		return []float64{b.AUCDrop}
	}
	return nil
}

// Document is the result of a check. Decide does not set the digests, Dataset and Split.
type Document struct {
	Version   string       `json:"version"`
	Passed    bool         `json:"passed"`
	Reason    string       `json:"reason"`          // why, as sentences
	Confident bool         `json:"confident"`       // Bounds.Confident
	Model     string       `json:"model"`           // SHA-256 of the model
	Pruned    string       `json:"pruned"`          // SHA-256 of the pruned model with its whole table
	Dataset   string       `json:"dataset"`         // SHA-256 of the dataset's manifest
	Split     string       `json:"split"`           // split on which both models are measured
	Rows      int64        `json:"rows"`            // number of rows of this split
	Group     *sweep.Group `json:"group,omitempty"` // nil = the rows are not grouped
	Doubt     string       `json:"doubt,omitempty"` // of the model's predictions: evaluate.Predictions.Doubt
	// Worthless reports whether the model has a Doubt and ranks the rows worse than chance, so that it was probably measured on
	// other labels, fields or ids than those of its training. The check then fails.
	Worthless bool `json:"worthless,omitempty"`
	// The metrics of the log loss are AUC and LogLoss, in nat. That of the squared loss is RMSE.
	AUC     *Metric `json:"auc,omitempty"`
	GAUC    *Metric `json:"gauc,omitempty"` // in place of AUC, with the bound of AUC, if the rows are grouped
	LogLoss *Metric `json:"log_loss,omitempty"`
	RMSE    *Metric `json:"rmse,omitempty"`
	// Tasks judge the rows of each task, if there are several. The metrics above have the means of their AUCs, the loss of all rows, and
	// the worst differences, so they pass if those of all tasks do.
	Tasks []Task `json:"tasks,omitempty"`
	// Answer is the ladder of the pruned table, as a sweep that measures only this table has it. It is nil in documents of older programs.
	Answer *sweep.Answer `json:"answer,omitempty"`
}

// Task has the metrics of a task.
type Task struct {
	Task    string  `json:"task"` // its label
	Rows    int64   `json:"rows"`
	AUC     *Metric `json:"auc,omitempty"` // as in Document
	GAUC    *Metric `json:"gauc,omitempty"`
	LogLoss *Metric `json:"log_loss"`
}

// Metric compares both models by one metric.
type Metric struct {
	Model      float64        `json:"model"`
	Pruned     float64        `json:"pruned"`
	Difference sweep.Interval `json:"difference"` // of the pruned model minus the model
	Bound      float64        `json:"bound"`      // largest drop of the AUC, or rise of another metric, that is allowed
	Passed     bool           `json:"passed"`
	// Certain reports whether all of the interval is within the bound, or all of it outside.
	// It is false if the rows do not determine the interval.
	Certain bool `json:"certain"`
}

// Written reports whether the file at path was written by shaver check --out.
func Written(path string) bool {
	return bytes.HasPrefix(files.Beginning(path, 64), []byte("{\n  \"version\": \"shaver.check/"))
}

// Decide judges the only point of a sweep. The rows must have labels of both kinds unless the loss is squared. model has the
// predictions of the unpruned model.
func Decide(b Bounds, measured *sweep.Document, model *evaluate.Predictions) *Document {
	was, is := &measured.Unpruned, &measured.Points[0]
	d := &Document{Version: Version, Group: measured.Group, Confident: b.Confident, Rows: measured.Rows, Doubt: measured.Doubt, Answer: measured.Ladder(b.within()...)}
	if measured.Loss == loss.Squared {
		d.Version = SquaredVersion
		d.RMSE = &Metric{Model: was.Loss(), Pruned: is.Loss(), Difference: *is.Difference.Loss(), Bound: b.RMSERise}
	} else {
		d.compare(b, &was.Metrics, &is.Metrics, is.Difference)
		d.Worthless = d.Doubt != "" && worthless(model, *was.AUC)
	}
	d.Passed = d.judge(b)
	for k := range measured.Slices {
		if of := &measured.Slices[k]; of.Task != "" {
			t := Document{Group: d.Group}
			t.compare(b, &was.Slices[k].Metrics, &is.Slices[k].Metrics, is.Slices[k].Difference)
			t.judge(b)
			d.Tasks = append(d.Tasks, Task{of.Task, of.Rows, t.AUC, t.GAUC, t.LogLoss})
		}
	}
	d.Passed = d.Passed && d.doubtful() == ""
	d.Reason = d.reason()
	return d
}

// compare sets the metrics of the log loss.
func (d *Document) compare(b Bounds, was, is *sweep.Metrics, off *sweep.Differences) {
	auc := &Metric{Model: *was.JudgedAUC(), Pruned: *is.JudgedAUC(), Difference: *off.JudgedAUC(), Bound: b.AUCDrop}
	if d.AUC = auc; d.Group != nil {
		d.AUC, d.GAUC = nil, auc
	}
	d.LogLoss = &Metric{Model: was.Loss(), Pruned: is.Loss(), Difference: *off.Loss(), Bound: b.LogLossRise}
}

// judge judges each metric, and reports whether all pass.
func (d *Document) judge(b Bounds) bool {
	passed := true
	for _, m := range d.metrics() {
		within := m.worse <= m.Bound
		m.Certain = m.known && (within && m.worst <= m.Bound || !within && m.best > m.Bound)
		m.Passed = within && (m.Certain || !b.Confident)
		passed = passed && m.Passed
	}
	return passed
}

// decline is a metric with its difference in the direction in which a model gets worse.
type decline struct {
	*Metric
	name, worsens, improves string
	worse                   float64 // by how much the pruned model is worse
	known                   bool    // whether the interval is known
	best, worst             float64 // the ends of the interval of worse, if it is known
}

func (d *Document) metrics() []decline {
	if d.RMSE != nil {
		return []decline{rise("RMSE", d.RMSE)}
	}
	auc := decline{Metric: d.AUC, name: "AUC", worsens: "falls", improves: "rises"}
	if d.GAUC != nil {
		auc.Metric, auc.name = d.GAUC, "GAUC"
	}
	auc.worse = -auc.Difference.Value
	if i := auc.Difference; i.Low != nil && i.High != nil {
		auc.known, auc.best, auc.worst = true, -*i.High, -*i.Low
	}
	return []decline{auc, rise("LogLoss", d.LogLoss)}
}

// rise returns the decline of a metric that is the better the lower it is.
func rise(name string, m *Metric) decline {
	d := decline{Metric: m, name: name, worsens: "rises", improves: "falls", worse: m.Difference.Value}
	if i := m.Difference; i.Low != nil && i.High != nil {
		d.known, d.best, d.worst = true, *i.Low, *i.High
	}
	return d
}

// worthless reports whether the AUC of predictions is lower than that of 97.5% of random orders of the rows. Such an AUC has the
// mean .5 and the variance (n + m + 1) / 12nm, where n and m are the numbers of rows with each label.
func worthless(p *evaluate.Predictions, auc float64) bool {
	n := 0.0
	for _, y := range p.Labels {
		n += float64(y)
	}
	m := float64(len(p.Labels)) - n
	return auc < .5-1.96*math.Sqrt((n+m+1)/(12*n*m))
}

// doubtful is why a check fails whatever its metrics are, as a part of a sentence, or "". A model of which only the calibration
// is off has a Doubt too, and is not worthless.
func (d *Document) doubtful() string {
	if !d.Worthless {
		return ""
	}
	if d.AUC == nil {
		return "the model ranks the rows worse than chance and " + d.Doubt
	}
	return fmt.Sprintf("the model has an AUC of %.6f and %s", d.AUC.Model, d.Doubt)
}

// Failure says why the check fails, by which metrics or because the whole model is worthless, as a part of a sentence. It is
// empty if the pruned model passes.
func (d *Document) Failure() string {
	var all []string
	if text := d.doubtful(); text != "" {
		all = append(all, text)
	}
	for _, m := range d.metrics() {
		if !m.Passed {
			all = append(all, m.text(d.Confident))
		}
	}
	return strings.Join(all, "; ")
}

// Refuted reports whether the rows show that the pruned model, as it is served, is worse than allowed: a whole interval is outside its
// bound, or the model is worthless.
func (d *Document) Refuted() bool {
	return d.doubtful() != "" || slices.ContainsFunc(d.metrics(), func(m decline) bool { return m.worse > m.Bound && m.Certain })
}

// text says how the metric changes and what is allowed. confident is Bounds.Confident.
func (m *decline) text(confident bool) string {
	switch {
	case m.worse < 0:
		s := fmt.Sprintf("the %s %s by %.6f", m.name, m.improves, -m.worse)
		if confident && !m.Certain {
			return s + m.reach(true)
		}
		return s
	case m.worse == 0 && m.Passed:
		return fmt.Sprintf("the %s stays the same", m.name)
	case confident && !m.Certain && m.worse <= m.Bound:
		return fmt.Sprintf("the %s %s by %.6f", m.name, m.worsens, m.worse) + m.reach(false)
	}
	return fmt.Sprintf("the %s %s by %.6f, and at most %s is allowed", m.name, m.worsens, m.worse, bound(m.Bound))
}

// reach says how far the interval reaches, as the end of a sentence. better says that the
// sentence is about an improvement.
func (m *decline) reach(better bool) string {
	if !m.known {
		return ", but the rows do not determine its 95% interval"
	}
	what := "and its 95% interval reaches"
	if better {
		what = "but its 95% interval reaches a " + map[string]string{"falls": "fall", "rises": "rise"}[m.worsens] + " of"
	}
	return fmt.Sprintf(", %s %.6f, where at most %s is allowed", what, m.worst, bound(m.Bound))
}

// bound returns a bound as people type it.
func bound(v float64) string { return fmt.Sprintf("%g", v) }

// reason returns Reason.
func (d *Document) reason() string {
	verdict := "fails"
	if d.Passed {
		verdict = "passes"
	}
	var parts, doubts []string
	needed := 0.0
	if text := d.doubtful(); text != "" {
		parts = append(parts, text)
	}
	for _, m := range d.metrics() {
		parts = append(parts, m.text(d.Confident))
		if m.Certain {
			continue
		}
		doubts = append(doubts, m.name)
		if m.known {
			needed = max(needed, sweep.Needed(d.Rows, m.worse, m.worst, m.Bound))
		} else {
			needed = math.Inf(1)
		}
	}
	text := fmt.Sprintf("The pruned model %s: %s.", verdict, strings.Join(parts, "; "))
	switch {
	case len(doubts) == 0 && d.Passed:
		return text + " The 95% intervals are within the bounds."
	case len(doubts) == 0:
		return text + " The 95% intervals do not contain the bounds."
	}
	text += fmt.Sprintf(" The %d rows do not decide with 95%% confidence on which side of the bound the %s is", d.Rows, strings.Join(doubts, ", nor on which the "))
	if needed > 1e12 {
		return text + "."
	}
	return text + fmt.Sprintf("; about %s rows would, if the differences stay.", sweep.Round(needed))
}

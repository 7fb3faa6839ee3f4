// Package sweep compares single-shot pruning methods. Each method makes a smaller table at
// each of several budgets, and the model is measured with each table. The result is one
// JSON document, from which tables, pictures and reports are made.
package sweep

import (
	"cmp"
	"fmt"
	"math"

	"shaver/internal/click/evaluate"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
)

// The versions of the format of a Document.
const (
	Version        = "shaver.sweep/1"
	SquaredVersion = "shaver.sweep/2" // the loss is squared
	ModelsVersion  = "shaver.sweep/3" // there are models, with any loss
)

// VersionOf returns the version of a document with the given loss, and with or without models.
func VersionOf(kind loss.Kind, models bool) string {
	switch {
	case models:
		return ModelsVersion
	case kind == loss.Squared:
		return SquaredVersion
	}
	return Version
}

// Document is the result of a sweep. The log loss is in nat.
type Document struct {
	Version  string    `json:"version"`
	Model    string    `json:"model"`           // SHA-256 of the model that was pruned
	Dataset  string    `json:"dataset"`         // SHA-256 of the dataset's manifest
	Loss     loss.Kind `json:"loss,omitempty"`  // decides which metrics there are
	Kind     string    `json:"kind"`            // kind of the model's architecture
	Split    string    `json:"split"`           // the split on which the tables are measured
	Rows     int64     `json:"rows"`            // number of rows of this split
	Features int       `json:"features"`        // number of features that have entries
	Entries  int       `json:"entries"`         // number of entries of the table, n*d
	Group    *Group    `json:"group,omitempty"` // nil = the rows are not grouped
	// Settings is nil in documents of older programs, which did not store it.
	Settings *Settings    `json:"settings,omitempty"`
	Doubt    string       `json:"doubt,omitempty"`  // of the unpruned model's predictions: evaluate.Predictions.Doubt
	Slices   []Slice      `json:"slices,omitempty"` // sets of rows that are measured separately; documents of older programs have none
	Unpruned Measure      `json:"unpruned"`
	Sources  []ScoresFile `json:"sources"`          // scores files by which methods rank
	Models   []ModelFile  `json:"models,omitempty"` // files of models that are measured as they are
	Points   []Point      `json:"points"`
	// Answer is the ladder, which a report computes again for other bounds. It is nil in documents of older programs.
	Answer *Answer `json:"answer,omitempty"`
}

// Group says by what the rows are grouped. With groups, the GAUC decides in place of the AUC, and all intervals take the groups for a
// random sample; see evaluate.Within.
type Group struct {
	Field string `json:"field"` // name of a field, or of a dense input
	Count int64  `json:"count"` // number of groups
	Mixed int64  `json:"mixed"` // number of those with both labels, over which the GAUC is the mean
	Out   int64  `json:"out"`   // number of rows in no group
}

// NewGroup describes the groups of a ranking by a field, or returns nil if it has none.
func NewGroup(field string, r *evaluate.Ranking) *Group {
	w := r.Within()
	if w == nil {
		return nil
	}
	return &Group{field, w.Groups, w.Mixed, w.Out}
}

// Text describes the groups.
func (g *Group) Text() string {
	text := fmt.Sprintf("GAUC is the mean AUC of %d of %d groups by %s, those with both labels", g.Mixed, g.Count, g.Field)
	if g.Out > 0 {
		text += fmt.Sprintf("; %d rows are in no group, because their value has no id of its own", g.Out)
	}
	return text
}

// GroupField returns the field by which the rows are grouped, or "".
func (d *Document) GroupField() string {
	if d.Group == nil {
		return ""
	}
	return d.Group.Field
}

// AUCName returns the name of the metric that JudgedAUC returns.
func (d *Document) AUCName() string {
	if d.Group != nil {
		return "GAUC"
	}
	return "AUC"
}

// Settings holds the settings that all methods share.
type Settings struct {
	Rank         string   `json:"rank"`                    // how scores order the entries: one of prune.Ranks
	Protect      []string `json:"protect,omitempty"`       // fields that keep all entries
	FieldMinimum float64  `json:"field_minimum,omitempty"` // least portion of entries that each field keeps
	Seed         uint64   `json:"seed"`                    // seed of the method Random
}

// Measure holds the metrics of the model with one table, and the size of the table.
type Measure struct {
	Metrics
	// Calibration is fitted on the validation split. It is nil without calibration.
	Calibration *loss.Calibration `json:"calibration,omitempty"`
	// Bytes is the size of the model's file. The file is dense for the unpruned model and compact
	// for the tables of methods. A model that is measured as it is has the form of its file.
	// TableBytes is the part of the file that stores the table. MemoryBytes is what package infer
	// needs for the table while it serves rows. All are nil for PTQ and for models with look-ups,
	// for which there is no file, and in documents of older programs.
	Bytes       *int64 `json:"bytes,omitempty"`
	TableBytes  *int64 `json:"table_bytes,omitempty"`
	MemoryBytes *int64 `json:"memory_bytes,omitempty"`
	// CalibrationCurve compares predicted probabilities, or outputs with the squared loss, with
	// labels. It is empty in documents
	// of older programs.
	CalibrationCurve []CurveBin `json:"calibration_curve,omitempty"`
	// Slices has the metrics on each of Document.Slices.
	Slices []SliceMetrics `json:"slices,omitempty"`
}

// Metrics holds the metrics of predictions. Calibration does not change AUC. With the log loss
// there is LogLoss, and with the squared loss there are RMSE and MAE. The calibrated metrics
// are nil without calibration.
type Metrics struct {
	AUC               *float64 `json:"auc"`            // null if all labels are the same, or with the squared loss
	GAUC              *float64 `json:"gauc,omitempty"` // nil without groups, or if no group has both labels
	LogLoss           *float64 `json:"log_loss,omitempty"`
	CalibratedLogLoss *float64 `json:"calibrated_log_loss,omitempty"`
	RMSE              *float64 `json:"rmse,omitempty"`
	MAE               *float64 `json:"mae,omitempty"`
	CalibratedRMSE    *float64 `json:"calibrated_rmse,omitempty"`
}

// JudgedAUC returns GAUC, or AUC without it.
func (m *Metrics) JudgedAUC() *float64 { return cmp.Or(m.GAUC, m.AUC) }

// Loss returns LogLoss or RMSE.
func (m *Metrics) Loss() float64 {
	if m.RMSE != nil {
		return *m.RMSE
	}
	return *m.LogLoss
}

// CalibratedLoss returns CalibratedLogLoss or CalibratedRMSE, or nil without calibration.
func (m *Metrics) CalibratedLoss() *float64 {
	if m.RMSE != nil {
		return m.CalibratedRMSE
	}
	return m.CalibratedLogLoss
}

// NewMetrics returns the metrics of predictions. calibration is nil without calibration.
func NewMetrics(of *evaluate.Ranking, calibration *loss.Calibration) Metrics {
	plain := of.MeanLoss(loss.Uncalibrated)
	var calibrated *float64
	if calibration != nil {
		loss := of.MeanLoss(*calibration)
		calibrated = &loss
	}
	if of.Predictions.Loss == loss.Squared {
		mae := of.Metrics().MAE
		return Metrics{RMSE: &plain, MAE: &mae, CalibratedRMSE: calibrated}
	}
	m := Metrics{AUC: scores.Figure(of.AUC()), LogLoss: &plain, CalibratedLogLoss: calibrated}
	if w := of.Within(); w != nil {
		m.GAUC = scores.Figure(w.GAUC)
	}
	return m
}

// Tuned holds, in documents of older programs, the metrics of the model after the training of what the method keeps, which is
// stored as float32.
type Tuned struct {
	Metrics
	Epoch      int          `json:"epoch"`                // number of the best epoch; 0 = no epoch is better on the validation split than the model before
	Difference *Differences `json:"difference,omitempty"` // to the unpruned model
}

// Differences holds the differences between a table and the unpruned table. The calibrated
// differences are those of calibrated losses, and nil without calibration.
type Differences struct {
	AUC               *Interval `json:"auc"`            // null if all labels are the same, or with the squared loss
	GAUC              *Interval `json:"gauc,omitempty"` // nil without groups
	LogLoss           *Interval `json:"log_loss,omitempty"`
	CalibratedLogLoss *Interval `json:"calibrated_log_loss,omitempty"`
	RMSE              *Interval `json:"rmse,omitempty"`
	CalibratedRMSE    *Interval `json:"calibrated_rmse,omitempty"`
}

// JudgedAUC returns the difference of GAUC, or of AUC without it.
func (d *Differences) JudgedAUC() *Interval { return cmp.Or(d.GAUC, d.AUC) }

// Loss returns the difference of LogLoss or RMSE.
func (d *Differences) Loss() *Interval {
	if d.RMSE != nil {
		return d.RMSE
	}
	return d.LogLoss
}

// CalibratedLoss returns the difference of the calibrated LogLoss or RMSE, or nil without
// calibration.
func (d *Differences) CalibratedLoss() *Interval {
	if d.RMSE != nil {
		return d.CalibratedRMSE
	}
	return d.CalibratedLogLoss
}

// each returns the results of f, which gets nil for what is nil.
func (d *Differences) each(f func(*Interval) *Interval) *Differences {
	return &Differences{f(d.AUC), f(d.GAUC), f(d.LogLoss), f(d.CalibratedLogLoss), f(d.RMSE), f(d.CalibratedRMSE)}
}

// among returns the differences with the intervals of Interval.Among.
func (d *Differences) among(n int, rows int64) *Differences {
	return d.each(func(i *Interval) *Interval { return i.Among(n, rows) })
}

// DifferencesOf returns the differences between two models. calibrated is that of the calibrated loss, or nil.
func DifferencesOf(from, to *evaluate.Ranking, calibrated *Interval) *Differences {
	c := to.Minus(from)
	d := newDifferences(to.Loss, NewInterval(c.AUC), NewInterval(c.Loss), calibrated)
	if to.Within() != nil {
		d.GAUC = NewInterval(c.GAUC)
	}
	return d
}

// newDifferences returns differences of the AUC, which may be nil, the loss, and the
// calibrated loss, which is nil without calibration.
func newDifferences(kind loss.Kind, auc, plain, calibrated *Interval) *Differences {
	if kind == loss.Squared {
		return &Differences{AUC: auc, RMSE: plain, CalibratedRMSE: calibrated}
	}
	return &Differences{AUC: auc, LogLoss: plain, CalibratedLogLoss: calibrated}
}

// Interval is a difference with its 95% confidence interval; see evaluate.Compare. Low and
// High are nil if the rows do not determine the interval.
type Interval struct {
	Value float64  `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// NewInterval returns d as an Interval. It returns nil if d has no value.
func NewInterval(d evaluate.Difference) *Interval {
	if math.IsNaN(d.Value) {
		return nil
	}
	return &Interval{d.Value, scores.Figure(d.Low), scores.Figure(d.High)}
}

// Among returns the interval by which to judge i, one of n differences that are compared on rows rows. All n
// contain their values at once with a confidence of 95% (evaluate.Wider). Every claim of a page comes
// from such an interval, so that of n differences without an effect one seldom makes a headline.
func (i *Interval) Among(n int, rows int64) *Interval {
	if i == nil || i.Low == nil || i.High == nil || n < 2 {
		return i
	}
	wider := evaluate.Wider(n, float64(rows-1))
	return &Interval{i.Value, new(i.Value - wider*(i.Value-*i.Low)), new(i.Value + wider*(*i.High-i.Value))}
}

// Differs reports whether the interval is known and does not contain 0.
func (i *Interval) Differs() bool {
	return i != nil && i.Low != nil && i.High != nil && (*i.Low > 0 || *i.High < 0)
}

// Within reports whether the interval is known and ends at most at a bound.
func (i *Interval) Within(bound float64) bool { return i != nil && i.High != nil && *i.High <= bound }

// CurveBin is a bin of a calibration curve. The bins have about equally many rows, and
// ascending logits.
type CurveBin struct {
	Rows       int64    `json:"rows"`
	Predicted  float64  `json:"predicted"`            // mean predicted probability
	Calibrated *float64 `json:"calibrated,omitempty"` // mean of the calibrated probabilities; nil without calibration
	Observed   float64  `json:"observed"`             // portion of the rows with label 1
}

// Slice is a set of rows of the split, defined by how often features occur in the rows of
// train and val. Its rows are those in which the feature of one field, or the rarest feature
// of the row, occurs from Least to Most times there.
type Slice struct {
	Task      string `json:"task,omitempty"`  // label of a task, whose rows are the slice whatever occurs in them
	Field     string `json:"field,omitempty"` // name of the field; empty for the rarest feature of the row
	Least     int64  `json:"least"`
	Most      *int64 `json:"most,omitempty"`      // nil = no limit
	Rows      int64  `json:"rows"`                // number of rows of the slice
	Positives *int64 `json:"positives,omitempty"` // number of its rows with label 1; nil with the squared loss
}

// SliceMetrics holds the metrics of the model with one table on a slice.
type SliceMetrics struct {
	Metrics
	Difference *Differences `json:"difference,omitempty"` // nil for the unpruned table
}

// ScoresFile describes a scores file by which methods rank.
type ScoresFile struct {
	Job   string `json:"job"`
	Model string `json:"model,omitempty"` // SHA-256 of the model that was scored, if it is not Document.Model; only SNIP ranks by such scores
	estimator.Options
	Baseline string   `json:"baseline"`
	Splits   []string `json:"splits"` // splits whose rows were scored
	Sample   float64  `json:"sample"` // portion of these rows that was scored
	Rows     int64    `json:"rows"`   // number of scored rows
	Seed     uint64   `json:"seed"`
}

// NewScoresFile returns the description of f in a document about a model with the given digest.
func NewScoresFile(f *scores.File, digest string) ScoresFile {
	s := &f.Spec
	source := ScoresFile{Job: s.ID(), Options: s.Options, Baseline: s.Baseline, Splits: s.Splits, Sample: s.Sample, Rows: f.Rows, Seed: s.Seed}
	if s.Model != digest {
		source.Model = s.Model
	}
	return source
}

// Point is the result of a method at a budget, or of a model that is measured as it is.
type Point struct {
	Method   string  `json:"method"`
	Source   *int    `json:"source,omitempty"` // index in Document.Sources; nil if the method does not rank by scores
	Model    *int    `json:"model,omitempty"`  // index in Document.Models; nil if the table is made from that of the unpruned model
	Baseline string  `json:"baseline"`         // name of the baseline that dropped entries read
	Values   string  `json:"values"`           // number format of kept entries
	Bits     int     `json:"bits"`             // bits of a kept entry
	Sparsity float64 `json:"sparsity"`         // portion of entries dropped; for PTQ the portion of bits saved, 1 - bits/32
	// Parameters is the number of kept entries, plus m*d if the baseline is the codebook. A model
	// may have a table of another form. Its sparsity is 1 - parameters/Entries, at least 0, without
	// the parameters of a codebook.
	Parameters int `json:"parameters"`
	// Found reports whether Run found the budget, which nobody named.
	Found bool `json:"found,omitempty"`
	// EmptyFeatures is the number of features of which no entry is kept.
	EmptyFeatures int `json:"empty_features"`
	Measure
	// Difference compares the table with the unpruned one. It is nil in documents of older
	// programs.
	Difference     *Differences `json:"difference,omitempty"`
	Tuned          *Tuned       `json:"tuned,omitempty"`           // only in documents of older programs
	ValidationAUC  *float64     `json:"validation_auc,omitempty"`  // only in documents of older programs, as ValidationRMSE
	ValidationRMSE *float64     `json:"validation_rmse,omitempty"` // metric of the validation split by which the method was chosen
}

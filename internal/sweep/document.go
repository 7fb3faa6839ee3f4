// Package sweep compares single-shot methods: each makes a smaller table at each
// of several budgets, and the model is measured with it. What it finds is one JSON
// document, which tables, pictures and reports draw from.
package sweep

import (
	"shaver/internal/estimator"
	"shaver/internal/evaluate"
	"shaver/internal/scores"
)

// Version is the form of a Document.
const Version = "shaver.sweep/1"

// Document is what a sweep found. A loss is in nat.
type Document struct {
	Version  string `json:"version"`
	Model    string `json:"model"`   // SHA-256 of the model that was pruned
	Dataset  string `json:"dataset"` // SHA-256 of the dataset's manifest
	Kind     string `json:"kind"`    // of the architecture
	Split    string `json:"split"`   // that was measured on
	Rows     int64  `json:"rows"`    // of it
	Features int    `json:"features"`
	Entries  int    `json:"entries"` // of the table
	// Settings are nil in documents of programs that did not tell them.
	Settings *Settings    `json:"settings,omitempty"`
	Unpruned Measure      `json:"unpruned"`
	Sources  []ScoresFile `json:"sources"` // scores files
	Points   []Point      `json:"points"`
}

// Settings are what all methods were asked for, and points do not tell.
type Settings struct {
	Rank         string   `json:"rank"`                    // order of the sums: one of prune.Ranks
	Protect      []string `json:"protect,omitempty"`       // fields of which nothing is dropped
	FieldMinimum float64  `json:"field_minimum,omitempty"` // portion of each field's entries that stays at least
	Seed         uint64   `json:"seed"`                    // of Random
}

// Measure is what a table reaches.
type Measure struct {
	AUC     *float64 `json:"auc"` // null if all labels are the same
	LogLoss float64  `json:"log_loss"`
	// Calibration was fitted on the validation split, and CalibratedLogLoss is what
	// it makes of LogLoss; AUC stays.
	Calibration       *evaluate.Calibration `json:"calibration,omitempty"`
	CalibratedLogLoss *float64              `json:"calibrated_log_loss,omitempty"`
}

// ScoresFile is a scores file that methods rank by.
type ScoresFile struct {
	Job string `json:"job"`
	estimator.Options
	Baseline string   `json:"baseline"`
	Splits   []string `json:"splits"` // whose rows
	Sample   float64  `json:"sample"` // portion of them
	Rows     int64    `json:"rows"`
	Seed     uint64   `json:"seed"`
}

// NewScoresFile says which scores f are.
func NewScoresFile(f *scores.File) ScoresFile {
	s := &f.Spec
	return ScoresFile{s.ID(), s.Options, s.Baseline, s.Splits, s.Sample, f.Rows, s.Seed}
}

// Point is a method at a budget.
type Point struct {
	Method   string  `json:"method"`
	Source   *int    `json:"source,omitempty"` // index in Sources, of a method that ranks by scores
	Baseline string  `json:"baseline"`         // what dropped entries read
	Values   string  `json:"values"`           // how kept entries are stored
	Bits     int     `json:"bits"`             // of a kept entry
	Sparsity float64 `json:"sparsity"`         // portion of entries dropped; of PTQ the portion of bits, 1 - bits/32
	// Parameters are the kept entries, and the codebook's if there is one.
	Parameters int `json:"parameters"`
	// EmptyFeatures have no entry that is kept.
	EmptyFeatures int `json:"empty_features"`
	Measure
	ValidationAUC *float64 `json:"validation_auc,omitempty"` // for which it was chosen, if it was
}

// Package sweep compares single-shot pruning methods. Each method makes a smaller table at
// each of several budgets, and the model is measured with each table. The result is one
// JSON document, from which tables, pictures and reports are made.
package sweep

import (
	"shaver/internal/estimator"
	"shaver/internal/evaluate"
	"shaver/internal/scores"
)

// Version identifies the format of a Document.
const Version = "shaver.sweep/1"

// Document is the result of a sweep. Losses are in nat.
type Document struct {
	Version  string `json:"version"`
	Model    string `json:"model"`    // SHA-256 of the model that was pruned
	Dataset  string `json:"dataset"`  // SHA-256 of the dataset's manifest
	Kind     string `json:"kind"`     // kind of the model's architecture
	Split    string `json:"split"`    // the split on which the tables are measured
	Rows     int64  `json:"rows"`     // number of rows of this split
	Features int    `json:"features"` // n
	Entries  int    `json:"entries"`  // number of entries of the table, n*d
	// Settings is nil in documents of older programs, which did not store it.
	Settings *Settings    `json:"settings,omitempty"`
	Unpruned Measure      `json:"unpruned"`
	Sources  []ScoresFile `json:"sources"` // scores files by which methods rank
	Points   []Point      `json:"points"`
}

// Settings holds the settings that all methods share.
type Settings struct {
	Rank         string   `json:"rank"`                    // how scores order the entries: one of prune.Ranks
	Protect      []string `json:"protect,omitempty"`       // fields that keep all entries
	FieldMinimum float64  `json:"field_minimum,omitempty"` // least portion of entries that each field keeps
	Seed         uint64   `json:"seed"`                    // seed of the method Random
}

// Measure holds the metrics of the model with one table.
type Measure struct {
	AUC     *float64 `json:"auc"` // null if all labels are the same
	LogLoss float64  `json:"log_loss"`
	// Calibration is fitted on the validation split. CalibratedLogLoss is the LogLoss with
	// it. Calibration does not change AUC. Both are nil without calibration.
	Calibration       *evaluate.Calibration `json:"calibration,omitempty"`
	CalibratedLogLoss *float64              `json:"calibrated_log_loss,omitempty"`
}

// ScoresFile describes a scores file by which methods rank.
type ScoresFile struct {
	Job string `json:"job"`
	estimator.Options
	Baseline string   `json:"baseline"`
	Splits   []string `json:"splits"` // splits whose rows were scored
	Sample   float64  `json:"sample"` // portion of these rows that was scored
	Rows     int64    `json:"rows"`   // number of scored rows
	Seed     uint64   `json:"seed"`
}

// NewScoresFile returns the description of f.
func NewScoresFile(f *scores.File) ScoresFile {
	s := &f.Spec
	return ScoresFile{s.ID(), s.Options, s.Baseline, s.Splits, s.Sample, f.Rows, s.Seed}
}

// Point is the result of a method at a budget.
type Point struct {
	Method   string  `json:"method"`
	Source   *int    `json:"source,omitempty"` // index in Document.Sources; nil if the method does not rank by scores
	Baseline string  `json:"baseline"`         // name of the baseline that dropped entries read
	Values   string  `json:"values"`           // number format of kept entries
	Bits     int     `json:"bits"`             // bits of a kept entry
	Sparsity float64 `json:"sparsity"`         // portion of entries dropped; for PTQ the portion of bits saved, 1 - bits/32
	// Parameters is the number of kept entries, plus m*d if the baseline is the codebook.
	Parameters int `json:"parameters"`
	// EmptyFeatures is the number of features of which no entry is kept.
	EmptyFeatures int `json:"empty_features"`
	Measure
	ValidationAUC *float64 `json:"validation_auc,omitempty"` // AUC by which Select chose the method; nil without Select
}

// Package benchmark has the document of "shaver benchmark", which compares ways to make the
// embedding table of a click model smaller: methods that train a smaller table, and methods
// that prune a trained one.
package benchmark

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
)

// Version is the version of a Document.
const Version = "shaver.benchmark/1"

// The methods. Those of Tables train a model for each budget. All others begin with scores of
// one model, and prune it to each budget.
const (
	Full = "full" // the whole table, which the other methods make smaller

	QR       = "qr"       // a product of two small tables
	TT       = "tt"       // a product of tensors
	PEP      = "pep"      // a threshold for each entry
	OptEmbed = "optembed" // a threshold and a number of columns for each field
	CERP     = "cerp"     // a sum of two sparse tables

	Path       = "path"        // the order of a path
	Shapley    = "shapley"     // the aggregate sum of Shapley values, which is the paper's ranking
	ShapleyRMS = "shapley-rms" // their root mean square
	SSEDS      = "sseds"       // whole columns by Taylor scores, then trained
	SNIP       = "snip"        // entries by Taylor scores of the initial model, then trained from it
)

// Methods returns the names of all methods besides Full, in the order of the tables.
func Methods() []string {
	return append([]string{Path, Shapley, ShapleyRMS, SNIP, SSEDS}, Tables()...)
}

// Tables returns the names of the methods that train a model for each budget.
func Tables() []string { return []string{QR, TT, PEP, OptEmbed, CERP} }

// Document is the result of a benchmark.
type Document struct {
	Version  string    `json:"version"`
	Dataset  string    `json:"dataset"` // digest
	Fields   int       `json:"fields"`
	Features int       `json:"features"`
	Rows     Rows      `json:"rows"`
	Settings Settings  `json:"settings"`
	Searches []Search  `json:"searches"`
	Scorings []Scoring `json:"scorings"`
	Results  []Result  `json:"results"`
}

// Rows has the number of rows of each split.
type Rows struct {
	Train      int64 `json:"train"`
	Validation int64 `json:"val"`
	Test       int64 `json:"test"`
}

// Settings are those on which all results depend.
type Settings struct {
	Kernel      string `json:"kernel"`
	Dim         int    `json:"dim"` // columns of the table
	Hidden      []int  `json:"hidden"`
	BatchNorm   bool   `json:"batch_norm"`
	CrossLayers int    `json:"cross_layers"`
	Experts     int    `json:"experts"`
	Rank        int    `json:"rank"`
	Epochs      int    `json:"epochs"`
	Patience    int    `json:"patience"`
	Batch       int    `json:"batch"`
	WarmUp      int    `json:"warm_up"`          // epochs
	Search      int    `json:"search"`           // number of trials of each search; 0 = no search
	Budget      string `json:"budget,omitempty"` // time after which a search starts no more trials; empty = unlimited
}

// Search is the result of a search of the settings of a training.
type Search struct {
	Kind         string  `json:"kind"`
	Method       string  `json:"method"`             // Full or one of Tables
	Sparsity     float64 `json:"sparsity,omitempty"` // 0 for Full
	Trials       int     `json:"trials"`
	Failed       int     `json:"failed"` // number of trials that gave no model
	LearningRate float64 `json:"learning_rate"`
	WeightDecay  float64 `json:"weight_decay"`
	Dropout      float64 `json:"dropout"`
	Seconds      float64 `json:"seconds"`           // processor time of all trials
	Resumed      bool    `json:"resumed,omitempty"` // as in Result
}

// Scoring is one run of an estimator over the training rows.
type Scoring struct {
	Kind      string  `json:"kind"`
	Seed      uint64  `json:"seed"` // of the model
	Initial   bool    `json:"initial,omitempty"`
	Estimator string  `json:"estimator"`
	Baseline  string  `json:"baseline"`
	Seconds   float64 `json:"seconds"`           // processor time
	Resumed   bool    `json:"resumed,omitempty"` // as in Result
}

// Line names what the repeats of a result have in common.
type Line struct {
	Kind     string  `json:"kind"`
	Method   string  `json:"method"`
	Baseline string  `json:"baseline,omitempty"` // of Path, Shapley and ShapleyRMS
	Tuned    bool    `json:"tuned,omitempty"`    // whether a model of Path, Shapley or ShapleyRMS was trained after pruning
	Sparsity float64 `json:"sparsity"`           // the budget: the portion of the entries to drop
}

// String returns the method with its baseline, and whether it is tuned.
func (l *Line) String() string {
	text := l.Method
	if l.Baseline != "" {
		text += ", " + l.Baseline
	}
	if l.Tuned {
		text += ", tuned"
	}
	return text
}

// SingleShot reports whether the model is pruned and not trained afterwards.
func (l *Line) SingleShot() bool { return l.Baseline != "" && !l.Tuned }

// Result is one model, measured on the split test.
type Result struct {
	Line
	Seed       uint64   `json:"seed"`
	Failed     string   `json:"failed,omitempty"`     // why there is no model; then all below is absent
	Parameters int      `json:"parameters,omitempty"` // of the embedding table
	Bytes      int64    `json:"bytes,omitempty"`      // of the model's file
	AUC        *float64 `json:"auc,omitempty"`        // nil if all labels are the same
	LogLoss    float64  `json:"log_loss,omitempty"`
	// Seconds is the processor time of the training, or of the pruning and the training after
	// it, without searches and scorings. If Resumed is set, an earlier process did a part of
	// the work, whose time is not counted.
	Seconds float64 `json:"seconds"`
	Resumed bool    `json:"resumed,omitempty"`
}

// FindSearch returns the search of a method, or nil without any.
func (d *Document) FindSearch(kind, method string, sparsity float64) *Search {
	for i := range d.Searches {
		if s := &d.Searches[i]; s.Kind == kind && s.Method == method && s.Sparsity == sparsity {
			return s
		}
	}
	return nil
}

// FindScoring returns the scoring with the properties of s, or nil without any.
func (d *Document) FindScoring(s Scoring) *Scoring {
	for i := range d.Scorings {
		found := d.Scorings[i]
		if found.Seconds, found.Resumed = s.Seconds, s.Resumed; found == s {
			return &d.Scorings[i]
		}
	}
	return nil
}

// Find returns the result of a line with a seed, or nil without any.
func (d *Document) Find(l Line, seed uint64) *Result {
	for i := range d.Results {
		if r := &d.Results[i]; r.Line == l && r.Seed == seed {
			return r
		}
	}
	return nil
}

// Put adds a result. It replaces the one with the same line and seed.
func (d *Document) Put(r Result) {
	if old := d.Find(r.Line, r.Seed); old != nil {
		*old = r
		return
	}
	d.Results = append(d.Results, r)
}

// Kinds returns the kinds of the models, in the order of their first results.
func (d *Document) Kinds() (all []string) {
	for i := range d.Results {
		if kind := d.Results[i].Kind; !slices.Contains(all, kind) {
			all = append(all, kind)
		}
	}
	return all
}

// Lines returns the lines of a kind by their sparsity, and then in the order of the methods.
func (d *Document) Lines(kind string) (all []Line) {
	for i := range d.Results {
		if l := d.Results[i].Line; l.Kind == kind && !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Sparsity, b.Sparsity), cmp.Compare(place(&a), place(&b)), -cmp.Compare(a.Baseline, b.Baseline))
	})
	return all
}

// place returns the position of a line among those of its sparsity. Lines of single-shot
// methods come first, then the same methods tuned, and then all others.
func place(l *Line) int {
	at := slices.Index(Methods(), l.Method)
	switch {
	case l.SingleShot():
		return at
	case l.Tuned:
		return len(Methods()) + at
	}
	return 2*len(Methods()) + at
}

var kindName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Check returns an error that says what in d is invalid, if anything is.
func (d *Document) Check() error {
	if d.Version != Version {
		return fmt.Errorf("version is %q: expected %q", d.Version, Version)
	}
	known := append(Methods(), Full)
	for i := range d.Results {
		r := &d.Results[i]
		switch {
		case !kindName.MatchString(r.Kind): // it is part of the names of files
			return fmt.Errorf("result %d has the kind %q: expected a name of lower-case letters, digits and hyphens", i, r.Kind)
		case !slices.Contains(known, r.Method):
			return fmt.Errorf("result %d has the method %q: expected one of %v", i, r.Method, known)
		case !(r.Sparsity >= 0 && r.Sparsity < 1):
			return fmt.Errorf("result %d has the sparsity %v: expected a number of at least 0 and below 1", i, r.Sparsity)
		case r.Failed == "" && (r.Parameters < 0 || r.Bytes < 1):
			return fmt.Errorf("result %d has %d parameters and %d bytes: expected at least 0 and 1", i, r.Parameters, r.Bytes)
		}
	}
	return nil
}

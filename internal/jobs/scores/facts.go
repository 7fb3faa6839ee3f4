package scores

import (
	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
)

// Facts describe a scores file.
type Facts struct {
	Job         string        `json:"job"`
	Spec        job.Spec      `json:"spec"`
	Rows        int64         `json:"rows"`
	DatasetRows int64         `json:"dataset_rows"`
	Features    int           `json:"features"`
	Dim         int           `json:"dim"`                   // 0 if the tables have different numbers of columns
	Tables      []model.Table `json:"tables,omitempty"`      // if the model has look-ups
	WalkedRows  int64         `json:"walked_rows,omitempty"` // number of rows that have the values of walks
	Weight      int64         `json:"weight,omitempty"`      // sum of the weights of the rows, if they have weights
	LossFull    float64       `json:"loss_full"`
	*ValueFacts               // nil for a path
	Words       string        `json:"words,omitempty"`       // see File.WordsText
	Path        *Path         `json:"path,omitempty"`        // how the order of a path came about
	Stopped     *Stopped      `json:"stopped,omitempty"`     // how a job with a stop rule or a time limit ended
	Audit       *Audit        `json:"audit,omitempty"`       // result of the audit, for a multilinear job with one
	Lineage     *Lineage      `json:"lineage,omitempty"`     // how the values follow from earlier ones, for a paired job
	NoInterval  *int          `json:"no_interval,omitempty"` // number of features that occur, but have no intervals; see File.Intervals; nil for a path
	Aggregate   string        `json:"aggregate"`             // aggregate that sum_abs of the fields adds up
	Fields      []FieldFacts  `json:"fields"`
	FieldValues []FieldValue  `json:"field_values,omitempty"` // for a job of fields, the most valuable one first
	FieldPairs  []FieldPair   `json:"field_pairs,omitempty"`  // for a job of pairs, see File.FieldPairs

	Entries int `json:"-"` // number of all entries
}

// ValueFacts are facts about values, which a path does not have. The name is exported so that
// package json can decode an embedded pointer.
type ValueFacts struct {
	LossEmpty       float64 `json:"loss_empty"`
	EfficiencyError float64 `json:"efficiency_error"`
	EfficiencySE    float64 `json:"efficiency_se,omitempty"` // for estimators without the efficiency identity
	StandardError   string  `json:"standard_error"`          // whether the standard errors on the dataset are estimates or upper bounds
	MaxSE           float64 `json:"max_se"`
	MaxPopulationSE float64 `json:"max_se_population"`
	Warning         string  `json:"warning,omitempty"` // see File.Warning
	Convergence     float64 `json:"convergence"`       // max_se / (largest - smallest phi); the paper stops below 0.01
}

// FieldFacts describes a field. Its sums are nil for a path.
type FieldFacts struct {
	FieldSummary
	Sum    *float64 `json:"sum,omitempty"`     // see FieldSummary
	SumAbs *float64 `json:"sum_abs,omitempty"` // see FieldSummary
}

// Facts returns the facts about f.
func (f *File) Facts() (*Facts, error) {
	aggregate := f.DefaultAggregate()
	values, err := f.Aggregate(aggregate)
	if err != nil {
		return nil, err
	}
	s := f.Summary(values)
	facts := &Facts{
		Job: f.Spec.ID(), Spec: f.Spec, Rows: f.Rows, DatasetRows: f.DatasetRows, Features: f.Layout.Features(), Dim: f.Shape.Dim(), Tables: f.Layout.Tables,
		WalkedRows: f.Walked, Weight: f.Weight, LossFull: f.LossFull, Words: f.WordsText(&f.Baseline), Path: f.Path, Stopped: f.Stopped, Audit: f.Audit, Lineage: f.Lineage, Aggregate: aggregate, Entries: f.Layout.Prunable(),
	}
	if !f.Ranks() {
		facts.NoInterval, facts.ValueFacts = &s.NoInterval, &ValueFacts{
			LossEmpty: f.LossEmpty, EfficiencyError: f.EfficiencyError, EfficiencySE: f.EfficiencySE, StandardError: f.StandardError(), Warning: f.Warning(),
			MaxSE: s.MaxSE, MaxPopulationSE: s.MaxPopulationSE, Convergence: s.Convergence(),
		}
	}
	facts.FieldValues, facts.FieldPairs = f.FieldValues(), f.FieldPairs()
	for i := range s.Fields {
		field := FieldFacts{FieldSummary: s.Fields[i]}
		if !f.Ranks() {
			field.Sum, field.SumAbs = &s.Fields[i].Sum, &s.Fields[i].SumAbs
		}
		facts.Fields = append(facts.Fields, field)
	}
	return facts, nil
}

package dataset

import (
	"cmp"
	"slices"

	"shaver/internal/data/dense"
)

// Inspection describes a dataset for people.
type Inspection struct {
	Digest string `json:"digest"`
	IDs    string `json:"ids"`
	Rows   int64  `json:"rows"`
	LabelFacts
	Weight   float64       `json:"weight,omitempty"` // sum of the weights; 0 if all rows count once
	Tasks    []TaskFacts   `json:"tasks,omitempty"`  // the labels after the first
	Tables   []Table       `json:"tables,omitempty"`
	Skipped  int64         `json:"skipped"`
	Features int           `json:"features"`
	Splits   []SplitFacts  `json:"splits"`
	Fields   []FieldFacts  `json:"fields"`
	Dense    []dense.Input `json:"dense,omitempty"`
}

// SplitFacts describes one split.
type SplitFacts struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
	LabelFacts
	Weight float64     `json:"weight,omitempty"`
	Tasks  []TaskFacts `json:"tasks,omitempty"`
}

// LabelFacts describes the labels of rows. Labels is nil if they are 0 or 1. Otherwise the
// other two are nil.
type LabelFacts struct {
	Positives *int64   `json:"positives,omitempty"`  // number of rows with label 1
	LabelRate *float64 `json:"label_rate,omitempty"` // positives / rows
	Labels    *Labels  `json:"labels,omitempty"`
}

func (s *Split) labelFacts() LabelFacts {
	if s.Positives == nil {
		return LabelFacts{Labels: s.Labels}
	}
	rate := float64(*s.Positives) / float64(s.Rows)
	return LabelFacts{Positives: s.Positives, LabelRate: &rate}
}

// FieldFacts describes one field, over all splits.
type FieldFacts struct {
	Name   string       `json:"name"`
	Size   int          `json:"size"`
	Length int          `json:"length,omitempty"` // number of ids in each row, if the field is a list
	Pad    *int         `json:"pad,omitempty"`    // id of positions without a value, if there is one
	Pads   string       `json:"pads,omitempty"`   // Field.Pads
	Seen   int          `json:"seen"`             // number of features that occur
	OOV    *float64     `json:"oov,omitempty"`    // share of rows with the id of unseen values; nil without such an id
	Top    []ValueFacts `json:"top"`              // most frequent features, in descending order
	// Concentration is the least number of features that covers each share in Held. The shares
	// of a list are those of its occurrences.
	Concentration []HeldFacts `json:"concentration"`
}

// Held lists the shares of the rows for which Concentration counts features.
var Held = []float64{.5, .9, .99}

// HeldFacts is the least number of features of a field that together occur in at least a
// share of the rows.
type HeldFacts struct {
	Share    float64 `json:"share"`    // share of all rows
	Features int     `json:"features"` // number of features
}

// ValueFacts describes one feature.
type ValueFacts struct {
	ID    int     `json:"id"`              // local id
	Value *string `json:"value,omitempty"` // nil without a vocabulary and for the id of unseen values
	Rows  int64   `json:"rows"`
	Share float64 `json:"share"` // share of all rows
}

// Inspect describes the dataset in dir; see the method Inspect.
func Inspect(dir string, top int) (*Inspection, error) {
	d, err := Open(dir)
	if err != nil {
		return nil, err
	}
	return d.Inspect(top)
}

// Inspect describes the dataset. For each field it lists the top most frequent features; if
// two are equally frequent, the lower id comes first. Inspect reads the frequencies, and the
// vocabulary unless top is 0, but no rows.
func (d *Dataset) Inspect(top int) (*Inspection, error) {
	counts, err := d.Frequencies()
	if err != nil {
		return nil, err
	}
	facts := &Inspection{Digest: d.Digest(), IDs: d.IDs, Tables: d.Tables, Skipped: d.Skipped, Features: d.Features(), Dense: d.Dense}
	var all Split
	for _, s := range d.Splits {
		all.join(&s)
		facts.Splits = append(facts.Splits, SplitFacts{s.Name, s.Rows, s.labelFacts(), s.Weight, s.Tasks})
	}
	facts.Rows, facts.LabelFacts, facts.Weight, facts.Tasks = all.Rows, all.labelFacts(), all.Weight, all.Tasks
	for j, f := range d.Manifest.Fields {
		var values []string
		if top > 0 {
			if values, err = d.Vocabulary(j); err != nil {
				return nil, err
			}
		}
		field := fieldFacts(f, counts[:f.Size], values, facts.Rows, top)
		if id := f.OOVID(); d.HasVocabulary() && id >= 0 {
			share := float64(counts[id]) / float64(facts.Rows)
			field.OOV = &share
		}
		whole := facts.Rows
		if f.Length > 0 {
			whole = 0
			for _, count := range counts[:f.Size] {
				whole += count
			}
		}
		field.Concentration = concentration(counts[:f.Size], whole)
		facts.Fields = append(facts.Fields, field)
		counts = counts[f.Size:]
	}
	return facts, nil
}

func fieldFacts(f Field, counts []int64, values []string, rows int64, top int) FieldFacts {
	facts := FieldFacts{Name: f.Name, Size: f.Size, Length: f.Length, Pad: f.Pad, Pads: f.Pads, Top: []ValueFacts{}}
	best := make([]int, 0, min(top, f.Size)+1) // ids, the most frequent first
	for id, count := range counts {
		if count == 0 {
			continue
		}
		facts.Seen++
		if len(best) == top && (top == 0 || counts[best[top-1]] >= count) {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, count, func(other int, count int64) int {
			return cmp.Or(cmp.Compare(count, counts[other]), -1) // after features of the same frequency
		})
		best = slices.Insert(best, at, id)
		best = best[:min(top, len(best))]
	}
	for _, id := range best {
		v := ValueFacts{ID: id, Rows: counts[id], Share: float64(counts[id]) / float64(rows)}
		if id < len(values) && id != f.OOVID() {
			v.Value = &values[id]
		}
		facts.Top = append(facts.Top, v)
	}
	return facts
}

// concentration returns how many of the largest counts are needed to cover each share in
// Held. counts adds up to whole, and concentration sorts it in place.
func concentration(counts []int64, whole int64) []HeldFacts {
	slices.Sort(counts)
	var facts []HeldFacts
	sum, n := int64(0), 0
	for _, share := range Held {
		for float64(sum) < share*float64(whole) && n < len(counts) {
			n++
			sum += counts[len(counts)-n]
		}
		facts = append(facts, HeldFacts{share, n})
	}
	return facts
}

// Package explain says what each field of a row adds to the logit of a model, before and after it is pruned.
package explain

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"shaver/internal/base/fault"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/value/shapley"
)

const (
	Background = 64 // usual number of background rows
	seed       = 1  // of all orders
)

// Document explains rows of a split. The base and all effects of a row sum to its logit, which is the output itself with the squared loss.
type Document struct {
	Split      string    `json:"split"`
	Loss       loss.Kind `json:"loss,omitempty"`    // squared; absent with the log loss
	Background int       `json:"background"`        // number of background rows, at equal distances in the split
	Sampled    int       `json:"sampled,omitempty"` // number of first rows of which the only row changes most; absent if rows were named
	Rows       []Row     `json:"rows"`
}

// Row explains the logit of a row.
type Row struct {
	Row   int64   `json:"row"` // number in the split, from 0
	Label float32 `json:"label"`
	Output
	Against *Output  `json:"against,omitempty"` // of the model that is compared with
	Effects []Effect `json:"effects"`           // the largest magnitudes first, of the model or that of Against
}

// Output is what a model makes of a row.
type Output struct {
	Base        float64  `json:"base"` // mean logit of the background rows
	Logit       float64  `json:"logit"`
	Probability *float64 `json:"probability,omitempty"` // absent with the squared loss
}

// Effect is what a field or a dense input adds to a logit (see shapley.Explain). It is 0 if the model does not read what that of Against does.
type Effect struct {
	Field   string   `json:"field"`
	Values  []string `json:"values"` // one, or those of a list without its pads: values of the vocabulary, or ids or numbers
	Effect  float64  `json:"effect"`
	Against *float64 `json:"against,omitempty"` // effect in the model that is compared with
	SE      *float64 `json:"se"`                // standard error over the background rows, of Effect or of Effect - Against; null of one row
}

// Subject is a model, and the dataset whose readers deliver what it reads.
type Subject struct {
	Model   *model.Model
	Dataset *dataset.Dataset
}

// players returns the names of the players, the fields and then the dense inputs.
func (s *Subject) players() []string { return slices.Concat(s.Dataset.Fields(), s.Model.Dense) }

// Rows explains rows of a split by their numbers in it. of is a model, and perhaps the one that it is compared with, which reads at least the same.
// Without numbers Rows takes the row that changes most of the first 10,000, or of one model row 0. name is worth.Names of the last dataset.
func Rows(ctx context.Context, of []Subject, name func(field, id int) string, kind loss.Kind, split string, numbers []int64, background int) (*Document, error) {
	own, whole := of[0].players(), of[len(of)-1].players()
	if k := slices.IndexFunc(own, func(player string) bool { return !slices.Contains(whole, player) }); k >= 0 {
		return nil, fault.Inputf("the model reads %q, which the model of --against does not: expected the model that was pruned", own[k])
	}
	total := of[0].Dataset.Rows(split)
	if k := slices.IndexFunc(numbers, func(n int64) bool { return n < 0 || n >= total }); k >= 0 {
		return nil, fault.Usagef("--rows %d: expected numbers of rows of the split %s, from 0 to %d", numbers[k], split, total-1)
	}
	d := &Document{Split: split, Loss: kind, Background: int(min(int64(background), total))}
	if len(numbers) == 0 {
		var err error
		if numbers, d.Sampled, err = most(ctx, of, kind, split); err != nil {
			return nil, err
		}
	}
	others := make([]int64, d.Background)
	for k := range others {
		others[k] = int64(k) * total / int64(len(others))
	}
	d.Rows = make([]Row, len(numbers))
	found := make([][]*shapley.Explanation, len(numbers))
	for _, s := range of {
		background, err := s.read(ctx, split, others...)
		if err != nil {
			return nil, err
		}
		for i, n := range numbers {
			row, err := s.read(ctx, split, n)
			if err != nil {
				return nil, err
			}
			e := shapley.Explain(s.Model, row, background, seed)
			if math.IsNaN(e.Logit-e.Base) || math.IsInf(e.Logit-e.Base, 0) {
				return nil, fault.Inputf("%s, or one of %d background rows, has a logit that is not finite", model.RowName(row.Number[0]), len(others))
			}
			o := Output{Base: e.Base, Logit: e.Logit}
			if kind != loss.Squared {
				o.Probability = new(evaluate.Probability(e.Logit))
			}
			r := &d.Rows[i]
			if r.Row, r.Label, r.Effects = n, row.Label[0], s.effects(row, name); found[i] == nil {
				r.Output = o
			} else {
				r.Against = &o
			}
			found[i] = append(found[i], e)
		}
	}
	for i := range d.Rows {
		effects := d.Rows[i].Effects
		for k, player := range whole {
			e, each := &effects[k], make([]float64, len(others))
			if at := slices.Index(own, player); at >= 0 {
				copy(each, found[i][0].Each[at])
			}
			if e.Effect = stat.Mean(each, nil); len(of) > 1 {
				e.Against = new(stat.Mean(found[i][1].Each[k], nil))
				floats.Sub(each, found[i][1].Each[k])
			}
			e.SE = scores.Figure(stat.StdErr(stat.StdDev(each, nil), float64(len(each))))
		}
		size := func(e *Effect) float64 { return max(math.Abs(e.Effect), math.Abs(*cmp.Or(e.Against, &e.Effect))) }
		slices.SortStableFunc(effects, func(a, b Effect) int { return -cmp.Compare(size(&a), size(&b)) })
	}
	return d, nil
}

// effects returns an effect of 0 for each player of the first of rows, with its values.
func (s *Subject) effects(rows *model.Rows, name func(field, id int) string) (all []Effect) {
	at, offsets := 0, model.Offsets(s.Model.FieldDims)
	for j, n := range s.Model.Lengths() {
		values, pad := []string{}, s.Dataset.Manifest.Fields[j].Pad
		for _, feature := range rows.Row(0)[at : at+n] {
			if id := int(feature - offsets[j]); pad == nil || id != *pad {
				values = append(values, cmp.Or(name(j, id), strconv.Itoa(id)))
			}
		}
		all, at = append(all, Effect{Field: s.Dataset.Fields()[j], Values: values}), at+n
	}
	for k, v := range rows.DenseRow(0) {
		all = append(all, Effect{Field: s.Model.Dense[k], Values: []string{strconv.FormatFloat(float64(v), 'g', -1, 32)}})
	}
	return all
}

// read returns rows of a split by their numbers in it, which ascend.
func (s *Subject) read(ctx context.Context, split string, numbers ...int64) (*model.Rows, error) {
	all, enough := &model.Rows{}, errors.New("enough rows")
	for all.Len() < len(numbers) { // each scan reads the rows of one batch
		first := numbers[all.Len()]
		err := s.Dataset.ScanFrom(ctx, []string{split}, first, 1<<16, func(rows *model.Rows) error {
			for i := range rows.Len() {
				if all.Len() == len(numbers) || first+int64(i) != numbers[all.Len()] {
					continue
				}
				if err := s.Model.CheckRow(rows.Row(i)); err != nil {
					return fault.Inputf("%s: %w", model.RowName(rows.Number[i]), err)
				}
				all.Append(rows, i)
			}
			return enough
		})
		if !errors.Is(err, enough) {
			return nil, cmp.Or(err, fault.Inputf("split %s ends before row %d", split, first))
		}
	}
	return all, nil
}

// most returns the number of the row, among the first n of a split, whose probability, or output with the squared loss, differs most between two models. Of one
// model it returns 0.
func most(ctx context.Context, of []Subject, kind loss.Kind, split string) (row []int64, n int, err error) {
	if row = []int64{0}; len(of) == 1 {
		return row, 0, nil
	}
	var numbers []int64
	for i := range min(10_000, of[0].Dataset.Rows(split)) {
		numbers = append(numbers, i)
	}
	changes := make([]float64, len(numbers))
	for k, s := range of {
		rows, err := s.read(ctx, split, numbers...)
		if err != nil {
			return nil, 0, err
		}
		logits := make([]float64, len(numbers))
		s.Model.NewScorer().Logits(logits, rows)
		for i, output := range logits {
			if kind != loss.Squared {
				output = evaluate.Probability(output)
			}
			changes[i] = output - float64(k)*changes[i]
		}
	}
	for i, change := range changes {
		if math.Abs(change) > math.Abs(changes[row[0]]) {
			row[0] = int64(i)
		}
	}
	return row, len(numbers), nil
}

package prepare

import (
	"context"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/value/baseline"
	"shaver/internal/value/shapley"
)

// backgroundRows is the number of rows from which a job of fields takes the values of absent fields
// and dense inputs.
const backgroundRows = 1 << 16

// Game returns the game of the job's rows. The first call for a job of fields may read all its rows.
// Only one goroutine may call Game at a time.
func (p *Prepared) Game(ctx context.Context) (shapley.Game, error) {
	g := shapley.Game{Model: p.Model, Baseline: p.Baseline, Loss: p.Spec.Loss}
	if !p.Spec.OfFields() {
		return g, nil
	}
	if p.fields == nil {
		var err error
		if p.fields, err = p.absent(ctx); err != nil {
			return g, err
		}
		p.fields.Pairs = p.Spec.OfPairs()
	}
	g.Fields = p.fields
	return g, nil
}

// absent returns what absent fields and dense inputs read.
func (p *Prepared) absent(ctx context.Context) (*shapley.Fields, error) {
	rows := &model.Rows{}
	if p.Spec.Baseline == baseline.Marginal || p.Spec.Baseline == baseline.Codebook && len(p.Model.Dense) > 0 {
		var err error
		if rows, err = p.Sample.Draw(ctx, p.Scan, backgroundRows, p.Model.CheckRow); err != nil {
			return nil, err
		}
		if rows.Len() == 0 {
			return nil, fault.Inputf("the model reads none of the rows that were drawn for absent fields: use --baseline %s", baseline.Zero)
		}
		rows = byWeight(rows)
	}
	if p.Spec.Baseline == baseline.Marginal {
		return &shapley.Fields{Background: rows}, nil
	}
	counts := make([]int64, p.Model.Features())
	if p.Spec.Baseline == baseline.Codebook {
		var err error
		if counts, err = p.Dataset.Frequencies(existingSplits(p.Dataset, dataset.Train, dataset.Val)...); err != nil {
			return nil, err
		}
	}
	a := &model.Absent{Embedding: p.Baseline.Values, Constants: p.Model.MeanConstants(counts), Dense: make([]float32, len(p.Model.Dense))}
	if p.Spec.Baseline == baseline.Zero {
		clear(a.Constants)
		return &shapley.Fields{Absent: a}, nil
	}
	for k := range a.Dense {
		sum := 0.0
		for i := range rows.Len() {
			sum += float64(rows.DenseRow(i)[k])
		}
		a.Dense[k] = float32(sum / float64(rows.Len()))
	}
	return &shapley.Fields{Absent: a}, nil
}

// byWeight returns as many of the rows as there are, each about as often as its weight says.
func byWeight(rows *model.Rows) *model.Rows {
	total, before := int64(0), int64(0)
	for i := range rows.Len() {
		total += rows.Times(i)
	}
	all, n := &model.Rows{}, int64(rows.Len())
	for i := range rows.Len() {
		before += rows.Times(i)
		for int64(all.Len()) < before*n/total {
			all.Append(rows, i)
		}
	}
	return all
}

// Layout returns the layout of the tables whose entries have values. In a job of fields it is shapley.FieldLayout,
// with a row for each of Names.
func (j *Job) Layout() *model.Architecture {
	if !j.Spec.OfFields() {
		return &j.Architecture
	}
	l := shapley.FieldLayout(&j.Architecture, j.Spec.OfPairs())
	return &l
}

// Players returns the largest number of players of a row.
func (j *Job) Players() int {
	if !j.Spec.OfFields() {
		return j.Architecture.MostPlayers()
	}
	return len(j.Names())
}

// Names returns the names of the fields of Layout.
func (j *Job) Names() []string {
	names := j.Dataset.Fields()
	if j.Spec.OfFields() {
		names = append(names[:len(names):len(names)], j.Architecture.Dense...)
	}
	return names
}

// Replacements returns what the dropped entries of Layout read. The values of fields have no such thing, and it is 0 for them.
func (j *Job) Replacements() model.Baseline {
	if !j.Spec.OfFields() {
		return j.Baseline
	}
	return j.Layout().Zero()
}

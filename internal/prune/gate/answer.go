package gate

import (
	"context"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/sweep"
)

// pair is a model and its pruned form, with the benches of their fields.
type pair struct {
	models      [2]*model.Model
	split       [2]*measure.Bench
	validation  [2]*measure.Bench // nil if no rows calibrate
	predictions [2]*evaluate.Predictions
	read        func(rows int) // takes the number of rows of each batch; may be nil
}

// calibrate opens the validation split of the dataset, unless its rows judge, or chose or were scored for pruned.
func (p *pair) calibrate(folders []string, loss string, checkpoints [2]*checkpoint.Checkpoint) error {
	d := p.split[0].Dataset
	if p.split[0].Split == dataset.Val || d.Rows(dataset.Val) == 0 || checkpoints[1].Apart(d.Digest(), dataset.Val, checkpoint.Choose) != nil {
		return nil
	}
	for i, m := range p.models {
		var err error
		if p.validation[i], err = measure.Open(folders, dataset.Val, loss, m, checkpoints[i].Known()); err != nil {
			return err
		}
	}
	return nil
}

// rows returns the number of rows that both models read.
func (p *pair) rows() int64 {
	n := 2 * p.split[0].Rows
	if p.validation[0] != nil {
		n += 2 * p.validation[0].Rows
	}
	return n
}

// measure measures the pruned model as a sweep does, and keeps the predictions.
func (p *pair) measure(ctx context.Context, pruned *checkpoint.Checkpoint) (*sweep.Document, error) {
	point := sweep.Point{Method: sweep.OfFile}
	if err := cut.SetSize(&point, pruned, p.models[0].Prunable()); err != nil {
		return nil, err
	}
	which := func(m *model.Model) int {
		if m == p.models[0] {
			return 0
		}
		return 1
	}
	c := sweep.Config{
		Model: p.models[0], Calibrate: p.validation[0] != nil, Optional: true,
		Models: []sweep.Ready{{File: sweep.ModelFile{File: p.split[0].Split}, Point: point, Open: func() (*model.Model, error) { return p.models[1], nil }}},
		Predict: func(ctx context.Context, m *model.Model) (found *evaluate.Predictions, err error) {
			i := which(m)
			p.predictions[i], err = p.split[i].Predict(ctx, m, p.read)
			return p.predictions[i], err
		},
		Validate: func(ctx context.Context, m *model.Model) (*evaluate.Predictions, error) {
			return p.validation[which(m)].Predict(ctx, m, p.read)
		},
	}
	d := &sweep.Document{Loss: p.split[0].Loss, Rows: p.split[0].Rows, Entries: p.models[0].Prunable()}
	return d, c.Run(ctx, d)
}

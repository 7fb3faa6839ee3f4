package cut

import (
	"context"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/slice"
	"shaver/internal/prune/sweep"
)

// bench measures models that lack something, on validation rows.
type bench struct {
	*measure.Bench
	whole *evaluate.Predictions // of the model that lacks nothing; nil until begin
}

// openBench opens the validation split for ck. name is that of the loss, as for measure.Open.
func openBench(folders []string, name string, ck *checkpoint.Checkpoint) (*bench, error) {
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	b, err := measure.Open(folders, dataset.Val, name, m, ck.Known())
	return &bench{Bench: b}, err
}

// begin measures the whole model, and warns if it predicts worse than a constant.
func (b *bench) begin(ctx context.Context, o *Options, whole *checkpoint.Checkpoint) (err error) {
	if b.whole, err = b.predict(ctx, whole, nil); err == nil {
		o.doubt(b.whole)
	}
	return err
}

// of returns a bench for models with the fields of ck, which are some of those of b.
func (b *bench) of(ck *checkpoint.Checkpoint) (*bench, error) {
	part := *b.Bench
	var err error
	part.Dataset, err = b.Dataset.For(&ck.Architecture, ck.Known())
	return &bench{&part, b.whole}, err
}

// predict returns what ck predicts with the given table, or with its own one if that is nil.
func (b *bench) predict(ctx context.Context, ck *checkpoint.Checkpoint, table []float32) (*evaluate.Predictions, error) {
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	if table != nil {
		m = m.WithEmbedding(table)
	}
	return b.Predict(ctx, m, nil)
}

// rise returns by how much the loss rises from some predictions to others, both with or both without a calibration. What a
// calibration gains would otherwise hide what is lost.
func rise(before, after *evaluate.Predictions, calibrate bool) *sweep.Interval {
	one, other := loss.Uncalibrated, loss.Uncalibrated
	if calibrate {
		one, other = evaluate.Calibrate(before), evaluate.Calibrate(after)
	}
	return sweep.NewInterval(evaluate.CompareLoss(before, after, one, other))
}

// step returns the price of what is left of the whole model, which has the given predictions and cost.
func (b *bench) step(p *evaluate.Predictions, cost slice.Cost, calibrate bool) *slice.Step {
	return &slice.Step{Rise: rise(b.whole, p, calibrate), Figures: figures(p, cost)}
}

func figures(p *evaluate.Predictions, cost slice.Cost) slice.Figures {
	return slice.Figures{Loss: p.MeanLoss(loss.Uncalibrated), AUC: scores.Figure(p.Metrics().AUC), Cost: cost}
}

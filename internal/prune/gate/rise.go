package gate

import (
	"context"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/measure"
	"shaver/internal/num/loss"
)

// Pair names the files of a model and of its pruned form.
type Pair struct{ Model, Pruned string }

// Rise is by how much more a metric rises from one model to its pruned form than from another.
type Rise struct {
	Metric string // LogLoss, in nat, or RMSE
	Value  float64
	SE     float64 // standard error of Value
}

// CompareRises measures the rise of the loss of now minus that of before on the rows of a split of the dataset, or of
// the days of a window. evaluate.CompareRises documents the standard error.
func CompareRises(ctx context.Context, folders []string, split string, before, now Pair) (*Rise, error) {
	var models []*model.Model
	var known *model.Known
	for _, path := range []string{before.Model, before.Pruned, now.Model, now.Pruned} {
		ck, m, err := checkpoint.ReadModel(path, "")
		if err != nil {
			return nil, err
		}
		if path == now.Model {
			known = ck.Known()
		}
		models = append(models, m)
	}
	b, err := measure.Open(folders, split, "", models[2], known)
	if err != nil {
		return nil, err
	}
	all, err := b.PredictAll(ctx, models, nil)
	if err != nil {
		return nil, err
	}
	d := evaluate.CompareRises(all[0], all[1], all[2], all[3])
	r := &Rise{Metric: "LogLoss", Value: d.Value, SE: d.SE}
	if b.Loss == loss.Squared {
		r.Metric = "RMSE"
	}
	return r, nil
}

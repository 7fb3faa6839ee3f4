package steps

import (
	"context"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/data/measure"
)

// Measure returns the model in a file and its predictions of a split.
func Measure(ctx context.Context, file string, folders []string, split string) (*checkpoint.Checkpoint, *evaluate.Predictions, error) {
	ck, m, err := checkpoint.ReadModel(file, "")
	if err != nil {
		return nil, nil, err
	}
	b, err := measure.Open(folders, split, "", m, ck.Known())
	if err != nil {
		return nil, nil, err
	}
	found, err := b.Predict(ctx, m, nil)
	return ck, found, err
}

package shapley

import (
	"context"
	"fmt"

	"shaver/internal/click/model"
)

// Trial computes contributions and discards them. It shows how fast the level of package
// kernel that is in use plays the games of a model. Unlike Estimate it has no memory for
// sums, so it starts fast even if the table is large. Only one goroutine may use a Trial at a
// time, and only while the level that NewTrial found is in use.
type Trial struct{ player *player }

// NewTrial returns a Trial, or an error if the estimator cannot serve the model.
func NewTrial(game Game, options Options) (*Trial, error) {
	if err := options.check(&game); err != nil {
		return nil, err
	}
	return &Trial{newPlayer(game, options, false)}, nil
}

// Compute computes the contributions in all rows. An error names the row.
func (t *Trial) Compute(ctx context.Context, rows *model.Rows) error {
	chunk := t.player.evaluator.rows()
	for from := 0; from < rows.Len(); from += chunk {
		batch := rows.Slice(from, min(from+chunk, rows.Len()))
		if err := t.batch(ctx, &batch); err != nil {
			return err
		}
	}
	return nil
}

// batch computes at most as many rows as the evaluator accepts.
func (t *Trial) batch(ctx context.Context, rows *model.Rows) error {
	for r := range rows.Len() {
		if err := t.player.model.CheckRow(rows.Row(r)); err != nil {
			return fmt.Errorf("%s: %w", model.RowName(rows.Number[r]), err)
		}
	}
	if err := t.player.play(ctx, rows); err != nil {
		return err
	}
	for r := range rows.Len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.player.row(rows, r); err != nil {
			return fmt.Errorf("%s: %w", model.RowName(rows.Number[r]), err)
		}
	}
	return nil
}

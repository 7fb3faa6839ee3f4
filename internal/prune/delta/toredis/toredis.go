// Package toredis loads deltas into Redis.
package toredis

import (
	"context"

	"shaver/internal/data/redisrows"
	"shaver/internal/prune/delta"
)

// Load loads the delta in a folder into the store. A delta that is damaged, or does not start from the generation
// that the store has, is bad input, and the store stays as it was. repair is redisrows.Change.Repair.
func Load(ctx context.Context, s *redisrows.Store, folder string, repair bool) (*redisrows.Loaded, error) {
	d, err := delta.Open(folder)
	if err != nil {
		return nil, err
	}
	return s.Load(ctx, &redisrows.Change{
		Generation: d.Generation, Model: d.Model, Mask: d.Mask, Whole: d.From == nil, Digest: d.Digest, Head: d.HeadBytes, Repair: repair,
		Check: func(state *redisrows.State) error {
			var side delta.Side
			if state != nil {
				side = delta.Side{Generation: state.Generation, Model: state.Model, Mask: state.Mask}
			}
			return d.CheckFrom(s.String(), side)
		},
		Rows: func(each func(*redisrows.Row) error) error {
			row := &redisrows.Row{}
			return d.Rows(func(r *delta.Row) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				*row = redisrows.Row{Piece: r.Piece.Number, ID: r.ID, Width: r.Piece.Width, Columns: r.Columns, Values: r.Values}
				return each(row)
			})
		},
	})
}

package redisrows

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"shaver/internal/base/fault"
)

// ErrStale is returned by Fill if the store does not have all rows of the generation any more. The caller reads
// the head again.
var ErrStale = errors.New("the generation is not in the store any more")

// Head returns the state and the head of its generation. An empty store is bad input.
func (s *Store) Head(ctx context.Context) (*State, []byte, error) {
	for {
		state, err := s.State(ctx)
		if err != nil {
			return nil, nil, err
		}
		if state == nil {
			return nil, nil, fault.Inputf("%s has no model: load a whole delta", s.name)
		}
		head, err := s.client.Get(ctx, s.key("head", state.Generation)).Bytes()
		if err == nil {
			return state, head, nil
		}
		if err != redis.Nil {
			return nil, nil, fmt.Errorf("%s: %w", s.name, err)
		}
		// A loader has removed the head since the state was read, or somebody else has.
		if again, err := s.State(ctx); err != nil || again != nil && *again == *state {
			if err == nil {
				err = fault.Inputf("%s: the key %s is missing: load a whole delta", s.name, s.key("head", state.Generation))
			}
			return nil, nil, err
		}
	}
}

// Place is where the kept entries of a row go.
type Place struct {
	Piece, ID int
	Values    []float32 // [columns]
}

// readRows is the number of rows that one command reads.
const readRows = 500

// Fill sets the kept entries of n rows of the generation of a state. place returns a row. newer reports whether
// there is a newer generation. The rows are those of one generation, or Fill returns ErrStale.
func (s *Store) Fill(ctx context.Context, state *State, n int, place func(i int) Place) (newer bool, err error) {
	var reads []*redis.SliceCmd
	var oldest, now *redis.StringCmd
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for from := 0; from < n; from += readRows {
			keys := make([]string, min(readRows, n-from))
			for i := range keys {
				at := place(from + i)
				keys[i] = s.rowKey(state.Base, at.Piece, at.ID)
			}
			reads = append(reads, p.MGet(ctx, keys...))
		}
		oldest, now = p.Get(ctx, s.key("oldest")), p.Get(ctx, s.key("state")) // after the rows
		return nil
	})
	if err != nil && err != redis.Nil {
		return false, fmt.Errorf("%s: %w", s.name, err)
	}
	current, err := s.state(now)
	if err != nil {
		return false, err
	}
	if current == nil {
		return false, fault.Inputf("%s has no model any more: load a whole delta", s.name)
	}
	if least, err := oldest.Int64(); err != nil && err != redis.Nil {
		return false, fmt.Errorf("%s: the key %s: %w", s.name, s.key("oldest"), err)
	} else if least > state.Generation || current.Generation < state.Generation {
		return true, ErrStale
	}
	for k, read := range reads {
		for i, value := range read.Val() {
			text, ok := value.(string)
			if !ok {
				continue // it keeps nothing
			}
			at := place(k*readRows + i)
			all, err := versions([]byte(text), len(at.Values))
			if err != nil {
				return false, fault.Inputf("%s: key %s: %w of %d columns", s.name, s.rowKey(state.Base, at.Piece, at.ID), err, len(at.Values))
			}
			for _, v := range all {
				if v.generation() <= state.Generation {
					v.set(at.Values)
					break
				}
			}
		}
	}
	return *current != *state, nil
}

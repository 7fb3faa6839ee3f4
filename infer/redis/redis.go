// Package redis scores rows with a pruned model whose embedding rows are in Redis, where shaver model apply
// --redis has put them. The logits are those of package infer for the file of the model, to the last bit.
package redis

import (
	"context"
	"errors"
	"sync"

	"shaver/infer"
	"shaver/internal/data/redisrows"
)

// Model is a model in Redis. Any number of goroutines may use it at once.
type Model struct {
	store *redisrows.Store

	mu      sync.Mutex
	current *generation
}

// generation is a model that was in the store.
type generation struct {
	head  *infer.Head
	state *redisrows.Generation
}

// Open connects to the model at the address HOST:PORT, or redis://USER:PASSWORD@HOST:PORT/DB, whose keys begin with
// prefix, and reads its head. The caller must close the model.
func Open(ctx context.Context, address, prefix string) (*Model, error) {
	s, err := redisrows.Open(ctx, address, prefix)
	if err != nil {
		return nil, err
	}
	m := &Model{store: s}
	if err := m.replace(ctx, nil); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return m, nil
}

// Close closes the connections.
func (m *Model) Close() error { return m.store.Close() }

// Generation returns the generation that the next call of Logits reads first.
func (m *Model) Generation() int64 { return m.get().state.Generation }

// Head returns the head of this generation, which says which fields and dense inputs the model has.
func (m *Model) Head() *infer.Head { return m.get().head }

func (m *Model) get() *generation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// replace reads the head of the generation that the store has, unless another goroutine has replaced old.
func (m *Model) replace(ctx context.Context, old *generation) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != old {
		return nil
	}
	state, data, err := m.store.Head(ctx)
	if err != nil {
		return err
	}
	head, err := infer.OpenHead(m.store.String(), data)
	if err == nil {
		m.current = &generation{head, state}
	}
	return err
}

// Logits sets dst[i] to the logit of row i, as infer.Model.Logits does. All rows of a call are of one
// generation, whose number is the result. A call that finds a newer generation still ends with the one that it began
// with, unless the store has removed that, and reads the newer head for the next call. A row that is missing or damaged
// in the store is an error.
func (m *Model) Logits(ctx context.Context, dst []float64, ids []int32, dense []float32) (int64, error) {
	for {
		g := m.get()
		newer := false
		err := g.head.Logits(dst, ids, dense, func(rows []infer.Row) (err error) {
			newer, err = m.store.Fill(ctx, g.state, len(rows), func(i int) redisrows.Place {
				return redisrows.Place{Piece: rows[i].Piece, ID: rows[i].ID, Values: rows[i].Values}
			})
			return err
		})
		stale := errors.Is(err, redisrows.ErrStale)
		if newer || stale {
			if err := m.replace(ctx, g); err != nil {
				return 0, err
			}
		}
		if !stale {
			return g.state.Generation, err
		}
	}
}

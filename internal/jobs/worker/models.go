package worker

import (
	"context"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
	"shaver/internal/num/layout"
	"shaver/internal/value/mask"
	"shaver/internal/value/shapley"
)

// Models keeps the models of the task that was begun last: one, or two if its job is
// paired. The tasks of a job and the workers of a process share them. If Cache is set, more
// models are kept on disk. If Store is set, a model that is in it does not travel. The zero value is empty.
type Models struct {
	Cache *Cache // nil = none
	Store *Store // where models are looked for before they are fetched; nil = nowhere

	once   sync.Once
	turn   chan struct{}           // holds a value while a caller of get has its turn
	kept   map[string]*model.Model // by digest, at most two
	pruned pruned                  // that of the last round of a path
	// kernel is the one for which the models are packed.
	kernel string
}

// pruned is what the tasks of a round of a path share; see shapley.Options.
type pruned struct {
	name            string // digests of the model, the baseline and the masks
	model, measured *model.Model
	unmeasured      layout.Mask
}

// waitStep is the interval at which a caller of get that waits for its turn counts a
// step.
const waitStep = 50 * time.Millisecond

// get returns the model of a blob. It fetches the model unless it is kept. other is the
// blob of the other model that the task needs, if its job is paired. All models except
// these two are freed. One caller fetches at a time, and the others wait. get counts steps
// in both cases.
func (s *Models) get(ctx context.Context, b blobs, blob, other job.Blob, steps *atomic.Int64) (*model.Model, error) {
	if err := s.begin(ctx, steps); err != nil {
		return nil, err
	}
	defer func() { <-s.turn }()
	if name := kernel.Name(); s.kernel != name {
		s.kernel, s.kept, s.pruned = name, nil, pruned{}
	}
	maps.DeleteFunc(s.kept, func(digest string, _ *model.Model) bool { return digest != blob.SHA256 && digest != other.SHA256 })
	if m := s.kept[blob.SHA256]; m != nil {
		return m, nil
	}
	m, err := s.find(ctx, b, blob, steps)
	if err != nil {
		return nil, err
	}
	if s.kept == nil {
		s.kept = map[string]*model.Model{}
	}
	s.kept[blob.SHA256] = m
	return m, nil
}

// find returns the model of a blob, from the cache, from the store, or from the server.
func (s *Models) find(ctx context.Context, b blobs, blob job.Blob, steps *atomic.Int64) (*model.Model, error) {
	data := s.Cache.get(blob)
	if data == nil {
		data = s.Store.model(blob, steps)
	}
	if data == nil {
		var err error
		if data, err = fetch(ctx, b, blob, maxModelBytes, steps); err != nil {
			return nil, err
		}
		s.Cache.put(blob, data)
	}
	m, _, err := modelfile.Parse(blob.Name, data)
	return m, err
}

// round returns the model of g with the tables of the round of a task of a path, and sets what options have of the round. It
// fetches the masks unless they are kept. It keeps one round.
func (s *Models) round(ctx context.Context, b blobs, t *job.Task, g *shapley.Game, options *shapley.Options, steps *atomic.Int64) (*model.Model, error) {
	if err := s.begin(ctx, steps); err != nil {
		return nil, err
	}
	defer func() { <-s.turn }()
	name := t.Model.SHA256 + t.Baseline.SHA256 + t.Path.Masks.SHA256
	if s.pruned.name != name {
		s.pruned = pruned{} // frees its memory
		data, err := fetch(ctx, b, t.Path.Masks, maxShardBytes, steps)
		if err != nil {
			return nil, err
		}
		dropped, entries := layout.Mask(data), g.Model.Parameters()
		unmeasured := dropped
		if t.Path.Adds {
			dropped, unmeasured = dropped[:len(data)/2], dropped[len(data)/2:]
		}
		for _, m := range []layout.Mask{dropped, unmeasured} {
			if err := m.Check(entries); err != nil {
				return nil, fault.Inputf("%s: %w", t.Path.Masks.Name, err)
			}
		}
		without := func(m layout.Mask) *model.Model {
			return g.Model.WithEmbedding(mask.Apply(&g.Model.Architecture, g.Model.Weights.Embedding, m.Bools(entries), g.Baseline))
		}
		s.pruned = pruned{name: name, model: without(dropped), unmeasured: unmeasured}
		if t.Path.Adds {
			s.pruned.measured = without(unmeasured)
		}
	}
	options.Unmeasured, options.Measured, options.Calibration = s.pruned.unmeasured, s.pruned.measured, t.Path.Calibration
	return s.pruned.model.Freeze(t.Spec.Freeze), nil
}

// begin waits for the caller's turn. It counts steps, so that the caller's task keeps
// its lease.
func (s *Models) begin(ctx context.Context, steps *atomic.Int64) error {
	s.once.Do(func() { s.turn = make(chan struct{}, 1) })
	tick := time.NewTicker(waitStep)
	defer tick.Stop()
	for {
		select {
		case s.turn <- struct{}{}:
			return nil
		case <-tick.C:
			steps.Add(1)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fetch returns the bytes of a blob. It counts steps as they arrive.
func fetch(ctx context.Context, b blobs, blob job.Blob, limit int64, steps *atomic.Int64) (data []byte, err error) {
	err = b.GetInto(ctx, blob, limit, func(in io.Reader) error {
		data = make([]byte, blob.Bytes) // GetInto has checked the size
		for at := 0; at < len(data); {
			n, err := io.ReadFull(in, data[at:min(at+1<<20, len(data))])
			if err != nil {
				return err
			}
			at += n
			steps.Add(1)
		}
		return nil
	})
	return data, err
}

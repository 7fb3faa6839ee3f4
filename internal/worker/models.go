package worker

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"shaver/internal/bus"
	"shaver/internal/checkpoint"
	"shaver/internal/job"
	"shaver/internal/model"
)

// Models keeps the model that was used last, so that the tasks of a job, and
// the workers of a process, share one copy, and more of them on disk if Cache is
// set. The zero value is empty.
type Models struct {
	Cache *Cache // nil = none

	mu     sync.Mutex
	digest string
	model  *model.Model
}

// get returns the model of a blob, fetching it if it is another than the last.
// steps grows as it gets on.
func (s *Models) get(ctx context.Context, b *bus.Bus, blob job.Blob, steps *atomic.Int64) (*model.Model, error) {
	for !s.mu.TryLock() { // another task of this process fetches it
		select {
		case <-time.After(50 * time.Millisecond):
			steps.Add(1)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer s.mu.Unlock()
	if s.digest == blob.SHA256 {
		return s.model, nil
	}
	s.digest, s.model = "", nil // one at a time in memory
	data := s.Cache.get(blob)
	if data == nil {
		var err error
		if data, err = fetch(ctx, b, blob, maxModelBytes, steps); err != nil {
			return nil, err
		}
		s.Cache.put(blob, data)
	}
	ck, err := checkpoint.Parse(blob.Name, data)
	if err != nil {
		return nil, err
	}
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	s.digest, s.model = blob.SHA256, m
	return m, nil
}

// fetch is Bus.Get for a large blob: what arrives of it counts as getting on.
func fetch(ctx context.Context, b *bus.Bus, blob job.Blob, limit int64, steps *atomic.Int64) (data []byte, err error) {
	err = b.GetInto(ctx, blob, limit, func(in io.Reader) error {
		data = make([]byte, blob.Bytes) // which are stored
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

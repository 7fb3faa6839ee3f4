package worker

import (
	"context"
	"sync"

	"shaver/internal/bus"
	"shaver/internal/checkpoint"
	"shaver/internal/job"
	"shaver/internal/model"
)

// Models keeps the model that was used last, so that the tasks of a job, and
// the workers of a process, share one copy. The zero value is empty.
type Models struct {
	mu     sync.Mutex
	digest string
	model  *model.Model
}

// get returns the model of a blob, fetching it if it is another than the last.
func (s *Models) get(ctx context.Context, b *bus.Bus, blob job.Blob) (*model.Model, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.digest == blob.SHA256 {
		return s.model, nil
	}
	data, err := b.Get(ctx, blob, maxModelBytes)
	if err != nil {
		return nil, err
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

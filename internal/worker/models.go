package worker

import (
	"sync"

	"shaver/internal/checkpoint"
	"shaver/internal/model"
)

// Models keeps the model that was used last, so that the tasks of a job, and
// the workers of a process, share one copy. The zero value is empty.
type Models struct {
	mu     sync.Mutex
	digest string
	model  *model.Model
}

// get returns the model of a digest; fetch reads it if it is another than the
// last.
func (s *Models) get(digest string, fetch func() ([]byte, error)) (*model.Model, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.digest == digest {
		return s.model, nil
	}
	data, err := fetch()
	if err != nil {
		return nil, err
	}
	ck, err := checkpoint.Parse("model "+digest, data)
	if err != nil {
		return nil, err
	}
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	s.digest, s.model = digest, m
	return m, nil
}

package autoscale

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// Deployment is something with a number of replicas that can be changed.
type Deployment interface {
	// Get returns the size of the Deployment.
	Get(ctx context.Context) (Size, error)
	// Set changes the number of replicas. It fails if the Deployment has changed since the
	// size was read.
	Set(ctx context.Context, replicas int, was Size) error
}

// Size is the size of a Deployment.
type Size struct {
	Wanted   int    // replicas that the Deployment should have
	Replicas int    // replicas that it has
	version  string // of the object in the API server
}

// Scaler sizes a Deployment by the queue. It must not be used concurrently.
type Scaler struct {
	Rule       Rule
	Deployment Deployment
	Log        *zap.Logger

	window window
	begun  bool
}

// Step reads the size of the Deployment and changes it if the demand needs another one. It
// returns the size that the Deployment had and the number of replicas that it should have.
// A demand of nil is unknown, for example because NATS cannot be reached. Then the Deployment
// keeps its size, and it keeps it for DownAfter once the demand is known again.
func (s *Scaler) Step(ctx context.Context, now time.Time, d *Demand) (Size, int, error) {
	size, err := s.Deployment.Get(ctx)
	if err != nil {
		s.begun = false // nobody knows what happened meanwhile
		return Size{}, 0, err
	}
	need := size.Wanted
	if d != nil && s.begun {
		need = s.Rule.Need(*d)
	}
	// The first demand after a start or a gap counts as that of the present replicas.
	s.begun = d != nil
	peak := s.window.add(now, now.Add(-s.Rule.DownAfter), need)
	if d == nil {
		return size, size.Wanted, nil
	}
	wanted := s.Rule.Decide(*d, size.Wanted, peak)
	if wanted == size.Wanted {
		return size, wanted, nil
	}
	if err := s.Deployment.Set(ctx, wanted, size); err != nil {
		return size, wanted, err
	}
	s.Log.Info("scaled the workers", zap.Int("from", size.Wanted), zap.Int("to", wanted), zap.Int("waiting", d.Waiting), zap.Int("held", d.Held))
	return size, wanted, nil
}

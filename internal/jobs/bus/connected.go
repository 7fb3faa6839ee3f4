package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"shaver/internal/jobs/job"
)

// whoSubject is the subject on which coordinators and operators ask workers who they are.
// Each worker answers with a job.Build. The question and the answers are not stored. All
// builds since protocol 1 use this subject and the properties of job.Build, which must not
// change, because builds of different protocols ask each other.
const whoSubject = "shaver.who"

const (
	whoWithin  = time.Second            // for all answers
	whoQuiet   = 300 * time.Millisecond // without another answer
	mostBuilds = 10_000
)

// Announce makes this client answer who it is, until the Bus is closed. If the server does
// not permit it, the worker works but stays unknown. Announce waits a while until the server
// passes questions on to this client.
func (b *Bus) Announce(build job.Build) error {
	build.Name, build.Kernel, build.Kernels, build.Program = tidy(build.Name), tidy(build.Kernel), tidy(build.Kernels), tidy(build.Program)
	build.Leaving = false
	body, err := json.Marshal(build)
	if err != nil {
		return err
	}
	build.Leaving = true
	leaving, err := json.Marshal(build)
	if err != nil {
		return err
	}
	_, err = b.answer(whoSubject, "", func([]byte) []byte {
		if b.leaving.Load() {
			return leaving
		}
		return body
	})
	return err
}

// SetLeaving makes the answers of this client say that it is leaving.
func (b *Bus) SetLeaving() { b.leaving.Store(true) }

// Connected is what can be seen of the workers that are connected to the server.
type Connected struct {
	Builds []job.Build // workers that answered, by name
	// Asking is the number of workers that ask for tasks of the kernel and this protocol or
	// hold one, as the server counts them. It includes workers that cannot answer.
	Asking int
	// Older is the number of workers with the kernel and protocol 0 that ask for tasks.
	// They cannot answer.
	Older int
	// Paused is the name of the consumer of the tasks if somebody has paused it; otherwise "".
	Paused string
}

// Connected asks all workers who they are, and waits for answers for at most a second.
func (b *Bus) Connected(ctx context.Context) ([]job.Build, error) {
	ctx, cancel := context.WithTimeout(ctx, whoWithin)
	defer cancel()
	inbox := b.nc.NewInbox()
	answers, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("ask workers: %w", err)
	}
	defer func() { _ = answers.Unsubscribe() }() // fails if the connection is closed
	if err := b.nc.PublishRequest(whoSubject, inbox, nil); err != nil {
		return nil, fmt.Errorf("ask workers: %w", err)
	}
	builds := []job.Build{}
	for len(builds) < mostBuilds {
		quiet, cancel := context.WithTimeout(ctx, whoQuiet)
		m, err := answers.NextMsgWithContext(quiet)
		cancel()
		if err != nil || len(m.Data) == 0 { // an empty answer comes from the server if no worker listens
			break
		}
		var build job.Build
		if json.Unmarshal(m.Data, &build) == nil {
			builds = append(builds, build)
		}
	}
	slices.SortFunc(builds, func(x, y job.Build) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), cmp.Compare(x.Protocol, y.Protocol))
	})
	return builds, nil
}

// ConnectedTo is Connected, with the workers of the kernel that the server counts.
func (b *Bus) ConnectedTo(ctx context.Context, kernel string) (c Connected, err error) {
	if c.Builds, err = b.Connected(ctx); err != nil {
		return c, err
	}
	own, err := b.workers(ctx, ownQueue(kernel))
	if err != nil {
		return c, err
	}
	c.Asking = own.NumWaiting + own.NumAckPending
	if own.Paused {
		c.Paused = own.Name
	}
	if job.Protocol > 0 {
		older, err := b.workers(ctx, QueueName(kernel, 0))
		if err != nil {
			return c, err
		}
		c.Older = older.NumWaiting + older.NumAckPending
	}
	return c, nil
}

// Asking returns the number of tasks for the kernel that workers ask for or hold, and how many of those were given to
// a worker before, which died, left or failed.
func (b *Bus) Asking(ctx context.Context, kernel string) (tasks, again int, err error) {
	info, err := b.workers(ctx, ownQueue(kernel))
	return info.NumWaiting + info.NumAckPending, min(info.NumRedelivered, info.NumAckPending), err
}

// workers returns what the server knows of the consumer of a queue's workers. It is zero if there is no consumer.
func (b *Bus) workers(ctx context.Context, queue string) (info jetstream.ConsumerInfo, err error) {
	err = b.call(ctx, "count workers", func(ctx context.Context) error {
		consumer, err := b.js.Consumer(ctx, tasksStream, workersPrefix+queue)
		if err == nil {
			info = *consumer.CachedInfo()
		}
		return err
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return info, nil
	}
	return info, err
}

// Fit reports whether a connected worker can compute tasks with the kernel from
// coordinators of this build.
func (c *Connected) Fit(kernel string) bool {
	return c.Asking > 0 || slices.ContainsFunc(c.Builds, func(b job.Build) bool { return b.Computes(kernel) && b.Protocol == job.Protocol })
}

// String describes the workers by their kernels, protocols and programs.
func (c *Connected) String() string {
	type group struct {
		kernel   string
		protocol int
		program  string
	}
	count, order := map[group]int{}, []group{}
	for _, b := range c.Builds {
		g := group{b.AllKernels(), b.Protocol, b.Program}
		if count[g]++; count[g] == 1 {
			order = append(order, g)
		}
	}
	slices.SortFunc(order, func(x, y group) int {
		return cmp.Or(strings.Compare(x.kernel, y.kernel), cmp.Compare(x.protocol, y.protocol), strings.Compare(x.program, y.program))
	})
	var parts []string
	for _, g := range order {
		parts = append(parts, fmt.Sprintf("%d with kernel %s and protocol %d (%s)", count[g], g.kernel, g.protocol, g.program))
	}
	if c.Older > 0 {
		parts = append(parts, fmt.Sprintf("%d of a build without protocol", c.Older))
	}
	if len(parts) == 0 {
		return "none (builds before protocol 1 do not answer)"
	}
	return tidy(strings.Join(parts, ", "))
}

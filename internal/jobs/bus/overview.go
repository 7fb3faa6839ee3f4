package bus

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Overview is what a server holds for all jobs. The leader of each stream and consumer
// gives the numbers, so they do not depend on the replica that the client is connected to.
type Overview struct {
	Jobs    []JobOverview // ordered by id
	Kernels []Tasks       // ordered by kernel and protocol
}

// JobOverview is what a server holds for a job.
type JobOverview struct {
	Status
	Submitted  time.Time // when the job was submitted
	Progressed time.Time // when a coordinator last wrote the progress; zero = never
	// Led is when the record of the leader was last written: with a checkpoint, or when a
	// coordinator took the job over. Zero means that nobody has led the job.
	Led         time.Time
	Checkpoint  string // name of the last checkpoint; "" = none
	Out         string // where the last coordinator writes the scores; "" = unknown
	Epoch       int64  // number of times that a coordinator took the job over
	Results     int    // results that are stored and not yet covered by a checkpoint
	Quarantined int    // shards in quarantine, including those whose data the coordinator has to store again
}

// Tasks is the state of the tasks for workers with one kernel and protocol.
type Tasks struct {
	Kernel   string
	Protocol int // of the coordinators that published the tasks; see job.Protocol
	Waiting  int // tasks that were given to no worker
	// Held is the number of tasks that were given to a worker and are not finished. The task of
	// a worker that died counts until another worker has finished it.
	Held int
	Idle int // workers that wait for a task
	// Again is how many of Held were given to a worker before, which died, left or failed.
	Again int
}

// Overview reads what the server holds for all jobs. It changes nothing. A server to which no
// job was ever submitted holds nothing. The parts are read one after the other, so a job may
// have advanced between them.
func (b *Bus) Overview(ctx context.Context) (*Overview, error) {
	o := &Overview{}
	var err error
	if o.Kernels, err = b.tasks(ctx); err != nil {
		return nil, err
	}
	statuses, err := b.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	results, err := b.countByJob(ctx, resultsStream, resultPrefix)
	if err != nil {
		return nil, err
	}
	aside, err := b.countByJob(ctx, quarantineStream, quarantinePrefix)
	if err != nil {
		return nil, err
	}
	for _, s := range statuses {
		j := JobOverview{Status: s, Results: results[s.ID], Quarantined: aside[s.ID]}
		what := "look up job " + s.ID
		spec, err := b.key(ctx, what, jobPrefix+s.ID+".spec")
		if err != nil {
			return nil, err
		}
		if spec == nil { // the job has ended since
			continue
		}
		j.Submitted = spec.Time
		progress, err := b.key(ctx, what, jobPrefix+s.ID+".progress")
		if err != nil {
			return nil, err
		}
		if progress != nil {
			j.Progressed = progress.Time
		}
		record, err := b.key(ctx, what, leadKey(s.ID))
		if err != nil {
			return nil, err
		}
		if record != nil {
			j.Led = record.Time
			if lead, err := decode(checkLead, record.Data); err == nil { // a record that cannot be read has no epoch
				j.Epoch, j.Out = lead.Epoch, lead.Out
				if lead.Checkpoint != nil {
					j.Checkpoint = lead.Checkpoint.Name
				}
			}
		}
		o.Jobs = append(o.Jobs, j)
	}
	return o, nil
}

// tasks returns the state of the tasks of each kernel and protocol with a consumer or a task.
func (b *Bus) tasks(ctx context.Context) ([]Tasks, error) {
	const what = "count the tasks"
	subjects, err := b.subjects(ctx, what, tasksStream, taskPrefix+">")
	if errors.Is(err, jetstream.ErrStreamNotFound) { // no job was ever submitted to this server
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	stored := map[string]int{}
	for on := range subjects {
		if queue, _, _, ok := parseTask(on); ok {
			stored[queue]++
		}
	}
	queues := map[string]*Tasks{}
	for queue, n := range stored {
		kernel, protocol := parseQueue(queue)
		queues[queue] = &Tasks{Kernel: kernel, Protocol: protocol, Waiting: n}
	}
	consumers, err := b.consumers(ctx, what)
	if err != nil {
		return nil, err
	}
	for _, info := range consumers {
		queue, ok := strings.CutPrefix(info.Name, workersPrefix)
		if !ok {
			continue
		}
		held := min(info.NumAckPending, stored[queue]) // the server may count a task that was deleted just now
		kernel, protocol := parseQueue(queue)
		queues[queue] = &Tasks{Kernel: kernel, Protocol: protocol, Waiting: stored[queue] - held, Held: held, Idle: info.NumWaiting, Again: min(info.NumRedelivered, held)}
	}
	all := []Tasks{}
	for _, t := range queues {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(x, y Tasks) int {
		return cmp.Or(strings.Compare(x.Kernel, y.Kernel), cmp.Compare(x.Protocol, y.Protocol))
	})
	return all, nil
}

// consumers returns the consumers of tasks, each as its leader sees it.
func (b *Bus) consumers(ctx context.Context, what string) (all []*jetstream.ConsumerInfo, err error) {
	var names []string
	err = b.call(ctx, what, func(ctx context.Context) error {
		s, err := b.stream(ctx, tasksStream)
		if err != nil {
			return err
		}
		names = nil
		list := s.ConsumerNames(ctx)
		for name := range list.Name() {
			names = append(names, name)
		}
		return list.Err()
	})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var info *jetstream.ConsumerInfo
		err := b.call(ctx, what, func(ctx context.Context) error {
			consumer, err := b.js.Consumer(ctx, tasksStream, name)
			if err == nil {
				info = consumer.CachedInfo()
			}
			return err
		})
		if errors.Is(err, jetstream.ErrConsumerNotFound) { // it was deleted since
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// countByJob returns the number of shards of each job for which a stream holds a message.
func (b *Bus) countByJob(ctx context.Context, stream, prefix string) (map[string]int, error) {
	held, err := b.subjects(ctx, "count the messages of "+stream, stream, prefix+">")
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	count := map[string]int{}
	for on := range held {
		if id, _, ok := parseSubject(prefix, on); ok {
			count[id]++
		}
	}
	return count, nil
}

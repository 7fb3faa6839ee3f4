package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"shaver/internal/fault"
	"shaver/internal/job"
)

// States of a job, as Progress says them.
const (
	Running   = "running"
	Stalled   = "stalled"   // runs, but no result came for a while: see Waiting
	Finished  = "finished"  // the scores are written
	Failed    = "failed"    // its state is kept, and it can be submitted again
	Cancelled = "cancelled" // nothing of it is kept
	// Interrupted is a job that no coordinator leads at present; it is not
	// stored, but concluded from silence. Submitting it again resumes it.
	Interrupted = "interrupted"
)

// Progress tells people how a job is doing: the value of the key JOB.progress.
// Nothing depends on it.
type Progress struct {
	Job         string    `json:"job"`
	State       string    `json:"state"`
	Epoch       int64     `json:"epoch"`
	Rows        int64     `json:"rows"`         // merged
	RowsTotal   int64     `json:"rows_total"`   // to score
	Shards      int       `json:"shards"`       // merged
	ShardsTotal int       `json:"shards_total"` // of the plan
	Open        int       `json:"open"`         // published and not merged
	Quarantined int       `json:"quarantined"`  // set aside
	Rate        float64   `json:"rate"`         // rows a second since this coordinator began, those it resumed from left out
	Left        float64   `json:"left"`         // seconds to go at that rate; 0 = not known
	Started     time.Time `json:"started"`      // this coordinator
	Updated     time.Time `json:"updated"`
	Checkpoint  time.Time `json:"checkpoint"` // when the last one was stored; zero = none in this epoch
	Waiting     string    `json:"waiting"`    // what the job waits for
	Workers     []Worker  `json:"workers"`    // that this coordinator heard of, by name
}

// Worker is a worker's part in a job since its coordinator began.
type Worker struct {
	Name   string    `json:"name"`
	Shards int       `json:"shards"`
	Rate   float64   `json:"rate"` // rows a second of its computing
	Seen   time.Time `json:"seen"` // when its last result was merged
}

// Status is what is known of a job from outside.
type Status struct {
	ID       string   `json:"id"`
	Spec     job.Spec `json:"spec"`
	Plan     job.Plan `json:"plan"`
	Progress Progress `json:"progress"`
}

// silence is how long the progress of a job that a coordinator leads stays as it
// is at most; they write it every two seconds.
const silence = 15 * time.Second

// ErrNoJob says that no such job is stored: it was never submitted, or is over.
var ErrNoJob = errors.New("no such job")

// Jobs returns the jobs that are stored, by id. A finished one is not: its
// scores are.
func (b *Bus) Jobs(ctx context.Context) ([]Status, error) {
	held, err := b.subjects(ctx, "list jobs", jobStream, jobPrefix+"*.spec")
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) { // no job was ever submitted there
		return nil, err
	}
	all := []Status{}
	for on := range held {
		id := strings.TrimSuffix(strings.TrimPrefix(on, jobPrefix), ".spec")
		if !isJob(id) {
			continue
		}
		s, err := b.JobStatus(ctx, id)
		if errors.Is(err, ErrNoJob) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y Status) int { return strings.Compare(x.ID, y.ID) })
	return all, nil
}

// JobStatus returns how a job is doing, or ErrNoJob.
func (b *Bus) JobStatus(ctx context.Context, jobID string) (Status, error) {
	if err := checkJob(jobID); err != nil {
		return Status{}, err
	}
	s := Status{ID: jobID}
	what := "look up job " + jobID
	spec, err := b.key(ctx, what, jobPrefix+jobID+".spec")
	if err != nil {
		return s, err
	}
	if spec == nil {
		return s, fmt.Errorf("job %s: %w", jobID, ErrNoJob)
	}
	var submitted job.Submission
	if err := json.Unmarshal(spec.Data, &submitted); err != nil {
		return s, fmt.Errorf("job %s: its specification: %w", jobID, err)
	}
	s.Spec, s.Plan = submitted.Spec, submitted.Plan
	s.Progress = Progress{Job: jobID, State: Interrupted, RowsTotal: s.Plan.Rows, Waiting: "a coordinator", Workers: []Worker{}}
	if s.Plan.RowsPerShard > 0 {
		s.Progress.ShardsTotal = s.Plan.Shards()
	}
	told, err := b.key(ctx, what, jobPrefix+jobID+".progress")
	if err != nil || told == nil {
		return s, err
	}
	if err := json.Unmarshal(told.Data, &s.Progress); err != nil {
		return s, fmt.Errorf("job %s: its progress: %w", jobID, err)
	}
	if p := &s.Progress; (p.State == Running || p.State == Stalled) && time.Since(told.Time) > silence {
		p.State, p.Rate, p.Left = Interrupted, 0, 0
		p.Waiting = fmt.Sprintf("a coordinator: the last one was heard of %v ago", time.Since(told.Time).Round(time.Second))
	}
	return s, nil
}

// SetProgress stores what people see of a job.
func (b *Bus) SetProgress(ctx context.Context, p Progress) error {
	if err := checkJob(p.Job); err != nil {
		return err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return b.set(ctx, "store the progress of job "+p.Job, jobPrefix+p.Job+".progress", body)
}

// Watch calls f with the job's status, at once and whenever it changes, until
// the job has ended or is no longer stored, which is no error, or f returns one.
// A job that is never stored is ErrNoJob.
func (b *Bus) Watch(ctx context.Context, jobID string, f func(Status) error) error {
	var last Progress
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for first := true; ; first = false {
		s, err := b.JobStatus(ctx, jobID)
		if errors.Is(err, ErrNoJob) && !first {
			return nil
		}
		if err != nil {
			return err
		}
		if p := s.Progress; first || !p.Updated.Equal(last.Updated) || p.State != last.State {
			last = p
			if err := f(s); err != nil {
				return err
			}
		}
		if slices.Contains([]string{Finished, Failed, Cancelled}, last.State) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Cancel asks the job's coordinator to end it and to delete all that is stored
// of it. With no coordinator nothing happens until one takes the job.
func (b *Bus) Cancel(ctx context.Context, jobID string) error {
	if _, err := b.JobStatus(ctx, jobID); err != nil {
		return err
	}
	return b.set(ctx, "cancel job "+jobID, jobPrefix+jobID+".cancel", []byte("{}"))
}

// IsCancelled reports whether Cancel was called.
func (b *Bus) IsCancelled(ctx context.Context, jobID string) (bool, error) {
	msg, err := b.key(ctx, "look up job "+jobID, jobPrefix+jobID+".cancel")
	return msg != nil, err
}

// IsOpen reports whether the job is still stored: what is computed for it is of
// use to somebody.
func (b *Bus) IsOpen(ctx context.Context, jobID string) (bool, error) {
	if err := checkJob(jobID); err != nil {
		return false, err
	}
	msg, err := b.key(ctx, "look up job "+jobID, jobPrefix+jobID+".spec")
	return msg != nil, err
}

// Quarantined returns the job's shards that were set aside, and why, in order.
func (b *Bus) Quarantined(ctx context.Context, jobID string) ([]job.Quarantine, error) {
	what := "list the quarantine of job " + jobID
	shards, err := b.shards(ctx, what, jobID, quarantineStream, quarantinePrefix)
	all := []job.Quarantine{}
	for _, shard := range shards {
		on := subject(quarantinePrefix, jobID, shard)
		msg, err := b.last(ctx, what, quarantineStream, on)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		q, err := decodeQuarantine(on, msg.Data)
		if err != nil {
			q = job.Quarantine{Job: jobID, Shard: shard, Reason: err.Error()}
		}
		all = append(all, q)
	}
	return all, err
}

// Retry puts shards of a job back that were set aside, and returns how many; no
// shards means all. The job's coordinator publishes them again, or the next one.
func (b *Bus) Retry(ctx context.Context, jobID string, shards ...int) (int, error) {
	held, err := b.shards(ctx, "list the quarantine of job "+jobID, jobID, quarantineStream, quarantinePrefix)
	if err != nil {
		return 0, err
	}
	for _, shard := range shards {
		if !slices.Contains(held, shard) {
			return 0, fault.Inputf("shard %d of job %s is not quarantined", shard, jobID)
		}
	}
	if len(shards) == 0 {
		shards = held
	}
	for _, shard := range shards {
		if err := b.DeleteQuarantine(ctx, jobID, shard); err != nil {
			return 0, err
		}
	}
	return len(shards), nil
}

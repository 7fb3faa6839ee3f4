package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/job"
)

// The states of a job, as Progress gives them.
const (
	Running   = "running"
	Stalled   = "stalled"   // running, but no result came for a while; Waiting gives the reason
	Finished  = "finished"  // the scores are written
	Failed    = "failed"    // its computed part is kept, and the job can be submitted again
	Cancelled = "cancelled" // everything stored for the job was deleted
	// Interrupted is a job that no coordinator leads at present. The state is not stored.
	// Clients infer it when no progress is written. Submitting the job again resumes it.
	Interrupted = "interrupted"
	// Unreadable is a job whose stored specification cannot be read. The state is not
	// stored. Status.Error gives the reason.
	Unreadable = "unreadable"
)

// Progress shows people how a job is doing. It is the value of the key JOB.progress, and
// nothing depends on it.
type Progress struct {
	Job         string    `json:"job"`
	State       string    `json:"state"`
	Epoch       int64     `json:"epoch"`
	Rows        int64     `json:"rows"`         // rows merged
	RowsTotal   int64     `json:"rows_total"`   // rows to score
	Shards      int       `json:"shards"`       // shards merged
	ShardsTotal int       `json:"shards_total"` // shards of the plan
	Open        int       `json:"open"`         // shards published and not merged
	Quarantined int       `json:"quarantined"`  // shards in quarantine
	Rate        float64   `json:"rate"`         // rows merged per second since this coordinator began, without those of the resumed checkpoint
	Left        float64   `json:"left"`         // estimated seconds to the end at that rate; 0 = unknown
	Started     time.Time `json:"started"`      // when this coordinator began
	Updated     time.Time `json:"updated"`      // when this progress was written
	Checkpoint  time.Time `json:"checkpoint"`   // when the last checkpoint was stored; zero = none in this epoch
	Waiting     string    `json:"waiting"`      // what the job is waiting for
	Workers     []Worker  `json:"workers"`      // workers that this coordinator got results from, by name

	// What follows is for the page of a job. Coordinators before it existed do not write it.

	CPU float64 `json:"cpu,omitempty"` // core-seconds that workers report, those of earlier coordinators included
	// Soonest and Latest are seconds to the end at the fastest and at the slowest rate observed
	// lately, counting all rounds. 0 = unknown; Latest alone is unknown if results stopped coming.
	Soonest float64       `json:"soonest,omitempty"`
	Latest  float64       `json:"latest,omitempty"`
	Strip   *Strip        `json:"strip,omitempty"`   // where the shards are; nil = unknown
	Rounds  []Round       `json:"rounds,omitempty"`  // rounds that are over, of a job with a rule and of a path
	Aside   []Aside       `json:"aside,omitempty"`   // first shards in quarantine, at most MostNamed
	Retried int           `json:"retried,omitempty"` // number of times that this coordinator published a shard again
	Retries []Republished `json:"retries,omitempty"` // the last of them, at most MostNamed, the oldest first
	Lost    []Lost        `json:"lost,omitempty"`    // the last workers that fell silent while tasks went to other workers, at most MostNamed, the oldest first
	// Warnings are sentences without a full stop that say what the scores of a finished job lack.
	Warnings []string `json:"warnings,omitempty"`
}

// MostNamed bounds the shards that a progress names, and MostCells the cells of a Strip.
const (
	MostNamed = 20
	MostCells = 400
)

// Strip shows the shards of a job in their order, in at most MostCells cells of Size shards. The
// last cell may have fewer.
type Strip struct {
	Size int   `json:"size"`
	Runs []Run `json:"runs"`
}

// Run is a number of cells in a row that are alike. Its other numbers are shards of each cell.
type Run struct {
	Cells  int `json:"cells"`
	Merged int `json:"merged,omitempty"`
	Open   int `json:"open,omitempty"`  // published and not merged
	Aside  int `json:"aside,omitempty"` // in quarantine
}

// Round is what a round of a job found.
type Round struct {
	Rows   int64    `json:"rows"`             // rows of the round, or of a job with a rule those of all rounds so far
	Figure *float64 `json:"figure,omitempty"` // number that the rule of the job compares with its bound; nil = not defined
	Kept   int      `json:"kept,omitempty"`   // of a path: entries of the table that was measured
	Loss   float64  `json:"loss,omitempty"`   // of a path: mean loss of that table, nat
}

// Aside is a shard in quarantine.
type Aside struct {
	Shard  int    `json:"shard"`
	Input  bool   `json:"input,omitempty"` // see job.Quarantine
	Worker string `json:"worker"`
	Reason string `json:"reason"` // at most 400 bytes
}

// Republished is a shard that was published another time.
type Republished struct {
	Shard int       `json:"shard"`
	At    time.Time `json:"at"`
	Why   string    `json:"why"` // at most 400 bytes
}

// Lost is a worker that fell silent. The task that it holds goes to another worker when its lease has run out.
type Lost struct {
	Worker string    `json:"worker"`
	Seen   time.Time `json:"seen"` // when its last result was merged, or it last answered
	At     time.Time `json:"at"`   // when it was asked and did not answer
}

// Silence returns how long the worker had been silent then.
func (l *Lost) Silence() time.Duration { return l.At.Sub(l.Seen) }

// Text says what happened.
func (l *Lost) Text() string {
	return fmt.Sprintf("no word from worker %s for %.0f s: if it holds a task, another worker gets it", l.Worker, l.Silence().Seconds())
}

// Worker is a worker's share of a job since the job's coordinator began.
type Worker struct {
	Name   string    `json:"name"`
	Shards int       `json:"shards"`
	Rate   float64   `json:"rate"` // rows per second of computing time
	Seen   time.Time `json:"seen"` // when its last result was merged
}

// Status is what a client can see of a job.
type Status struct {
	ID       string   `json:"id"`
	Spec     job.Spec `json:"spec"`
	Plan     job.Plan `json:"plan"`
	Progress Progress `json:"progress"`
	Error    string   `json:"error,omitempty"` // why the job is unreadable
}

// staleAfter is the age of the progress at which a job is considered interrupted. A
// coordinator writes the progress every two seconds.
const staleAfter = 15 * time.Second

// ErrNoJob means that no such job is stored. It was never submitted, or it is over.
var ErrNoJob = errors.New("no such job")

// Jobs returns the stored jobs, ordered by id. A finished job is no longer stored. A job
// that cannot be read does not hide the others; its state is Unreadable.
func (b *Bus) Jobs(ctx context.Context) ([]Status, error) {
	held, err := b.subjects(ctx, "list jobs", jobStream, jobPrefix+"*.spec")
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) { // no job was ever submitted to this server
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
		if errors.Is(err, ErrUnreadable) {
			s.Progress.State, s.Error, err = Unreadable, err.Error(), nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y Status) int { return strings.Compare(x.ID, y.ID) })
	return all, nil
}

// HasJobs reports whether a job is stored, which also a worker may ask. It may be one that no coordinator
// leads now.
func (b *Bus) HasJobs(ctx context.Context) (bool, error) {
	held, err := b.subjects(ctx, "look for jobs", jobStream, jobPrefix+"*.spec")
	if errors.Is(err, jetstream.ErrStreamNotFound) { // no job was ever submitted to this server
		err = nil
	}
	return len(held) > 0, err
}

// FindJob returns the id of the stored job that begins with prefix. An empty prefix stands for the
// only job, or for the only one that runs. It is bad input if there is no such job, or more than
// one. A whole id is returned as it is, stored or not.
func (b *Bus) FindJob(ctx context.Context, prefix string) (string, error) {
	if isJob(prefix) {
		return prefix, nil
	}
	jobs, err := b.Jobs(ctx)
	if err != nil {
		return "", err
	}
	found, running := []string{}, []string{}
	for _, s := range jobs {
		if !strings.HasPrefix(s.ID, prefix) {
			continue
		}
		found = append(found, s.ID)
		if s.Progress.State == Running || s.Progress.State == Stalled {
			running = append(running, s.ID)
		}
	}
	if prefix == "" && len(running) == 1 {
		found = running
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1 && prefix == "":
		return "", fault.Inputf("the server has %d jobs: name one of %s", len(found), strings.Join(found, ", "))
	case len(found) > 1:
		return "", fault.Inputf("job id %s is the beginning of %d jobs: name one of %s", prefix, len(found), strings.Join(found, ", "))
	case prefix == "":
		return "", fault.Inputf("the server has no jobs: none was submitted, or all have ended")
	}
	return "", fault.Inputf("job %s: %w: it was never submitted, or it has ended", prefix, ErrNoJob)
}

// ErrUnreadable means that the stored specification of a job cannot be read. An error that
// wraps it is bad input.
var ErrUnreadable = errors.New("the specification stored for this job cannot be read")

// JobStatus returns the status of a job, ErrNoJob or ErrUnreadable.
func (b *Bus) JobStatus(ctx context.Context, jobID string) (Status, error) {
	if err := CheckJob(jobID); err != nil {
		return Status{}, err
	}
	s := Status{ID: jobID, Progress: Progress{Job: jobID, Workers: []Worker{}}}
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
		return s, fault.Inputf("job %s: %w: %w", jobID, ErrUnreadable, err)
	}
	s.Spec, s.Plan = submitted.Spec, submitted.Plan
	none := s.Progress
	none.State, none.RowsTotal, none.Waiting = Interrupted, s.Plan.Rows, "a coordinator"
	if s.Plan.RowsPerShard > 0 {
		none.ShardsTotal = s.Plan.Shards()
	}
	s.Progress = none
	stored, err := b.key(ctx, what, jobPrefix+jobID+".progress")
	if err != nil || stored == nil {
		return s, err
	}
	if err := json.Unmarshal(stored.Data, &s.Progress); err != nil || s.Progress.Job != jobID {
		// Nothing depends on the progress, and a coordinator soon writes it again.
		s.Progress = none
		s.Progress.Waiting = "a coordinator (the stored progress cannot be read)"
		return s, nil
	}
	if p := &s.Progress; (p.State == Running || p.State == Stalled) && time.Since(stored.Time) > staleAfter {
		p.State, p.Rate, p.Left = Interrupted, 0, 0
		p.Waiting = fmt.Sprintf("a coordinator (the last sign of one was %v ago)", time.Since(stored.Time).Round(time.Second))
	}
	return s, nil
}

// SetProgress stores the progress that people see. If the server has no room, it returns ErrFull, or
// waits if the job is over.
func (b *Bus) SetProgress(ctx context.Context, p Progress) error {
	if err := CheckJob(p.Job); err != nil {
		return err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return b.set(ctx, "store the progress of job "+p.Job, jobPrefix+p.Job+".progress", body, p.Over())
}

// Ends calls f with the last progress of each job that ends from now on, until the connection is closed. The
// server does not store that progress for long. If the server does not permit it, f is not called.
func (b *Bus) Ends(f func(Progress)) error {
	_, err := b.nc.Subscribe(endSubject, func(m *nats.Msg) {
		var p Progress
		if json.Unmarshal(m.Data, &p) == nil && m.Subject == jobPrefix+p.Job+".progress" && p.Over() {
			f(p)
		}
	})
	if err != nil {
		return fmt.Errorf("listen to the progress of jobs: %w", err)
	}
	return nil
}

// endSubject is the subject on which coordinators store the progress of all jobs.
const endSubject = jobPrefix + "*.progress"

// Over reports whether the job has ended.
func (p *Progress) Over() bool {
	return slices.Contains([]string{Finished, Failed, Cancelled}, p.State)
}

// Watch calls f with the job's status at once and after every change. It returns nil when
// the job has ended or is no longer stored, and the error of f if f returns one. If the
// job is not stored when Watch is called, the error is ErrNoJob. Watch looks every second,
// because no role may create a consumer on the stream of the jobs.
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
		if last.Over() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Cancel asks the job's coordinator to end the job and delete everything stored for it.
// If the job has no coordinator, the request waits until one leads the job.
func (b *Bus) Cancel(ctx context.Context, jobID string) error {
	if _, err := b.JobStatus(ctx, jobID); err != nil && !errors.Is(err, ErrUnreadable) {
		return err
	}
	var record cancellation
	lead, _, err := b.lead(ctx, jobID)
	if err != nil && !fault.IsInput(err) { // if the record of the leader cannot be read, nobody leads
		return err
	}
	if lead != nil {
		record.Run = lead.Run
	}
	body, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return b.set(ctx, "cancel job "+jobID, jobPrefix+jobID+".cancel", body, true)
}

// cancellation is the value of the key JOB.cancel. If it has a run, the record stays when the
// job is deleted, so that another try of the run does not submit the job again.
type cancellation struct {
	Run string `json:"run,omitempty"` // that of the job's leader; see job.Lead
}

// keepCancellation is the age up to which the record of a cancelled run stays.
const keepCancellation = 7 * 24 * time.Hour

// cancellation returns the record that the job was cancelled and its age, or nil.
func (b *Bus) cancellation(ctx context.Context, jobID string) (*cancellation, time.Duration, error) {
	msg, err := b.key(ctx, "look up job "+jobID, jobPrefix+jobID+".cancel")
	if err != nil || msg == nil {
		return nil, 0, err
	}
	record := new(cancellation)
	if json.Unmarshal(msg.Data, record) != nil {
		record = new(cancellation) // whatever it says, the job is cancelled
	}
	return record, time.Since(msg.Time), nil
}

// Cancellation reports whether the job was cancelled, and the run of its leader at that time.
// The record of a run stays for a week after the job.
func (b *Bus) Cancellation(ctx context.Context, jobID string) (cancelled bool, run string, err error) {
	record, _, err := b.cancellation(ctx, jobID)
	if err != nil || record == nil {
		return false, "", err
	}
	return true, record.Run, nil
}

// ForgetCancellation deletes the record that a job was cancelled.
func (b *Bus) ForgetCancellation(ctx context.Context, jobID string) error {
	return b.purge(ctx, "look up job "+jobID, jobStream, jobPrefix+jobID+".cancel")
}

// Remove ends a job that no coordinator ends, and deletes everything stored for it. It
// also removes a job whose records cannot be read.
func (b *Bus) Remove(ctx context.Context, jobID string) error {
	claim, err := b.Claim(ctx, jobID)
	if err == nil {
		err = claim.End(ctx)
	}
	if err != nil && !fault.IsInput(err) { // if the record of the leader cannot be read, nobody leads
		return err
	}
	return b.Cleanup(ctx, jobID)
}

// IsCancelled reports whether the job was cancelled.
func (b *Bus) IsCancelled(ctx context.Context, jobID string) (bool, error) {
	msg, err := b.key(ctx, "look up job "+jobID, jobPrefix+jobID+".cancel")
	return msg != nil, err
}

// IsOpen reports whether the job is still stored. Results for a job that is not stored
// are of no use.
func (b *Bus) IsOpen(ctx context.Context, jobID string) (bool, error) {
	if err := CheckJob(jobID); err != nil {
		return false, err
	}
	msg, err := b.key(ctx, "look up job "+jobID, jobPrefix+jobID+".spec")
	return msg != nil, err
}

// Quarantined returns the job's quarantines, ordered by shard.
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
		if errors.Is(err, ErrProtocol) && json.Unmarshal(msg.Data, &q) == nil { // only people read it
			q.Job, q.Shard, q.Reason = jobID, shard, fmt.Sprintf("%s (protocol %d)", tidy(q.Reason), q.Protocol)
		} else if err != nil {
			q = job.Quarantine{Job: jobID, Shard: shard, Reason: err.Error()}
		}
		all = append(all, q)
	}
	return all, err
}

// Retry removes the quarantine of shards and returns how many were removed. Without
// shards it removes all. The job's present or next coordinator then publishes the tasks
// again.
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

package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"shaver/internal/jobs/job"
)

// Errors of a claim that is no longer valid.
var (
	// ErrFenced means that a newer coordinator leads the job.
	ErrFenced = errors.New("a newer coordinator leads this job")
	// ErrEnded means that somebody else ended the job and deleted it.
	ErrEnded = errors.New("somebody else ended and deleted this job")
	// ErrCancelled means that somebody cancelled the job (Cancel).
	ErrCancelled = errors.New("somebody cancelled this job")
)

// Claim is the right to lead a job until somebody else claims it. It must not be used by
// more than one goroutine.
type Claim struct {
	Lead job.Lead // the stored record

	b        *Bus
	sequence uint64    // sequence number of the message with Lead
	created  time.Time // when the stream of the record was created
}

func leadKey(jobID string) string { return jobPrefix + jobID + ".checkpoint" }

// lead returns the record of who leads the job and the message that holds it. Both are
// nil if nobody has ever led the job.
func (b *Bus) lead(ctx context.Context, jobID string) (*job.Lead, *jetstream.RawStreamMsg, error) {
	msg, err := b.key(ctx, "look up the leader of job "+jobID, leadKey(jobID))
	if err != nil || msg == nil {
		return nil, nil, err
	}
	lead, err := decode(checkLead, msg.Data)
	if err != nil {
		return nil, nil, malformed("checkpoint", leadKey(jobID), err)
	}
	return &lead, msg, nil
}

func checkLead(l *job.Lead) error {
	if !isJob(l.Job) || l.Epoch < 1 || l.Number < 0 {
		return fmt.Errorf("invalid leader record: job %q, epoch %d, number %d", l.Job, l.Epoch, l.Number)
	}
	if l.Checkpoint == nil {
		return nil
	}
	return checkBlob(*l.Checkpoint, isName(l.Checkpoint.Name), "a valid blob name")
}

// Claimant describes a coordinator that claims a job.
type Claimant struct {
	Out, Run string // see job.Lead
	// Over is the owner of a dead leader, which may be replaced although it writes its scores
	// elsewhere; "" = none.
	Over string
	// Wrong names workers that have computed wrong.
	Wrong []string
}

// ErrLed means that a coordinator that writes its scores elsewhere leads the job.
var ErrLed = errors.New("another coordinator leads this job and writes its scores elsewhere")

// Leader returns the record of who leads the job, or nil if nobody has ever led it.
func (b *Bus) Leader(ctx context.Context, jobID string) (*job.Lead, error) {
	if err := CheckJob(jobID); err != nil {
		return nil, err
	}
	lead, _, err := b.lead(ctx, jobID)
	return lead, err
}

// Claim takes the job over from its present leader, if any, and keeps its checkpoint.
func (b *Bus) Claim(ctx context.Context, jobID string) (*Claim, error) {
	return b.ClaimFor(ctx, jobID, Claimant{})
}

// ClaimFor is Claim for a coordinator. If the present leader writes its scores elsewhere and
// is not by.Over, the error is ErrLed.
func (b *Bus) ClaimFor(ctx context.Context, jobID string, by Claimant) (*Claim, error) {
	if err := CheckJob(jobID); err != nil {
		return nil, err
	}
	created, _, err := b.created(ctx)
	if err != nil {
		return nil, err
	}
	c := &Claim{b: b, created: created}
	owner := tidy(b.name) + " " + nuid.Next()
	for {
		lead, msg, err := b.lead(ctx, jobID)
		if err != nil {
			return nil, err
		}
		next, expect := job.Lead{Job: jobID, Epoch: 1, Owner: owner}, uint64(0)
		if lead != nil {
			if !lead.Ending && lead.Elsewhere(by.Out) && lead.Owner != by.Over {
				return nil, fmt.Errorf("job %s: %w", jobID, ErrLed)
			}
			next.Epoch, next.Checkpoint, next.Ending = lead.Epoch+1, lead.Checkpoint, lead.Ending
			next.Out, next.Run, next.Wrong = lead.Out, lead.Run, lead.Wrong
			expect = msg.Sequence
		}
		if by.Out != "" {
			next.Out, next.Run = by.Out, by.Run
		}
		for _, worker := range by.Wrong {
			if !slices.Contains(next.Wrong, worker) {
				next.Wrong = append(slices.Clip(next.Wrong), worker)
			}
		}
		c.sequence = expect
		store := func() error { return c.replace(ctx, next, true) }
		if lead != nil { // whoever leads publishes the tasks again
			store = func() error {
				return c.replaceIn(ctx, next, func(what string) error { return b.purgeAll(ctx, what, tasksStream, taskPrefix+"*."+jobID+".*") })
			}
		}
		if err := store(); !errors.Is(err, ErrFenced) {
			return c, err
		} // somebody else was faster
	}
}

// replace stores next as the job's record if the present one is still ours. If the server has no
// room for it, replace waits or returns ErrFull.
func (c *Claim) replace(ctx context.Context, next job.Lead, wait bool) error {
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	on := leadKey(next.Job)
	what := "store the checkpoint of job " + next.Job
	misses := 0
	return c.b.again(ctx, what, func(ctx context.Context) error {
		var stored uint64
		err := c.b.call(ctx, what, func(ctx context.Context) error {
			ack, err := c.b.js.PublishMsg(ctx, &nats.Msg{Subject: on, Data: body}, jetstream.WithExpectLastSequencePerSubject(c.sequence), jetstream.WithRetryAttempts(0))
			if err == nil {
				stored = ack.Sequence
				c.b.forget(ctx, what, on, stored)
			}
			if !wait && isFull(err) {
				return ErrFull
			}
			return c.b.orGone(ctx, jobStream, err)
		})
		if isCode(err, codeWrongLast) || errors.Is(err, ErrFull) {
			msg, seen := c.b.last(ctx, what, jobStream, on)
			switch {
			case errors.Is(seen, jetstream.ErrMsgNotFound):
				if c.Lead.Job == "" { // the record was deleted while we claimed the job
					c.sequence = 0
					return c.b.missed(ctx, what, on, &misses)
				}
				return c.ended(ctx)
			case seen != nil:
				return seen
			case !bytes.Equal(msg.Data, body): // if they are equal, ours was stored and only the answer was lost
				if errors.Is(err, ErrFull) && msg.Sequence == c.sequence {
					return err
				}
				lead, bad := decode(checkLead, msg.Data)
				switch {
				case bad != nil || c.Lead.Job == "":
					return ErrFenced
				case lead.Owner == c.Lead.Owner: // ours, of an earlier call that returned ErrFull or of a store that went back
					c.sequence = msg.Sequence
					return errAgain{err}
				}
				return c.fencedBy(&lead, msg.Sequence)
			}
			stored, err = msg.Sequence, nil
		}
		if err == nil {
			c.sequence, c.Lead = stored, next
		}
		return err
	})
}

// replaceIn is replace with a wait for room. Without any, it calls makeRoom before it waits: a server may be full of what
// only the leader deletes.
func (c *Claim) replaceIn(ctx context.Context, next job.Lead, makeRoom func(what string) error) error {
	err := c.replace(ctx, next, false)
	if errors.Is(err, ErrFull) {
		err = makeRoom("make room for the record of job " + next.Job)
		if err == nil {
			err = c.replace(ctx, next, true)
		}
	}
	return err
}

// Point makes blob the job's checkpoint. If the server has no room for the record, Point waits
// or returns ErrFull. If the error is ErrFenced or ErrFull, the checkpoint is unchanged.
func (c *Claim) Point(ctx context.Context, number int64, blob job.Blob, wait bool) error {
	next := c.Lead
	next.Number, next.Checkpoint = number, &blob
	return c.replace(ctx, next, wait)
}

// Distrust records that a worker has computed wrong. If the server has no room for the record, the next one
// that finds room has it.
func (c *Claim) Distrust(ctx context.Context, worker string) error {
	next := c.Lead
	next.Wrong = append(slices.Clip(next.Wrong), worker)
	err := c.replace(ctx, next, false)
	if errors.Is(err, ErrFull) {
		c.Lead.Wrong, err = next.Wrong, nil
	}
	return err
}

// End records that everything stored for the job is about to be deleted. If the error is
// ErrFenced, somebody else leads the job and continues it. If the server has no room for the record, End deletes
// everything but the records before, so whoever continues begins with nothing merged.
func (c *Claim) End(ctx context.Context) error {
	next := c.Lead
	next.Ending = true
	return c.replaceIn(ctx, next, func(what string) error { return c.b.clearJob(ctx, what, next.Job) })
}

// Check returns ErrFenced if somebody else has claimed the job, and ErrEnded if the job
// or parts of it have been deleted. If the server has lost the records of the claim, IsGone is true for the error.
func (c *Claim) Check(ctx context.Context) error {
	lead, msg, err := c.b.lead(ctx, c.Lead.Job)
	if err != nil {
		return err
	}
	if lead != nil && lead.Owner != c.Lead.Owner {
		return fmt.Errorf("job %s: %w", c.Lead.Job, c.fencedBy(lead, msg.Sequence))
	}
	if open, err := c.b.IsOpen(ctx, c.Lead.Job); err != nil {
		return err
	} else if lead == nil || !open {
		return fmt.Errorf("job %s: %w", c.Lead.Job, c.ended(ctx))
	}
	return nil
}

// ended returns why a record of the job is not stored. No program deletes the stream of the jobs. If
// the stream of the claim does not exist any more, or ends before the record of the claim, the server has
// lost it, and nobody ended the job.
func (c *Claim) ended(ctx context.Context) error {
	created, last, err := c.b.created(ctx)
	switch {
	case err != nil:
		return err
	case !created.Equal(c.created):
		return fmt.Errorf("the server lost the stream of the jobs and has a new one since %v: %w", created.UTC().Format(time.RFC3339), jetstream.ErrStreamNotFound)
	case last < c.sequence:
		return errWentBack
	}
	return ErrEnded
}

// errWentBack means that the server has stored less than before the claim, for example because somebody
// restored its volume.
var errWentBack = fmt.Errorf("the store of the server went back to an earlier state: %w", jetstream.ErrStreamNotFound)

// created returns when the stream of the jobs was created, and the sequence number of its last message.
func (b *Bus) created(ctx context.Context) (at time.Time, last uint64, err error) {
	err = b.call(ctx, "look up "+jobStream, func(ctx context.Context) error {
		s, err := b.js.Stream(ctx, jobStream)
		if err == nil {
			at, last = s.CachedInfo().Created, s.CachedInfo().State.LastSeq
		}
		return err
	})
	return at, last, err
}

// orGone returns the error of a request to store a message. If the request was not answered because
// the stream does not exist, IsGone is true for the error.
func (b *Bus) orGone(ctx context.Context, stream string, err error) error {
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		if _, seen := b.js.Stream(ctx, stream); errors.Is(seen, jetstream.ErrStreamNotFound) {
			return seen
		}
	}
	return err
}

// fencedBy returns why the record of another coordinator is stored: ErrFenced with the name of the newer
// coordinator and of its output, or errWentBack if the record is older than the claim.
func (c *Claim) fencedBy(lead *job.Lead, sequence uint64) error {
	if lead.Epoch < c.Lead.Epoch && sequence < c.sequence {
		return errWentBack
	}
	out := ""
	if lead.Out != "" {
		out = " and writes " + lead.Out
	}
	return fmt.Errorf("%w (%s, which has epoch %d%s; this one has epoch %d)", ErrFenced, lead.Owner, lead.Epoch, out, c.Lead.Epoch)
}

// key returns the value of a key, or nil if the key has none.
func (b *Bus) key(ctx context.Context, what, on string) (*jetstream.RawStreamMsg, error) {
	msg, err := b.last(ctx, what, jobStream, on)
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil || msg.Header.Get("KV-Operation") != "" { // a marker that the nats command leaves after a delete
		return nil, err
	}
	return msg, nil
}

// set stores the value of a key and replaces any older value. If the server has no room for it, set
// waits or returns ErrFull.
func (b *Bus) set(ctx context.Context, what, on string, body []byte, wait bool) error {
	return b.call(ctx, what, func(ctx context.Context) error {
		ack, err := b.js.Publish(ctx, on, body, jetstream.WithRetryAttempts(0))
		if err == nil {
			b.forget(ctx, what, on, ack.Sequence)
		}
		if !wait && isFull(err) {
			return ErrFull
		}
		return err
	})
}

// forgetEvery is the number of values that a client stores under a key until it deletes the older ones.
const forgetEvery = 16

// forget deletes now and then what was stored of the key before the message with the sequence
// number. If that fails, it does so later.
func (b *Bus) forget(ctx context.Context, what, on string, sequence uint64) {
	b.mu.Lock()
	b.values[on]++
	due := b.values[on]%forgetEvery == 0
	b.mu.Unlock()
	if !due {
		return
	}
	_ = b.request(what, func() error {
		s, err := b.stream(ctx, jobStream)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSubject(on), jetstream.WithPurgeSequence(sequence))
	})
}

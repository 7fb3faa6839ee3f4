package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// Ended is the record of a job that has ended. It is for people, and nothing depends on it. The server keeps the last
// MostEnded records when everything else of their jobs is deleted.
type Ended struct {
	Status
	Out       string    `json:"out,omitempty"` // where the scores are; "" = unknown
	Submitted time.Time `json:"submitted"`
}

// MostEnded bounds the records of jobs that have ended. All have one key, which keeps as many values.
const (
	MostEnded      = 20
	mostEndedBytes = 32 << 10 // of a record
	keepWithin     = 2 * time.Second
	endedKey       = jobPrefix + "ended"
)

// Ending returns the record of the stored job, or nil if it has neither finished nor been cancelled, or cannot be read. A local server
// keeps no records, because its folder is deleted. out is where the scores are.
func (b *Bus) Ending(ctx context.Context, jobID, out string) *Ended {
	if b.Local() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepWithin)
	defer cancel()
	s, err := b.JobStatus(ctx, jobID)
	if err != nil || s.Progress.State != Finished && s.Progress.State != Cancelled {
		return nil
	}
	spec, err := b.key(ctx, "look up job "+jobID, jobPrefix+jobID+".spec")
	if err != nil || spec == nil {
		return nil
	}
	return &Ended{s, out, spec.Time}
}

// KeepEnd stores the record e, and deletes those before the last MostEnded. It takes at most a few seconds. If the server has no room
// or does not answer, there is no record. The caller calls it after Cleanup: a record says that its job is not stored any more.
func (b *Bus) KeepEnd(ctx context.Context, e *Ended) {
	body, err := json.Marshal(e)
	if len(body) > mostEndedBytes { // what a long list says is worth less than the end
		short := *e
		p := &short.Progress
		p.Strip, p.Rounds, p.Aside, p.Retries, p.Lost, p.Workers = nil, nil, nil, nil, nil, p.Workers[:min(len(p.Workers), MostNamed)]
		body, err = json.Marshal(&short)
	}
	if err == nil && len(body) > mostEndedBytes {
		err = fmt.Errorf("it has %d bytes, and at most %d are kept", len(body), mostEndedBytes)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, keepWithin)
		defer cancel()
		err = b.call(ctx, "record the end of a job", func(ctx context.Context) error {
			s, err := b.stream(ctx, jobStream)
			if err == nil {
				err = s.Purge(ctx, jetstream.WithPurgeSubject(endedKey), jetstream.WithPurgeKeep(MostEnded-1))
			}
			if err == nil {
				_, err = b.js.Publish(ctx, endedKey, body, jetstream.WithRetryAttempts(0)) // set would keep fewer values
			}
			if isFull(err) {
				return ErrFull
			}
			return err
		})
	}
	if err != nil {
		b.log.Debug("the end of the job is not recorded", zap.String("job", e.ID), zap.Error(err))
	}
}

// Ended returns the records of jobs that have ended whose sequence numbers exceed after, the oldest first, and the largest
// sequence number. A job that was submitted several times may have several.
func (b *Bus) Ended(ctx context.Context, after uint64) (all []Ended, last uint64, err error) {
	for last = after; ; {
		var msg *jetstream.RawStreamMsg
		err := b.call(ctx, "list the jobs that have ended", func(ctx context.Context) (err error) {
			msg, err = b.get(ctx, jobStream, getRequest{Next: endedKey, Seq: last + 1})
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return all, last, nil
		}
		if err != nil {
			return all, last, err
		}
		last = msg.Sequence
		var e Ended
		if json.Unmarshal(msg.Data, &e) == nil && isJob(e.ID) && e.Progress.Job == e.ID && e.Progress.Over() {
			all = append(all, e)
		}
	}
}

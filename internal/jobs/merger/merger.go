// Package merger keeps the sums of a job in ranges, so that a table may exceed the memory of one
// process. A merger is a process that keeps one range of features at a time. The job's
// coordinator asks the mergers to add the partials of a result, each the part of its own range.
//
// A merger keeps nothing but what its coordinator has asked for. If a merger dies, the coordinator
// begins again from the last checkpoint with another merger. All mergers of a job therefore
// always have the sums of the same rows.
package merger

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/value/path"
	"shaver/internal/value/tally"
)

// ErrLost means that a merger does not answer any more, so that the sums of its range are lost.
var ErrLost = errors.New("a merger is lost")

const (
	answerWithin = time.Second      // after which a merger answers that it is still at work
	pingEvery    = 3 * time.Second  // between signs of life of a coordinator
	lostAfter    = 10 * time.Second // without an answer, while the server answers, a merger is lost
	goneAfter    = 3 * time.Second  // lostAfter if nobody listens
	idleAfter    = time.Minute      // without a question, while the server answers, a merger is free again
	unbegunAfter = 10 * time.Second // idleAfter before the first question
)

// offer asks a free merger to keep a range for a coordinator.
type offer struct {
	Job   string `json:"job"`
	Epoch int64  `json:"epoch"` // of the coordinator; a later one takes the merger from an earlier one
	Token string `json:"token"` // under which the merger then answers
}

// accepted is the answer to an offer.
type accepted struct {
	Merger string `json:"merger"` // name, for people; "" = the merger has got another range meanwhile
}

// question asks for one piece of work. A merger does the work of each number once. Number 0 is a
// sign of life.
type question struct {
	Number int64 `json:"number"`
	// Keep states what happens with the partial that the last Take fetched: it is added to the
	// sums, or discarded.
	Keep    bool    `json:"keep,omitempty"`
	Begin   *begin  `json:"begin,omitempty"`
	Take    *take   `json:"take,omitempty"`
	Save    string  `json:"save,omitempty"` // name under which the sums are to be stored
	Summary bool    `json:"summary,omitempty"`
	Counts  *span   `json:"counts,omitempty"`
	Values  *values `json:"values,omitempty"`
	Bytes   *piece  `json:"bytes,omitempty"`
	Round   *round  `json:"round,omitempty"`  // begins a round with the mask that was sent
	Passes  float64 `json:"passes,omitempty"` // of a round that ends
	Order   *order  `json:"order,omitempty"`
	End     bool    `json:"end,omitempty"`
}

// begin makes the merger begin with the sums of a checkpoint, or without any.
type begin struct {
	Range      int       `json:"range"`
	Ranges     int       `json:"ranges"`
	Tables     [][2]int  `json:"tables"` // rows and columns; see layout.Shape.Tables
	Form       form      `json:"form"`
	Fixed      []span    `json:"fixed,omitempty"` // rows of the range that a path never drops
	Checkpoint *job.Blob `json:"checkpoint,omitempty"`
}

// form is a tally.Form of a job that is not paired.
type form struct {
	Within    bool `json:"within,omitempty"`
	Corrected bool `json:"corrected,omitempty"`
	Weighted  bool `json:"weighted,omitempty"`
	Path      bool `json:"path,omitempty"`
}

func (f form) tally() tally.Form {
	return tally.Form{Within: f.Within, Corrected: f.Corrected, Weighted: f.Weighted, Path: f.Path}
}

// piece is a piece of the weights of the range's entries, as little-endian float32, or of the mask of the entries that a round does not measure.
type piece struct {
	Mask bool   `json:"mask,omitempty"`
	At   int    `json:"at"` // number of bytes before
	Data []byte `json:"data"`
}

// round begins a round; see path.Terms.Begin.
type round struct {
	Number int       `json:"number"`
	Fade   path.Fade `json:"fade"`
}

// order asks for the entries from one position of an order to another; see path.Terms.Lowest.
type order struct {
	path.Rank
	span
}

// take asks for a partial to be fetched and checked.
type take struct {
	Partial job.Blob `json:"partial"`
	Rows    int64    `json:"rows"`
}

// span is the features [From, To) of a range.
type span struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// values asks for the values of some features.
type values struct {
	span
	Sampling tally.Sampling `json:"sampling"`
}

// answer answers a question.
type answer struct {
	Number   int64          `json:"number"`
	Busy     bool           `json:"busy,omitempty"`     // the work is not done, and the question must be repeated
	Failed   string         `json:"failed,omitempty"`   // why the work failed; the range cannot continue
	Unusable string         `json:"unusable,omitempty"` // why a partial or a checkpoint cannot be used
	Gone     bool           `json:"gone,omitempty"`     // the range ended, or the server lost what it needs
	Conflict bool           `json:"conflict,omitempty"` // something else is stored under the name
	Saved    *job.Blob      `json:"saved,omitempty"`
	Summary  *tally.Summary `json:"summary,omitempty"`
	Fall     *float64       `json:"fall,omitempty"` // see path.Terms.Begin; nil = NaN
	body     []byte         // counts, values, or an order
}

// encode returns the bytes of a: JSON, a line feed and the body.
func (a *answer) encode() []byte {
	text, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("merger: encode: %v", err))
	}
	return append(append(text, '\n'), a.body...)
}

// decodeAnswer reads what encode wrote. The body shares memory with data.
func decodeAnswer(data []byte) (*answer, error) {
	text, body, found := bytes.Cut(data, []byte{'\n'})
	var a answer
	if err := json.Unmarshal(text, &a); err != nil || !found {
		return nil, fmt.Errorf("malformed answer of a merger: %q", text[:min(len(text), 100)])
	}
	a.body = body
	return &a, nil
}

// Config says how to run a merger.
type Config struct {
	Bus  *bus.Bus
	Name string // of the merger, for people
	Log  *zap.Logger
}

// Run keeps ranges of jobs, one at a time, until ctx ends.
func Run(ctx context.Context, c Config) error {
	for {
		r, err := c.accept(ctx)
		if err != nil {
			return err
		}
		c.Log.Info("keeping a range", zap.String("job", r.offer.Job), zap.Int64("epoch", r.offer.Epoch))
		r.keep(ctx)
		debug.FreeOSMemory()
	}
}

// accept waits until a coordinator has a range for this merger.
func (c *Config) accept(ctx context.Context) (*kept, error) {
	got, taken := make(chan *kept, 1), false
	stop, err := c.Bus.AnswerFree(func(question []byte) []byte {
		var o offer
		if json.Unmarshal(question, &o) != nil || taken {
			return []byte("{}")
		}
		r, err := newKept(c, o)
		if err != nil {
			c.Log.Warn("cannot keep a range", zap.Error(err))
			return nil
		}
		got <- r
		taken = true
		text, err := json.Marshal(accepted{c.Name})
		if err != nil {
			return nil
		}
		return text
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	select {
	case r := <-got:
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newToken returns a name under which a merger answers.
func newToken() string { return rand.Text() }

// unusable returns the reason why stored data cannot be used, or "" if err says something else.
func unusable(err error) string {
	if errors.Is(err, bus.ErrNotFound) || fault.IsInput(err) {
		return err.Error()
	}
	return ""
}

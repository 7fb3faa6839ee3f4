package coordinator

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/merger"
	"shaver/internal/jobs/prepare"
	"shaver/internal/num/layout"
	"shaver/internal/value/path"
	"shaver/internal/value/tally"
	"shaver/internal/value/tallyio"
)

// sums holds what a job has merged so far. A checkpoint is a copy of it on the server.
// It is not safe for concurrent use.
type sums struct {
	accumulator *tally.Accumulator // nil if ranges is set
	ranges      *merger.Ranges     // keep the sums of the entries; nil = accumulator does
	rows        int64              // with ranges, number of rows merged, or of those of the current round of a path
	parts       []job.Blob         // with ranges, their checkpoints in the last checkpoint; nil = none
	shards      job.Shards         // shards that are merged
	workers     map[string]int     // number of shards by the worker that computed them
	cpu         float64            // core-seconds reported by workers of other processes
	verified    int                // number of shards that were computed twice with the same result
	firstHalf   *firstHalf         // with job.Overlap, from the second round on; otherwise nil
	// half holds the sums of the first half of the work of a paired job, from the second
	// round on; otherwise nil.
	half    *tally.Accumulator
	path    *path.Path  // order of a path, whose current round is summed; otherwise nil
	terms   *path.Terms // of a path, whose sums are accumulator; nil if ranges is set
	seconds float64     // how long the job was led before this checkpoint was stored
}

// newSums returns the sums of a job with nothing merged, for tables of the given shape.
// form is that of its partials.
func newSums(shape layout.Shape, form tally.Form, shards int) *sums {
	return &sums{accumulator: tally.NewAccumulator(shape, form), shards: job.NewShards(shards), workers: map[string]int{}}
}

// newSumsOf is newSums for the table and the plan of j, whose model is m. If the plan has ranges, the caller has to
// set those of the sums.
func newSumsOf(j *prepare.Job, m *model.Model) *sums {
	if !j.Spec.Traits().Ranks {
		if j.Plan.Ranges > 0 {
			return &sums{shards: job.NewShards(j.Plan.Shards()), workers: map[string]int{}}
		}
		return newSums(j.Layout().Shape(), formOf(j), j.Plan.Shards())
	}
	s := &sums{shards: job.NewShards(j.Plan.Shards()), workers: map[string]int{}}
	s.path = path.New(&j.Architecture, j.Spec.Options.Sparsity, j.Spec.Loss, j.Sample.Keep, j.Spec.Weights())
	if j.Plan.Ranges == 0 {
		s.terms = path.NewTerms(j.Layout().Shape(), formOf(j), j.Architecture.FixedRows(), m.Weights.Embedding)
		s.accumulator = s.terms.Sums
	}
	return s
}

// judged returns the number of rounds of a path that are over; 0 if the job is not a path.
func (m *sums) judged() int {
	if m.path == nil {
		return 0
	}
	return len(m.path.Rounds)
}

// formOf returns the form of the partials of j.
func formOf(j *prepare.Job) tally.Form { return j.Sampling().Form(j.Architecture.Fields()) }

// A checkpoint consists of
//   - sumsMagic;
//   - the length of the header as a uint32, and the header in JSON;
//   - the sums, as package tallyio writes them, unless the header has ranges, which are the
//     blobs with the sums;
//   - if the header has half_rows, one float64 for each entry, the sums of the first half;
//   - if the header has half, the sums of the first half of a paired job, as above;
//   - if the header has path, T of each entry as a float32, unless the header has ranges, and the
//     order of the path, both as package path writes them. The sums are then its G and D.
//
// Everything is little-endian.
const sumsMagic = sumsKind + "3\n"

// sumsKind begins the checkpoints of all builds. The number of the form follows.
const sumsKind = "shaver.checkpoint/"

// errOtherForm means that another build wrote the checkpoint in a form that this build does
// not read.
var errOtherForm = errors.New("another build wrote this form")

// otherForm returns an error if head begins a checkpoint of another form.
func otherForm(head []byte) error {
	text, ok := strings.CutPrefix(string(head), sumsKind)
	if !ok || strings.HasPrefix(string(head), sumsMagic) {
		return nil
	}
	number, _, ok := strings.Cut(text, "\n")
	if _, err := strconv.ParseUint(number, 10, 16); !ok || err != nil {
		return nil
	}
	return fault.Inputf("it is a %s%s, and this build reads %s: %w", sumsKind, number, strings.TrimSpace(sumsMagic), errOtherForm)
}

type sumsHeader struct {
	Job string `json:"job"`
	tallyio.Header
	ShardCount int            `json:"shard_count"`
	Shards     job.Shards     `json:"shards"` // one bit for each shard, in base64
	Workers    map[string]int `json:"workers"`
	CPU        float64        `json:"cpu"`
	Verified   int            `json:"verified,omitempty"`
	Seconds    float64        `json:"seconds"`   // how long the job was led
	HalfRows   int64          `json:"half_rows"` // rows of firstHalf; 0 = no first half
	// Half is the header of the sums of the first half of a paired job; nil = no such sums.
	Half   *tallyio.Header `json:"half,omitempty"`
	Ranges []job.Blob      `json:"ranges,omitempty"` // see job.Plan.Ranges
	// Path has the rounds of a path that are over; nil = the job is not a path.
	Path  *[]path.Round `json:"path,omitempty"`
	Faded int           `json:"faded,omitempty"` // see path.Terms.Faded
}

// write writes the checkpoint of the job with the given id and plan to w. It does not
// copy the sums.
func (m *sums) write(w io.Writer, id string, plan *job.Plan) error {
	sums := tallyio.Header{Rows: m.rows}
	if m.accumulator != nil {
		sums = tallyio.HeaderOf(m.accumulator)
	}
	header := &sumsHeader{
		Job: id, Header: sums, Ranges: m.parts, ShardCount: plan.Shards(), Shards: m.shards, Workers: m.workers, CPU: m.cpu, Verified: m.verified,
		Seconds: m.seconds, HalfRows: m.firstHalf.size(),
	}
	if m.half != nil {
		half := tallyio.HeaderOf(m.half)
		header.Half = &half
	}
	if m.path != nil {
		rounds := append([]path.Round{}, m.path.Rounds...) // [] before the first round is over: null says that the job is not a path
		header.Path = &rounds
	}
	if m.terms != nil {
		header.Faded = m.terms.Faded()
	}
	if err := tallyio.WriteHead(w, sumsMagic, header); err != nil {
		return err
	}
	switch {
	case m.terms != nil:
		if err := m.terms.Write(w); err != nil {
			return err
		}
	case m.accumulator != nil:
		if err := tallyio.Write(w, m.accumulator); err != nil {
			return err
		}
	}
	if m.firstHalf != nil {
		if err := m.firstHalf.write(w); err != nil {
			return err
		}
	}
	if m.half != nil {
		return tallyio.Write(w, m.half)
	}
	if m.path != nil {
		return m.path.Write(w)
	}
	return nil
}

// read sets m, which must be new, to the checkpoint of the job with the given id and plan. Malformed
// bytes, and the checkpoint of another job, are bad input.
func (m *sums) read(r io.Reader, id string, shape layout.Shape, form tally.Form, plan *job.Plan) error {
	if err := m.readCheckpoint(r, id, shape, form, plan); err != nil {
		return fmt.Errorf("the checkpoint: %w", err)
	}
	return nil
}

// readCheckpoint is read, with errors that do not name the checkpoint.
func (m *sums) readCheckpoint(r io.Reader, id string, shape layout.Shape, form tally.Form, plan *job.Plan) (err error) {
	buffered := bufio.NewReader(r)
	if head, _ := buffered.Peek(len(sumsMagic) + 4); otherForm(head) != nil { // if there are fewer bytes, ReadHead returns the error
		return otherForm(head)
	}
	r = buffered
	var h sumsHeader
	if err := tallyio.ReadHead(r, sumsMagic, &h); err != nil {
		return err
	}
	if (m.path != nil) != (h.Path != nil) {
		return fault.Inputf("it has the state of a path: %t, expected %t", h.Path != nil, m.path != nil)
	}
	if err := h.check(id, plan); err != nil {
		return fault.Inputf("%w", err)
	}
	m.cpu, m.verified, m.seconds = h.CPU, h.Verified, h.Seconds
	copy(m.shards, h.Shards)
	maps.Copy(m.workers, h.Workers)
	switch {
	case plan.Ranges > 0:
		m.parts, m.rows = h.Ranges, h.Rows
	case m.terms != nil:
		if err := m.terms.Read(r, &h.Header, h.Faded); err != nil {
			return fmt.Errorf("the terms: %w", err)
		}
		m.accumulator = m.terms.Sums
	default:
		if m.accumulator, err = tallyio.Read(r, &h.Header, shape, form); err != nil {
			return err
		}
	}
	if h.HalfRows > 0 {
		if m.firstHalf, err = readFirstHalf(r, h.HalfRows, shape.Entries()); err != nil {
			return err
		}
	}
	if h.Half != nil {
		if m.half, err = tallyio.Read(r, h.Half, shape, form); err != nil {
			return fmt.Errorf("the first half: %w", err)
		}
	}
	if m.path != nil {
		if err := m.path.Read(r, *h.Path); err != nil {
			return fmt.Errorf("the path: %w", err)
		}
	}
	return tallyio.ReadEnd(r)
}

func (h *sumsHeader) check(id string, plan *job.Plan) error {
	switch {
	case h.Job != id:
		return fmt.Errorf("job %q, expected %s", h.Job, id)
	case h.ShardCount != plan.Shards() || len(h.Shards) != len(job.NewShards(h.ShardCount)):
		return fmt.Errorf("%d shards, expected %d", h.ShardCount, plan.Shards())
	case len(h.Ranges) != plan.Ranges:
		return fmt.Errorf("%d ranges, expected %d", len(h.Ranges), plan.Ranges)
	case h.Verified < 0 || h.Verified > h.ShardCount:
		return fmt.Errorf("%d verified shards of %d", h.Verified, h.ShardCount)
	case !(h.CPU >= 0):
		return fmt.Errorf("%v core-seconds, expected at least 0", h.CPU)
	case !(h.Seconds >= 0 && h.Seconds < 1e9):
		return fmt.Errorf("led for %v seconds, expected 0 to 1e9", h.Seconds)
	case h.Half != nil && (h.Half.Rows < 1 || h.Half.Rows > h.Rows):
		return fmt.Errorf("a first half of %d rows, expected 1 to %d", h.Half.Rows, h.Rows)
	case h.HalfRows < 0 || h.HalfRows > h.Rows:
		return fmt.Errorf("a first half of %d rows, expected 0 to %d", h.HalfRows, h.Rows)
	}
	rows, set := int64(0), 0
	for shard := range plan.Shards() {
		if h.Shards.Has(shard) {
			rows += plan.ShardRows(shard)
			set++
		}
	}
	if h.Path != nil {
		for _, round := range *h.Path {
			rows -= round.Rows
		}
	}
	if rows != h.Rows || set != h.Shards.Len() {
		return fmt.Errorf("%d rows, expected the number in its %d shards, %d", h.Rows, set, rows)
	}
	return nil
}

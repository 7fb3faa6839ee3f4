package coordinator

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/layout"
	"shaver/internal/prepare"
	"shaver/internal/tally"
)

// sums holds what a job has merged so far. A checkpoint is a copy of it on the server.
// It is not safe for concurrent use.
type sums struct {
	accumulator *tally.Accumulator
	shards      job.Shards     // shards that are in the accumulator
	workers     map[string]int // number of shards by the worker that computed them
	cpu         float64        // core-seconds reported by workers of other processes
	firstHalf   *firstHalf     // with job.Overlap, from the second round on; otherwise nil
	seconds     float64        // how long the job was led before this checkpoint was stored
}

// newSums returns the sums of a job with nothing merged, for tables of the given shape.
// within says whether the variances within rows are summed too.
func newSums(shape layout.Shape, within bool, shards int) *sums {
	return &sums{accumulator: tally.NewAccumulator(shape, within), shards: job.NewShards(shards), workers: map[string]int{}}
}

// newSumsOf is newSums for the table and the plan of j.
func newSumsOf(j *prepare.Job) *sums {
	return newSums(j.Architecture.Shape(), j.Sampling().Within(), j.Plan.Shards())
}

// A checkpoint consists of
//   - sumsMagic;
//   - the length of the header as a uint32, and the header in JSON;
//   - the count of each feature;
//   - for each feature, its d values of each list (see tally.Partial);
//   - for each cell that left int64, its number and the multiple of 2^64 to add;
//   - if the header says so, one float64 for each entry, the sums of the first half.
//
// Integers after the header are int64. Everything is little-endian.
const (
	sumsMagic = "shaver.checkpoint/2\n"
	maxHeader = 16 << 20
)

type sumsHeader struct {
	Job            string         `json:"job"`
	Features       int            `json:"features"`
	Dim            int            `json:"dim"` // 0 = features have different numbers of entries
	Lists          int            `json:"lists"`
	ShardCount     int            `json:"shard_count"`
	Shards         job.Shards     `json:"shards"` // one bit for each shard, in base64
	Rows           int64          `json:"rows"`
	LossFull       [2]int64       `json:"loss_full"`       // a multiple of 2^64, and a number to add to it
	LossEmpty      [2]int64       `json:"loss_empty"`      // as LossFull
	ResidualSquare [2]int64       `json:"residual_square"` // as LossFull
	Carries        int            `json:"carries"`         // number of cells that left int64
	Workers        map[string]int `json:"workers"`
	CPU            float64        `json:"cpu"`
	Seconds        float64        `json:"seconds"`   // how long the job was led
	HalfRows       int64          `json:"half_rows"` // 0 = there is no first half
}

// write writes the checkpoint of the job with the given id and plan to w. It does not
// copy the sums.
func (m *sums) write(w io.Writer, id string, plan *job.Plan) error {
	s := m.accumulator.State()
	header, err := json.Marshal(sumsHeader{
		Job: id, Features: len(s.Count), Dim: s.Shape.Dim(), Lists: s.Lists, ShardCount: plan.Shards(), Shards: m.shards, Rows: s.Rows, LossFull: s.LossFull,
		LossEmpty: s.LossEmpty, ResidualSquare: s.ResidualSquare, Carries: len(s.Carries), Workers: m.workers, CPU: m.cpu,
		Seconds: m.seconds, HalfRows: m.firstHalf.size(),
	})
	if err != nil {
		return err
	}
	if _, err := w.Write(slices.Concat([]byte(sumsMagic), binary.LittleEndian.AppendUint32(nil, uint32(len(header))), header)); err != nil {
		return err
	}
	for _, values := range [][]int64{s.Count, s.Cells, pairs(s.Carries)} {
		if err := writeInts(w, values); err != nil {
			return err
		}
	}
	if m.firstHalf != nil {
		return m.firstHalf.write(w)
	}
	return nil
}

func pairs(carries map[int]int64) (list []int64) {
	for _, at := range slices.Sorted(maps.Keys(carries)) {
		list = append(list, int64(at), carries[at])
	}
	return list
}

// chunkInts is the number of integers that are converted to bytes at a time.
const chunkInts = 1 << 16

func writeInts(w io.Writer, values []int64) error {
	buffer := make([]byte, 0, 8*min(chunkInts, len(values)))
	for part := range slices.Chunk(values, chunkInts) {
		buffer = buffer[:8*len(part)]
		for i, v := range part {
			binary.LittleEndian.PutUint64(buffer[8*i:], uint64(v))
		}
		if _, err := w.Write(buffer); err != nil {
			return err
		}
	}
	return nil
}

func readInts(r io.Reader, into []int64) error {
	buffer := make([]byte, 8*min(chunkInts, len(into)))
	for part := range slices.Chunk(into, chunkInts) {
		buffer = buffer[:8*len(part)]
		if _, err := io.ReadFull(r, buffer); err != nil {
			return endsEarly(err)
		}
		for i := range part {
			part[i] = int64(binary.LittleEndian.Uint64(buffer[8*i:]))
		}
	}
	return nil
}

// endsEarly returns bad input if err says that the bytes end early, and err otherwise.
func endsEarly(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fault.Inputf("the checkpoint ends early")
	}
	return err
}

// readSums reads the checkpoint of the job with the given id and plan. Malformed
// bytes, and the checkpoint of another job, are bad input.
func readSums(r io.Reader, id string, shape layout.Shape, within bool, plan *job.Plan) (*sums, error) {
	head := make([]byte, len(sumsMagic)+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, endsEarly(err)
	}
	length := binary.LittleEndian.Uint32(head[len(sumsMagic):])
	if string(head[:len(sumsMagic)]) != sumsMagic || length > maxHeader {
		return nil, fault.Inputf("not a checkpoint of this program")
	}
	var text bytes.Buffer
	if _, err := io.CopyN(&text, r, int64(length)); err != nil {
		return nil, endsEarly(err)
	}
	var h sumsHeader
	d := json.NewDecoder(&text)
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return nil, fault.Inputf("the checkpoint's header: %w", err)
	}
	if err := h.check(id, &shape, tally.Lists(within), plan); err != nil {
		return nil, fault.Inputf("the checkpoint: %w", err)
	}
	m := newSums(shape, within, plan.Shards())
	copy(m.shards, h.Shards)
	maps.Copy(m.workers, h.Workers)
	m.cpu, m.seconds = h.CPU, h.Seconds
	s := m.accumulator.State()
	for _, into := range [][]int64{s.Count, s.Cells} {
		if err := readInts(r, into); err != nil {
			return nil, err
		}
	}
	s.Rows, s.LossFull, s.LossEmpty, s.ResidualSquare = h.Rows, h.LossFull, h.LossEmpty, h.ResidualSquare
	if err := readCarries(r, h.Carries, s.Carries); err != nil {
		return nil, err
	}
	if h.HalfRows > 0 {
		var err error
		if m.firstHalf, err = readFirstHalf(r, h.HalfRows, shape.Entries()); err != nil {
			return nil, err
		}
	}
	if n, err := io.ReadFull(r, head[:1]); n != 0 || err != io.EOF {
		return nil, fault.Inputf("the checkpoint has bytes after its end")
	}
	if err := m.accumulator.Restore(s); err != nil {
		return nil, fault.Inputf("the checkpoint: %w", err)
	}
	return m, nil
}

func (h *sumsHeader) check(id string, shape *layout.Shape, lists int, plan *job.Plan) error {
	switch {
	case h.Job != id:
		return fmt.Errorf("job %q, expected %s", h.Job, id)
	case h.Features != shape.Rows() || h.Dim != shape.Dim():
		return fmt.Errorf("a table of %d x %d, expected %d x %d", h.Features, h.Dim, shape.Rows(), shape.Dim())
	case h.Lists != lists:
		return fmt.Errorf("%d lists of sums, expected %d", h.Lists, lists)
	case h.ShardCount != plan.Shards() || len(h.Shards) != len(job.NewShards(h.ShardCount)):
		return fmt.Errorf("%d shards, expected %d", h.ShardCount, plan.Shards())
	case h.Carries < 0 || h.Carries > lists*shape.Entries():
		return fmt.Errorf("%d carries, expected at most %d", h.Carries, lists*shape.Entries())
	case !(h.CPU >= 0):
		return fmt.Errorf("%v core-seconds, expected at least 0", h.CPU)
	case !(h.Seconds >= 0 && h.Seconds < 1e9):
		return fmt.Errorf("led for %v seconds, expected 0 to 1e9", h.Seconds)
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
	if rows != h.Rows || set != h.Shards.Len() {
		return fmt.Errorf("%d rows, expected the number in its %d shards, %d", h.Rows, set, rows)
	}
	return nil
}

func readCarries(r io.Reader, n int, into map[int]int64) error {
	pair := make([]int64, 2)
	for range n {
		if err := readInts(r, pair); err != nil {
			return err
		}
		if _, twice := into[int(pair[0])]; twice {
			return fault.Inputf("the checkpoint has two carries for cell %d", pair[0])
		}
		into[int(pair[0])] = pair[1]
	}
	return nil
}

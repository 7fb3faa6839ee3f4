// Package shard cuts a dataset's rows into shards and opens them again. A shard
// is a contiguous run of the scored rows with their global row numbers, as one
// immutable Arrow blob.
package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"shaver/internal/arrowio"
	"shaver/internal/job"
	"shaver/internal/model"
	"shaver/internal/random"
)

// Source hands all rows of the chosen splits, in order of their global numbers
// and in batches, to a function, until it returns an error.
type Source func(ctx context.Context, each func(*model.Rows) error) error

// Sample chooses rows without replacement: Keep of Rows.
type Sample struct {
	Rows int64
	Keep int64
	Seed uint64
}

// NewSample returns the sample that keeps the given portion, in (0, 1], of rows:
// the nearest whole number of them, and at least one.
func NewSample(rows int64, portion float64, seed uint64) Sample {
	return Sample{rows, min(rows, max(1, int64(math.Round(portion*float64(rows))))), seed}
}

// Cut reads the rows of source once and cuts the sampled ones by plan. next
// returns the shards that are wanted, ascending, and a negative number when no
// more are; it may block. Each of them goes to emit, whose argument is its own.
func Cut(ctx context.Context, source Source, fields []string, sizes []int, sample Sample, plan job.Plan,
	next func(context.Context) (int, error), emit func(ctx context.Context, shard int, data []byte) error) error {
	c := cutter{fields: fields, sizes: sizes, sample: sample, plan: plan, next: next, emit: emit}
	if err := c.advance(ctx); err != nil {
		return ignore(err, errEnough)
	}
	if err := source(ctx, func(rows *model.Rows) error { return c.add(ctx, rows) }); err != nil {
		return ignore(err, errEnough)
	}
	return fmt.Errorf("the dataset ended after %d rows, %d were expected", c.seen, sample.Rows)
}

// errEnough stops the reading when no shard is wanted any more.
var errEnough = errors.New("no more shards are wanted")

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

type cutter struct {
	fields []string
	sizes  []int
	sample Sample
	plan   job.Plan
	next   func(context.Context) (int, error)
	emit   func(context.Context, int, []byte) error

	seen int64 // rows read
	kept int64 // rows in the sample so far
	want int   // shard in the making, or the next one that is wanted
	rows model.Rows
}

func (c *cutter) advance(ctx context.Context) error {
	want, err := c.next(ctx)
	if err == nil && want < 0 {
		err = errEnough
	}
	c.want = want
	return err
}

// add takes the rows of a batch that are sampled and belong to a wanted shard.
func (c *cutter) add(ctx context.Context, rows *model.Rows) error {
	c.rows.Fields = rows.Fields
	for i := range rows.Len() {
		if !c.chosen() {
			continue
		}
		at := c.kept - 1
		if int(at/c.plan.RowsPerShard) != c.want {
			continue
		}
		c.rows.Number = append(c.rows.Number, rows.Number[i])
		c.rows.Label = append(c.rows.Label, rows.Label[i])
		c.rows.Features = append(c.rows.Features, rows.Row(i)...)
		if int64(c.rows.Len()) < c.plan.ShardRows(c.want) {
			continue
		}
		data, err := Encode(c.fields, c.sizes, &c.rows)
		if err != nil {
			return err
		}
		if err := c.emit(ctx, c.want, data); err != nil {
			return err
		}
		c.rows.Reset()
		if err := c.advance(ctx); err != nil {
			return err
		}
	}
	return nil
}

// chosen decides on the next row: with the probability that it is one of those
// that are still to be kept among those still to come (Knuth, The Art of Computer
// Programming, vol. 2, 3.4.2, algorithm S), which keeps exactly Keep.
func (c *cutter) chosen() bool {
	index := c.seen
	c.seen++
	left := c.sample.Rows - index
	need := c.sample.Keep - c.kept
	if need < left {
		stream := random.At(c.sample.Seed, random.Sample, uint64(index), 0)
		if int64(stream.Below(uint64(max(left, 1)))) >= need {
			return false
		}
	}
	c.kept++
	return true
}

// Encode returns rows as a shard.
func Encode(fields []string, sizes []int, rows *model.Rows) ([]byte, error) {
	var data bytes.Buffer
	w, err := arrowio.NewRowWriter(&data, fields, sizes, true)
	if err != nil {
		return nil, err
	}
	if err := w.Append(rows); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

// Open returns the rows of a shard, which must have the given field sizes and
// number of rows.
func Open(data []byte, sizes []int, want int64) (*model.Rows, error) {
	r, err := arrowio.NewRowReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if !r.Numbered() {
		return nil, errors.New("shard has no row numbers")
	}
	if !slices.Equal(r.Sizes(), sizes) {
		return nil, fmt.Errorf("shard has field sizes %v, the model %v", r.Sizes(), sizes)
	}
	all, batch := &model.Rows{Fields: len(sizes)}, &model.Rows{Fields: len(sizes)}
	for {
		if err := r.Next(batch); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		all.Number = append(all.Number, batch.Number...)
		all.Label = append(all.Label, batch.Label...)
		all.Features = append(all.Features, batch.Features...)
		if int64(all.Len()) > want {
			break
		}
	}
	if int64(all.Len()) != want {
		return nil, fmt.Errorf("shard has %d rows or more, its task says %d", all.Len(), want)
	}
	return all, nil
}

// Package shard cuts a dataset's rows into shards and opens them again. A shard
// is a contiguous run of the scored rows with their global row numbers, as one
// immutable Arrow blob.
package shard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
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

// Piece is a shard that was cut: its rows, and where they were, but for the digest.
type Piece struct {
	Index int
	Place job.Place
	Rows  *model.Rows
}

// Cut reads the rows of source once and cuts the sampled ones by plan. next
// returns the shards that are wanted, ascending, and a negative number when no
// more are; it may block. Each of them goes to emit, which must not keep it.
func Cut(ctx context.Context, source Source, sample Sample, plan job.Plan,
	next func(context.Context) (int, error), emit func(context.Context, *Piece) error) error {
	c := cutter{picker: picker{Sample: sample}, plan: plan, wanted: next, emit: emit}
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
	picker
	plan   job.Plan
	wanted func(context.Context) (int, error)
	emit   func(context.Context, *Piece) error

	want  int // shard in the making, or the next one that is wanted
	place job.Place
	rows  model.Rows
}

func (c *cutter) advance(ctx context.Context) error {
	want, err := c.wanted(ctx)
	if err == nil && want < 0 {
		err = errEnough
	}
	c.want = want
	return err
}

// add takes the rows of a batch that are sampled and belong to a wanted shard.
func (c *cutter) add(ctx context.Context, rows *model.Rows) error {
	for i := range rows.Len() {
		index, chosen := c.picker.next()
		if !chosen {
			continue
		}
		at := c.kept - 1
		if int(at/c.plan.RowsPerShard) != c.want {
			continue
		}
		if c.rows.Len() == 0 {
			c.place = job.Place{Seen: index, Kept: at}
		}
		take(&c.rows, rows, i)
		if int64(c.rows.Len()) < c.plan.ShardRows(c.want) {
			continue
		}
		if err := c.emit(ctx, &Piece{c.want, c.place, &c.rows}); err != nil {
			return err
		}
		c.rows.Reset()
		if err := c.advance(ctx); err != nil {
			return err
		}
	}
	return nil
}

// take appends row i of from to rows.
func take(rows, from *model.Rows, i int) {
	rows.Fields = from.Fields
	rows.Number = append(rows.Number, from.Number[i])
	rows.Label = append(rows.Label, from.Label[i])
	rows.Features = append(rows.Features, from.Row(i)...)
}

// Collect is Cut for one shard of so many rows where place says, of a source that
// begins there: at the row place.Seen of the splits. Rows that are not those of
// place's digest, or too few, are an error.
func Collect(ctx context.Context, source Source, sample Sample, place job.Place, want int64) (*model.Rows, error) {
	p := picker{sample, place.Seen, place.Kept}
	all := &model.Rows{}
	err := source(ctx, func(rows *model.Rows) error {
		for i := range rows.Len() {
			if _, chosen := p.next(); !chosen {
				continue
			}
			if take(all, rows, i); int64(all.Len()) == want {
				return errEnough
			}
		}
		return nil
	})
	if err == nil {
		return nil, fmt.Errorf("only %d of %d rows are there", all.Len(), want)
	}
	if err := ignore(err, errEnough); err != nil {
		return nil, err
	}
	if Digest(all) != place.SHA256 {
		return nil, errors.New("the rows are not the shard's: they have another digest")
	}
	return all, nil
}

// Digest returns the SHA-256 of rows, in hexadecimal: of the number (64 bits), the
// label (8) and the features' global ids (32 each) of one after the other, all
// little-endian.
func Digest(rows *model.Rows) string {
	digest := sha256.New()
	var buffer []byte
	for i := range rows.Len() {
		buffer = append(binary.LittleEndian.AppendUint64(buffer, uint64(rows.Number[i])), rows.Label[i])
		for _, feature := range rows.Row(i) {
			buffer = binary.LittleEndian.AppendUint32(buffer, uint32(feature))
		}
		if len(buffer) >= 1<<15 {
			digest.Write(buffer)
			buffer = buffer[:0]
		}
	}
	digest.Write(buffer)
	return hex.EncodeToString(digest.Sum(nil))
}

// picker goes through the rows.
type picker struct {
	Sample
	seen int64 // rows so far
	kept int64 // of them in the sample
}

// next decides on the next row: with the probability that it is one of those
// that are still to be kept among those still to come (Knuth, The Art of Computer
// Programming, vol. 2, 3.4.2, algorithm S), which keeps exactly Keep.
func (p *picker) next() (index int64, chosen bool) {
	index = p.seen
	p.seen++
	left := p.Rows - index
	need := p.Keep - p.kept
	if need < left {
		stream := random.At(p.Seed, random.Sample, uint64(index), 0)
		if int64(stream.Below(uint64(max(left, 1)))) >= need {
			return index, false
		}
	}
	p.kept++
	return index, true
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

// Package shard cuts a dataset's rows into shards and opens shards. A shard is a
// contiguous part of the scored rows with their global row numbers, stored as one
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

	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/job"
	"shaver/internal/num/random"
	"shaver/internal/value/estimator"
)

// Sample is a random sample of Keep out of Rows rows, without replacement. Samples of
// different generations are independent of each other.
type Sample struct {
	Rows       int64
	Keep       int64
	Seed       uint64
	Generation uint64
}

// NewSample returns a sample of the given portion, in (0, 1], of rows. The size is
// rounded to the nearest whole number, and is at least one.
func NewSample(rows int64, portion float64, seed uint64) Sample {
	return Sample{Rows: rows, Keep: min(rows, max(1, int64(math.Round(portion*float64(rows))))), Seed: seed}
}

// SampleOf returns the sample of the job with the given specification. rows is the number
// of rows of its splits. Each generation of paired jobs has another sample.
func SampleOf(spec *job.Spec, rows int64) Sample {
	s := NewSample(rows, spec.Sample, spec.Seed)
	s.Generation = uint64(spec.Generation())
	return s
}

// Piece is a shard after cutting: its rows, and its place in the dataset. The place has
// no digest. Rows is nil if workers read the rows in place and check them by their list of blocks.
type Piece struct {
	Index int
	Place job.Place
	Rows  *model.Rows
}

// Rounds returns the rounds of a job that has rounds (job.Plan). The first ones divide the sampled
// rows into the given number of portions by a seeded hash; one portion means all rows at
// once. Each later round is another pass over all sampled rows.
func (s Sample) Rounds(portions, passes int) []job.Round {
	rounds := make([]job.Round, portions, portions+passes-1)
	picker := picker{Sample: s}
	for picker.seen < s.Rows {
		if index, chosen := picker.next(); chosen {
			rounds[s.portion(index, portions)].Rows++
		}
	}
	for pass := 1; pass < passes; pass++ {
		rounds = append(rounds, job.Round{Rows: s.Keep, Pass: pass})
	}
	return rounds
}

// PathRounds returns the rounds of a path: those that drop entries, and then those that add some. The first one has estimator.FirstParts of
// the parts of the sampled rows, or all of them, and the first one that adds a third of the parts. The others have one part after the other, in turn.
// There are at most as many parts as sampled rows.
func (s Sample) PathRounds(drops, adds, parts int) (rounds []job.Round) {
	parts = int(min(int64(parts), s.Keep))
	rows, count := make([]int64, parts), int64(parts)
	for part := range rows {
		rows[part] = s.Keep / count
	}
	for kept := s.Keep - s.Keep%count; kept < s.Keep; kept++ {
		rows[s.part(kept, parts)]++
	}
	part, take := 0, min(parts, estimator.FirstParts)
	for n := range drops + adds {
		if n == drops {
			take = (parts + 2) / 3
		}
		r := job.Round{Part: part, Take: take, Parts: parts}
		for k := range take {
			r.Rows += rows[(part+k)%parts]
		}
		rounds = append(rounds, r)
		part, take = (part+take)%parts, 1
	}
	return rounds
}

// part returns the number of the part to which a row of the sample belongs, given the number of
// sampled rows before it. Of a block of consecutive sampled rows, one for each part, the first row
// belongs to a random part, and the others to the parts after it in turn.
func (s Sample) part(kept int64, parts int) int {
	return int((s.turn(kept/int64(parts), parts) + kept) % int64(parts))
}

// turn returns the part of the first row of a block.
func (s Sample) turn(block int64, parts int) int64 {
	stream := random.At(s.Seed, random.Part, uint64(block), 0)
	return int64(stream.Below(uint64(parts)))
}

// has reports whether the last row that was chosen belongs to the portion or the parts of place. index
// is its index.
func (p *picker) has(index int64, place *job.Place) bool {
	if place.Parts == 0 {
		return place.Portions == 0 || p.portion(index, place.Portions) == place.Portion
	}
	parts, kept := int64(place.Parts), p.kept-1
	if block := kept/parts + 1; block != p.block {
		p.block, p.begins = block, p.turn(block-1, place.Parts)
	}
	return (p.begins+kept-int64(place.Part)+parts)%parts < int64(place.Take)
}

// portion returns the number of the portion to which a row belongs.
func (s Sample) portion(index int64, portions int) int {
	if portions == 1 {
		return 0
	}
	stream := random.At(s.Seed, random.Portion, uint64(index), 0)
	return job.Portion(stream.Uint64(), portions)
}

// Cut reads the rows of source once and cuts the sampled rows into shards according to
// plan. next returns the index of the next wanted shard, or a negative number if no more
// shards are wanted; it may block. The indices must ascend and belong to one round. Cut
// passes each wanted shard to emit, which must not keep it.
func Cut(ctx context.Context, source model.RowSource, sample Sample, plan job.Plan,
	next func(context.Context) (int, error), emit func(context.Context, *Piece) error) error {
	c := cutter{picker: picker{Sample: sample}, plan: plan, wanted: next, emit: emit}
	if err := c.advance(ctx); err != nil {
		return ignore(err, errEnough)
	}
	if err := source(ctx, func(rows *model.Rows) error { return c.add(ctx, rows) }); err != nil {
		return ignore(err, errEnough)
	}
	return fmt.Errorf("the dataset ended after %d rows, expected %d", c.seen, sample.Rows)
}

// errEnough stops the reading once no more shards are wanted.
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

	at       int64     // rows of the round seen so far
	want     int       // index of the current shard, or of the next wanted one
	round    job.Place // portion or parts of this shard's round; nothing else is set
	from, to int64     // its rows within the round
	place    job.Place
	rows     model.Rows
}

func (c *cutter) advance(ctx context.Context) error {
	want, err := c.wanted(ctx)
	if err == nil && want < 0 {
		err = errEnough
	}
	if err != nil {
		return err
	}
	c.want = want
	var round int
	round, c.from, c.to = c.plan.Locate(want)
	c.round = placeOf(&c.plan, round)
	return nil
}

// add takes the rows of a batch that are sampled and belong to a wanted shard.
func (c *cutter) add(ctx context.Context, rows *model.Rows) error {
	for i := range rows.Len() {
		index, chosen := c.picker.next()
		if !chosen || !c.has(index, &c.round) {
			continue
		}
		c.at++
		if c.at <= c.from {
			continue
		}
		if c.rows.Len() == 0 {
			c.place = c.round
			c.place.Seen, c.place.Kept = index, c.kept-1
		}
		c.rows.Append(rows, i)
		if c.at < c.to {
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

// placeOf returns a place with only the portion or the parts of a round.
func placeOf(plan *job.Plan, round int) (place job.Place) {
	if portions := plan.Portions(); round < portions && portions > 1 {
		place.Portion, place.Portions = round, portions
	}
	if len(plan.Rounds) > 0 {
		r := &plan.Rounds[round]
		place.Part, place.Take, place.Parts = r.Part, r.Take, r.Parts
	}
	return place
}

// Collect is like Cut for the single shard at place, which has want rows. source must
// begin at row place.Seen of the splits. Collect returns an error if there are too few
// rows, or if place has a digest of rows and that of the rows differs.
func Collect(ctx context.Context, source model.RowSource, sample Sample, place job.Place, want int64) (*model.Rows, error) {
	p := picker{Sample: sample, seen: place.Seen, kept: place.Kept}
	all := &model.Rows{}
	err := source(ctx, func(rows *model.Rows) error {
		for i := range rows.Len() {
			index, chosen := p.next()
			if !chosen || !p.has(index, &place) {
				continue
			}
			if all.Append(rows, i); int64(all.Len()) == want {
				return errEnough
			}
		}
		return nil
	})
	if err == nil {
		return nil, fmt.Errorf("the dataset has only %d of %d rows at the shard's place", all.Len(), want)
	}
	if err := ignore(err, errEnough); err != nil {
		return nil, err
	}
	if place.SHA256 != "" && Digest(all) != place.SHA256 {
		return nil, errors.New("the digest of the rows differs from that of the shard")
	}
	return all, nil
}

// Draw reads the rows of source once and returns a random sample of n of the sampled rows, or all of
// them if there are fewer. It leaves out rows that check refuses.
func (s Sample) Draw(ctx context.Context, source model.RowSource, n int64, check func(features []int32) error) (*model.Rows, error) {
	all, outer := &model.Rows{}, picker{Sample: s}
	inner := picker{Sample: Sample{Rows: s.Keep, Keep: min(n, s.Keep), Seed: s.Seed, Generation: drawn}}
	err := source(ctx, func(rows *model.Rows) error {
		for i := range rows.Len() {
			if _, chosen := outer.next(); !chosen {
				continue
			}
			if _, chosen := inner.next(); chosen && check(rows.Row(i)) == nil {
				all.Append(rows, i)
			}
		}
		return nil
	})
	return all, err
}

// drawn takes the place of the generation in Draw.
const drawn = math.MaxUint64

// Digest returns the SHA-256 of rows in hexadecimal. Each row in turn contributes its
// number (64 bits), its label (8 bits; a label other than 0 and 1 is the byte 2 and a float32), the global ids of its features (32 bits each),
// its dense inputs (float32) and, if rows have weights, its weight (32 bits), all little-endian.
func Digest(rows *model.Rows) string {
	digest := sha256.New()
	var buffer []byte
	for i := range rows.Len() {
		buffer = binary.LittleEndian.AppendUint64(buffer, uint64(rows.Number[i]))
		if label := rows.Label[i]; isBinary(label) {
			buffer = append(buffer, uint8(label))
		} else {
			buffer = binary.LittleEndian.AppendUint32(append(buffer, 2), math.Float32bits(label))
		}
		for _, feature := range rows.Row(i) {
			buffer = binary.LittleEndian.AppendUint32(buffer, uint32(feature))
		}
		for _, x := range rows.DenseRow(i) {
			buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(x))
		}
		if rows.Weight != nil {
			buffer = binary.LittleEndian.AppendUint32(buffer, uint32(rows.Weight[i]))
		}
		if len(buffer) >= 1<<15 {
			digest.Write(buffer)
			buffer = buffer[:0]
		}
	}
	digest.Write(buffer)
	return hex.EncodeToString(digest.Sum(nil))
}

// isBinary reports whether a label is 0 or 1.
func isBinary(label float32) bool { return label == 0 || label == 1 }

// picker decides for each row whether it is in the sample.
type picker struct {
	Sample
	seen int64 // number of rows seen so far
	kept int64 // number of these rows that are in the sample

	draws *random.Consecutive // nil = none was needed yet

	// The last block for which has was called, counted from 1, and its turn.
	block, begins int64
}

// next decides about the next row. It keeps the row with probability (rows still to keep)
// / (rows still to come), which keeps exactly Keep rows (Knuth, The Art of Computer
// Programming, vol. 2, 3.4.2, algorithm S).
func (p *picker) next() (index int64, chosen bool) {
	index = p.seen
	p.seen++
	left := p.Rows - index
	need := p.Keep - p.kept
	if need < left {
		if p.draws == nil {
			p.draws = random.NewConsecutive(p.Seed, random.Sample, p.Generation)
		}
		if int64(p.draws.Below(uint64(index), uint64(max(left, 1)))) >= need {
			return index, false
		}
	}
	p.kept++
	return index, true
}

// Encode returns the blob of a shard with the given rows. form is that of the dataset, with
// the dense inputs that the rows have.
func Encode(form arrowio.RowForm, rows *model.Rows) ([]byte, error) {
	var data bytes.Buffer
	form.Numbered = true
	w, err := arrowio.NewRowWriter(&data, form, 1)
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

// Open returns the rows of a shard for a model with architecture a. The shard must have the
// model's fields and lists, exactly its dense inputs in this order, and want rows.
func Open(data []byte, a *model.Architecture, want int64) (*model.Rows, error) {
	r, err := arrowio.NewRowReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	form := r.Form()
	if !form.Numbered {
		return nil, errors.New("shard has no row numbers")
	}
	if !slices.Equal(form.Sizes, a.FieldDims) {
		return nil, fmt.Errorf("shard has field sizes %v, the model has %v", form.Sizes, a.FieldDims)
	}
	var lengths []int
	if len(a.Lists) > 0 {
		lengths = make([]int, len(a.FieldDims))
	}
	for _, l := range a.Lists {
		lengths[l.Field] = l.Length
	}
	if !slices.Equal(form.Lengths, lengths) {
		return nil, fmt.Errorf("shard has lists of lengths %v, the model has %v", form.Lengths, lengths)
	}
	if !slices.Equal(form.Dense, a.Dense) {
		return nil, fmt.Errorf("shard has the dense inputs %q, the model reads %q", form.Dense, a.Dense)
	}
	all, batch := &model.Rows{Width: a.Width(), Inputs: len(a.Dense)}, &model.Rows{}
	for {
		if err := r.Next(batch); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		all.AppendAll(batch)
		if int64(all.Len()) > want {
			break
		}
	}
	if int64(all.Len()) != want {
		return nil, fmt.Errorf("shard has at least %d rows, its task expects %d", all.Len(), want)
	}
	return all, nil
}

package shard

import (
	"context"
	"errors"
	"fmt"

	"shaver/internal/jobs/job"
)

// Places computes the places of shards without reading rows. It is not safe for concurrent use.
type Places struct {
	sample Sample
	plan   job.Plan

	rows picker  // has decided about the first rows
	seen []int64 // number of rows before each placesStep-th sampled row that rows has chosen

	portion picker // has decided about the rows before the last shard of a round with a portion
	round   int    // the round; -1 = none yet
	at      int64  // number of these rows that are in the portion
}

// placesStep is the number of sampled rows for each number that Places keeps.
const placesStep = 1 << 12

// Places returns the places of the shards of plan.
func (s Sample) Places(plan job.Plan) *Places {
	return &Places{sample: s, plan: plan, rows: picker{Sample: s}, round: -1}
}

// Of returns the place of a shard, without a digest. If all rows are sampled and the shard's round is not a portion, this takes
// the same time for every shard. Otherwise Of decides once about each row before the shard, and in a
// round with a portion again if the shard comes before the last one. It returns the error of ctx if ctx
// ends, and an error if the plan has more rows than the sample.
func (p *Places) Of(ctx context.Context, index int) (place job.Place, err error) {
	round, from, _ := p.plan.Locate(index)
	place = placeOf(&p.plan, round)
	switch {
	case place.Portions > 0:
		place.Seen, place.Kept, err = p.inPortion(ctx, round, from, &place)
	case place.Parts > 0:
		place.Kept = p.sample.inParts(from, &place)
		place.Seen, err = p.row(ctx, place.Kept)
	default:
		place.Kept = from
		place.Seen, err = p.row(ctx, from)
	}
	if err == errNoRow {
		err = fmt.Errorf("shard %d of the plan begins after the last of %d sampled rows", index, p.sample.Keep)
	}
	return place, err
}

// errNoRow says that a shard begins after the last row.
var errNoRow = errors.New("no row is left")

// row returns the number of rows before sampled row n.
func (p *Places) row(ctx context.Context, n int64) (int64, error) {
	if n >= p.sample.Keep {
		return 0, errNoRow
	}
	if p.sample.Keep == p.sample.Rows {
		return n, nil
	}
	for n/placesStep >= int64(len(p.seen)) {
		row, err := p.rows.chosen(ctx)
		if err != nil {
			return 0, err
		}
		if (p.rows.kept-1)%placesStep == 0 {
			p.seen = append(p.seen, row)
		}
	}
	begin := n / placesStep
	near := picker{Sample: p.sample, seen: p.seen[begin], kept: begin * placesStep}
	for {
		if row, err := near.chosen(ctx); err != nil || near.kept > n {
			return row, err
		}
	}
}

// chosen returns the next row that is in the sample.
func (p *picker) chosen(ctx context.Context) (int64, error) {
	for p.seen < p.Rows {
		if p.seen%(1<<16) == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if row, chosen := p.next(); chosen {
			return row, nil
		}
	}
	return 0, errNoRow
}

// inPortion returns the number of rows, and of sampled rows, before row n of a round with a portion.
func (p *Places) inPortion(ctx context.Context, round int, n int64, place *job.Place) (seen, kept int64, err error) {
	if round != p.round || n < p.at {
		p.portion, p.round, p.at = picker{Sample: p.sample}, round, 0
	}
	for {
		row, err := p.portion.chosen(ctx)
		if err != nil {
			return 0, 0, err
		}
		if !p.portion.has(row, place) {
			continue
		}
		if p.at++; p.at > n {
			return row, p.portion.kept - 1, nil
		}
	}
}

// inParts returns the number of sampled rows before row n of the parts of place.
func (s Sample) inParts(n int64, place *job.Place) int64 {
	parts, take := int64(place.Parts), int64(max(1, place.Take))
	p := picker{Sample: s, kept: n / take * parts} // each block of rows before it has take rows of these parts
	for left := n % take; p.kept < s.Keep; {
		p.kept++
		if !p.has(p.kept-1, place) {
			continue
		}
		if left--; left < 0 {
			return p.kept - 1
		}
	}
	return s.Keep
}

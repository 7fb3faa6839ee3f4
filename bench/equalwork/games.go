//go:build unix

package main

import (
	"context"
	"path/filepath"

	"shaver/bench/flights"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/num/random"
	"shaver/internal/value/baseline"
	"shaver/internal/value/shapley"
)

// game is the games of some rows, whose values the methods estimate.
type game struct {
	name    string
	game    shapley.Game
	rows    *model.Rows
	players int   // of each row
	mean    bool  // whether the values are those of the mean loss of all rows, and not of each row
	budgets []int // evaluations per row that the other packages get
	seeds   int
}

// Numbers of rows of the games of fields.
const (
	fieldRows = 50  // of the games of single rows
	meanRows  = 500 // of the game of their mean loss
)

// newGames returns the games: entries of DeepFM and perhaps of DCN-Mix, entries of a small model, fields of
// DeepFM for single rows, and fields of DeepFM for the mean loss. Dropped entries read the codebook.
func newGames(ctx context.Context, o *options) ([]*game, error) {
	sets, err := flights.Read(ctx, o.flights)
	if err != nil {
		return nil, err
	}
	var games []*game
	for i, s := range sets {
		if i > 0 && !o.all {
			break
		}
		book, _, err := baseline.Of(baseline.Codebook, &s.Model.Architecture, s.Model.Weights.Embedding, s.Counts)
		if err != nil {
			return nil, err
		}
		games = append(games, &game{name: s.Name + ", 176 entries", game: shapley.Game{Model: s.Model, Baseline: book}, rows: sample(s.Rows, o.rows), seeds: o.seeds,
			budgets: []int{16, 64, 256, 1024}})
	}
	small, err := golden(o.golden)
	if err != nil {
		return nil, err
	}
	games = append(games, small)
	small.seeds = o.seeds
	deep := sets[0]
	fields := shapley.Game{Model: deep.Model, Baseline: games[0].game.Baseline}
	fields.Fields = &shapley.Fields{Absent: &model.Absent{Embedding: fields.Baseline.Values, Constants: deep.Model.MeanConstants(deep.Counts)}}
	games = append(games,
		&game{name: "DeepFM, 11 fields", game: fields, rows: sample(deep.Rows, fieldRows), seeds: o.seeds, budgets: []int{16, 64, 256, 1024, 2048}},
		&game{name: "DeepFM, 11 fields, mean loss", game: fields, rows: sample(deep.Rows, meanRows), mean: true, seeds: 2 * o.seeds, budgets: []int{1, 3, 12, 48}})
	for _, g := range games {
		if g.players = g.game.Model.Players(); g.game.Fields != nil {
			g.players = g.game.Model.Fields()
		}
	}
	return games, nil
}

// sample returns n random rows.
func sample(rows *model.Rows, n int) *model.Rows {
	order := make([]int32, rows.Len())
	for i := range order {
		order[i] = int32(i)
	}
	stream := random.At(1, random.Sample, 0, 0)
	stream.Permute(order)
	drawn := &model.Rows{}
	for _, i := range order[:min(n, len(order))] {
		drawn.Append(rows, int(i))
	}
	return drawn
}

// golden returns the game of the golden DeepFM, which has 10 players and random weights, for rows
// with random features.
func golden(dir string) (*game, error) {
	ck, err := checkpoint.Read(filepath.Join(dir, "deepfm.pth"))
	if err != nil {
		return nil, err
	}
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	rows := &model.Rows{Width: m.Fields()}
	stream := random.At(2, random.Sample, 0, 0)
	for i := range fieldRows {
		rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, float32(stream.Below(2)))
		for j, first := range m.Offsets() {
			rows.Features = append(rows.Features, first+int32(stream.Below(uint64(m.FieldDims[j]))))
		}
	}
	counts := make([]int64, m.Features())
	for _, f := range rows.Features {
		counts[f]++
	}
	book, _, err := baseline.Of(baseline.Codebook, &m.Architecture, m.Weights.Embedding, counts)
	if err != nil {
		return nil, err
	}
	return &game{name: "small DeepFM, 10 entries", game: shapley.Game{Model: m, Baseline: book}, rows: rows, budgets: []int{16, 64, 256, 1024}}, nil
}

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"shaver/internal/base/cputime"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/kernel"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// turn is what one process measures at one level of the kernels.
type turn struct {
	Peak     float64 `json:"peak"` // floating point operations per second
	Layers   []share `json:"layers"`
	Lines    []line  `json:"lines"`
	TwoCores float64 `json:"two_cores"` // speed of two cores relative to one
}

// share is the fraction of the core's peak that a kernel reaches. The peak is measured
// right after the kernel.
type share struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// line is one line of the printed table.
type line struct {
	Name string   `json:"name"`
	Peer peerName `json:"peer"`
	Rate float64  `json:"rate"` // rows per second and core
	// Share is the fraction of the core's peak that the products of matrices in the head
	// reach, for models of Kind Graph. The peak is measured right after the walks.
	Share float64 `json:"share,omitempty"`
}

// bench is a model with the rows whose walks are measured.
type bench struct {
	name string
	game shapley.Game
	rows *model.Rows
	peer string // kind of the peer; "" = none
	wide bool   // used to compare two cores with one
	rate float64
}

var once = shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 1}

func printTurn(level, checkpoints, only string) error {
	if !kernel.Use(level) {
		return fmt.Errorf("this machine has no kernel %s", level)
	}
	lines, err := shapes(checkpoints)
	if err != nil {
		return err
	}
	t := turn{Peak: peak()}
	for _, b := range lines {
		if b.wide {
			if t.TwoCores, err = b.twoCores(); err != nil {
				return err
			}
		}
	}
	runtime.GOMAXPROCS(1)
	for _, b := range lines {
		if !strings.Contains(b.name, only) {
			continue
		}
		if err := b.measure(); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		name := peerName{Kind: b.peer, Players: b.game.Model.Players()}
		l := line{Name: b.name, Peer: name, Rate: b.rate}
		if best := peak(); best > 0 {
			l.Share = b.rate * 2 * float64(b.game.Model.Players()*b.game.Model.WalkProducts()) / best
		}
		t.Lines = append(t.Lines, l)
	}
	for _, l := range newLayers() {
		t.Layers = append(t.Layers, share{l.name, l.share()})
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

// shapes returns the benches: DeepFM and DCN-Mix with P = 624, 352 and 176 players of 16
// columns, an MLP of 400-400-400 and random weights; DCNv2 and AutoInt as graphs with
// P = 624; and then the checkpoints.
func shapes(checkpoints string) ([]*bench, error) {
	var lines []*bench
	for _, fields := range []int{39, 22, 11} {
		a := model.Architecture{Kind: model.DeepFM, FieldDims: slices.Repeat([]int{50}, fields), Dim: 16, Hidden: []int{400, 400, 400}}
		for _, active := range []float64{.4, .2, .6} {
			lines = append(lines, &bench{name: fmt.Sprintf("DeepFM, P = %d, %.0f%% active", a.Players(), 100*active),
				game: game(modeltest.Calibrated(a, active, false)), rows: modeltest.Rows(a, 64, 1), peer: "deepfm", wide: fields == 39 && active == .4})
		}
		a.Kind, a.CrossLayers, a.Experts, a.Rank = model.DCNMix, 3, 4, 64
		for _, zero := range []bool{false, true} {
			name := fmt.Sprintf("DCN-Mix, P = %d, 40%% active", a.Players())
			if zero {
				name += ", zero baseline"
			}
			lines = append(lines, &bench{name: name, game: game(modeltest.Calibrated(a, .4, zero)), rows: modeltest.Rows(a, 64, 1), peer: "dcn-mix"})
		}
	}
	cross := model.Architecture{Kind: model.DCNv2, FieldDims: slices.Repeat([]int{50}, 39), Dim: 16, Hidden: []int{400, 400, 400}, CrossLayers: 2, Structure: model.Parallel}
	for _, g := range []struct {
		name  string
		model *model.Model
	}{{"DCNv2", modeltest.Graph(cross, modeltest.Weights(cross, 1))}, {"AutoInt", modeltest.AutoInt(39, 1)}} {
		values, _, err := baseline.Of(baseline.Codebook, &g.model.Architecture, g.model.Weights.Embedding, make([]int64, g.model.Features()))
		if err != nil {
			return nil, err
		}
		lines = append(lines, &bench{name: fmt.Sprintf("%s as a graph, P = %d", g.name, g.model.Players()),
			game: game(g.model, values), rows: modeltest.Rows(g.model.Architecture, 64, 1)})
	}
	for path := range strings.SplitSeq(checkpoints, ",") {
		if path == "" {
			continue
		}
		ck, err := checkpoint.Read(path)
		if err != nil {
			return nil, err
		}
		m, err := ck.Model()
		if err != nil {
			return nil, err
		}
		values, _, err := baseline.Of(baseline.Codebook, &m.Architecture, m.Weights.Embedding, make([]int64, m.Features()))
		if err != nil {
			return nil, err
		}
		lines = append(lines, &bench{name: fmt.Sprintf("%s, P = %d", filepath.Base(path), m.Players()),
			game: game(m, values), rows: modeltest.Rows(m.Architecture, 64, 1)})
	}
	return lines, nil
}

func game(m *model.Model, baseline model.Baseline) shapley.Game {
	return shapley.Game{Model: m, Baseline: baseline}
}

// measure computes rows for about half a second, with orders, walks, losses and sums.
func (b *bench) measure() error {
	rows, start, done := 1, cputime.Process(), 0
	for cputime.Process()-start < 500*time.Millisecond {
		part := b.rows.Slice(0, min(rows, b.rows.Len()))
		begun := cputime.Process()
		if _, err := shapley.Estimate(context.Background(), b.game, once, &part, 1, nil); err != nil {
			return err
		}
		if rows == 1 { // warm up and find out how many rows take long enough
			rows = int(200*time.Millisecond/max(cputime.Process()-begun, time.Millisecond)) + 2
			start = cputime.Process()
			continue
		}
		done += part.Len()
	}
	b.rate = float64(done) / (cputime.Process() - start).Seconds()
	return nil
}

// twoCores returns how many times as fast two cores are as one.
func (b *bench) twoCores() (float64, error) {
	rows := b.rows.Slice(0, b.rows.Len())
	for range 3 { // enough rows for two goroutines to end at about the same time
		rows.Label, rows.Number, rows.Features = append(rows.Label, rows.Label...), append(rows.Number, rows.Number...), append(rows.Features, rows.Features...)
	}
	var took [3]time.Duration
	for threads := range took {
		if threads == 0 {
			continue
		}
		start := time.Now()
		if _, err := shapley.Estimate(context.Background(), b.game, once, &rows, threads, nil); err != nil {
			return 0, err
		}
		took[threads] = time.Since(start)
	}
	return took[1].Seconds() / took[2].Seconds(), nil
}

// layer is a matrix product as in a tile of a walk: a tile of rows by 400 x 400.
type layer struct {
	name    string
	matrix  *kernel.Matrix
	in, out kernel.Tile
	list    []int32
}

func newLayers() []*layer {
	const width = 400
	weights := make([]float32, width*width)
	for i := range weights {
		weights[i] = float32(i%7) - 3
	}
	var layers []*layer
	for _, percent := range []int{100, 40} {
		l := &layer{name: fmt.Sprintf("%d x %d x %d, %d%% of the inputs listed", kernel.TileRows(), width, width, percent),
			matrix: kernel.NewMatrix(weights, nil, width, width), in: kernel.NewTile(kernel.TileRows(), width), out: kernel.NewTile(kernel.TileRows(), width),
			list: kernel.NewList(width)}
		for k := range width {
			if k*percent/100 != (k+1)*percent/100 {
				l.list = append(l.list, int32(k))
			}
		}
		layers = append(layers, l)
	}
	return layers
}

// share measures the product, then the peak, and returns their ratio.
func (l *layer) share() float64 {
	const times = 3000
	rows := kernel.TileRows()
	start := cputime.Process()
	for range times {
		l.matrix.Layer(l.out, l.in, rows, l.list, true, nil)
	}
	rate := float64(times*2*rows*len(l.list)*400) / (cputime.Process() - start).Seconds()
	if best := peak(); best > 0 {
		return rate / best
	}
	return 0
}

// peak returns the floating point operations per second that this core can do.
func peak() float64 {
	start := cputime.Process()
	done := kernel.Peak(2e9)
	if done == 0 {
		return 0
	}
	return float64(done) / (cputime.Process() - start).Seconds()
}

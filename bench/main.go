//go:build unix

// Command bench measures walks, in one run: what this core's FMA units could do,
// the kernels' share of it, rows a second and core for each model at the shapes
// of Criteo, Avazu and KDD, and the ratio to a peer in PyTorch. Everything takes
// turns, and the medians of processor times are printed, as a table in Markdown.
//
// The peer wants Debian's python3-torch and libopenblas0-pthread; without the
// latter it multiplies with the reference BLAS, at a fortieth of the speed.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"shaver/internal/checkpoint"
	"shaver/internal/kernel"
	"shaver/internal/model"
	"shaver/internal/model/modeltest"
	"shaver/internal/prune"
	"shaver/internal/shapley"
	"shaver/internal/tally"
)

// bench is one line of the table.
type bench struct {
	name  string
	game  shapley.Game
	rows  *model.Rows
	peer  *peer // nil = none
	rates []float64
}

// peer is the PyTorch program at one shape, shared by the lines of that shape.
type peer struct {
	kind    string
	players int
	batch   int // the best one, once known
	rates   []float64
}

func main() {
	rounds := flag.Int("rounds", 5, "turns of everything")
	python := flag.String("python", "/usr/bin/python3", "Python with torch for the peer; empty = no peer")
	script := flag.String("peer", "bench/peer/walk.py", "the peer")
	checkpoints := flag.String("checkpoints", "", "checkpoints to measure too, separated by commas")
	only := flag.String("only", "", "lines whose name holds this")
	flag.Parse()
	if err := run(*rounds, *python, *script, *checkpoints, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds int, python, script, checkpoints, only string) error {
	runtime.GOMAXPROCS(1)
	lines, err := shapes(checkpoints)
	if err != nil {
		return err
	}
	lines = slices.DeleteFunc(lines, func(b *bench) bool { return !strings.Contains(b.name, only) })
	var peers []*peer
	for _, b := range lines {
		if b.peer != nil && !slices.Contains(peers, b.peer) && python != "" {
			peers = append(peers, b.peer)
		}
	}
	layers := newLayers()
	var peaks []float64
	for round := range rounds {
		for _, b := range lines {
			fmt.Fprintf(os.Stderr, "round %d: %s\n", round+1, b.name)
			peaks = append(peaks, peak())
			if err := b.measure(); err != nil {
				return fmt.Errorf("%s: %w", b.name, err)
			}
		}
		for _, l := range layers {
			l.measure()
		}
		for _, p := range peers {
			fmt.Fprintf(os.Stderr, "round %d: PyTorch %s, P = %d\n", round+1, p.kind, p.players)
			if err := p.measure(python, script); err != nil {
				return err
			}
		}
	}
	report(lines, layers, median(peaks))
	return nil
}

func report(lines []*bench, layers []*layer, peak float64) {
	fmt.Printf("kernel %s, %d rounds; FMA peak of this core %.0f GFLOP/s\n\n", kernel.Name(), len(lines[0].rates), peak/1e9)
	if peak > 0 {
		for _, l := range layers {
			fmt.Printf("- Layer %s: %.0f%% of the peak\n", l.name, 100*median(l.shares))
		}
		fmt.Println()
	}
	fmt.Println("| walks | rows/s and core | PyTorch | ratio |\n|---|---|---|---|")
	for _, b := range lines {
		rate := median(b.rates)
		if b.peer == nil || len(b.peer.rates) == 0 {
			fmt.Printf("| %s | %.0f | | |\n", b.name, rate)
			continue
		}
		theirs := median(b.peer.rates)
		fmt.Printf("| %s | %.0f | %.1f | %.1f |\n", b.name, rate, theirs, rate/theirs)
	}
}

// shapes makes the lines: P = 624, 352 and 176 of 16 columns each, an MLP of
// 400-400-400, random weights.
func shapes(checkpoints string) ([]*bench, error) {
	var lines []*bench
	for _, fields := range []int{39, 22, 11} {
		a := model.Architecture{Kind: model.DeepFM, FieldDims: slices.Repeat([]int{50}, fields), Dim: 16, Hidden: []int{400, 400, 400}}
		shared := &peer{kind: "deepfm", players: a.Players()}
		for _, active := range []float64{.4, .2, .6} {
			lines = append(lines, &bench{name: fmt.Sprintf("DeepFM, P = %d, %.0f%% active", a.Players(), 100*active),
				game: game(modeltest.Calibrated(a, active, false)), rows: modeltest.Rows(a, 64, 1), peer: shared})
		}
		a.Kind, a.CrossLayers, a.Experts, a.Rank = model.DCNMix, 3, 4, 64
		shared = &peer{kind: "dcn-mix", players: a.Players()}
		for _, zero := range []bool{false, true} {
			name := fmt.Sprintf("DCN-Mix, P = %d, 40%% active", a.Players())
			if zero {
				name += ", zero baseline"
			}
			lines = append(lines, &bench{name: name, game: game(modeltest.Calibrated(a, .4, zero)), rows: modeltest.Rows(a, 64, 1), peer: shared})
		}
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
		baseline, _, err := prune.Baseline(prune.Codebook, &m.Architecture, m.Weights.Embedding, make([]int64, m.Features()))
		if err != nil {
			return nil, err
		}
		lines = append(lines, &bench{name: fmt.Sprintf("%s, P = %d", filepath.Base(path), m.Players()),
			game: game(m, baseline), rows: modeltest.Rows(m.Architecture, 64, 1)})
	}
	return lines, nil
}

func game(m *model.Model, baseline []float32) shapley.Game {
	return shapley.Game{Model: m, Baseline: baseline}
}

// measure estimates rows for about half a second: orders, walks, losses, sums.
func (b *bench) measure() error {
	options := shapley.Options{Estimator: shapley.Permutation, Passes: 1, Seed: 1}
	rows, start, done := 1, cpuTime(), 0
	for cpuTime()-start < 500*time.Millisecond {
		part := b.rows.Slice(0, min(rows, b.rows.Len()))
		begun := cpuTime()
		if _, err := shapley.Estimate(context.Background(), b.game, options, tally.RowToRow, &part, 1, nil); err != nil {
			return err
		}
		if rows == 1 { // warm up, and learn how many take long enough
			rows = int(200*time.Millisecond/max(cpuTime()-begun, time.Millisecond)) + 2
			start = cpuTime()
			continue
		}
		done += part.Len()
	}
	b.rates = append(b.rates, float64(done)/(cpuTime()-start).Seconds())
	return nil
}

// layer is a product as a walk's tile has it: a tile of rows by 400 x 400.
type layer struct {
	name    string
	matrix  *kernel.Matrix
	in, out kernel.Tile
	list    []int32
	shares  []float64 // of the peak measured beside it
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

func (l *layer) measure() {
	const times = 3000
	rows := kernel.TileRows()
	start := cpuTime()
	for range times {
		l.matrix.Layer(l.out, l.in, rows, l.list, true, nil)
	}
	rate := float64(times*2*rows*len(l.list)*400) / (cpuTime() - start).Seconds()
	if best := peak(); best > 0 {
		l.shares = append(l.shares, rate/best)
	} else {
		l.shares = append(l.shares, 0)
	}
}

// peak returns the floating point operations a second of this core's FMA units.
func peak() float64 {
	start := cpuTime()
	done := kernel.Peak(2e9)
	if done == 0 {
		return 0
	}
	return float64(done) / (cpuTime() - start).Seconds()
}

// measure runs the peer, the first time with several batch sizes.
func (p *peer) measure(python, script string) error {
	args := []string{script, "--kind", p.kind, "--players", strconv.Itoa(p.players), "--seconds", "1"}
	if p.batch > 0 {
		args = append(args, "--batches", strconv.Itoa(p.batch))
	}
	c := exec.Command(python, args...)
	// OpenBLAS takes processors that are newer than itself for very old ones.
	c.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS=1", "OPENBLAS_CORETYPE="+cmp.Or(os.Getenv("OPENBLAS_CORETYPE"), "SkylakeX"))
	var errors bytes.Buffer
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("the peer: %w: %s", err, errors.String())
	}
	var result struct {
		RowsPerSecond float64 `json:"rows_per_second"`
		Batch         int     `json:"batch"`
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return fmt.Errorf("the peer printed %q: %w", out, err)
	}
	p.batch = result.Batch
	p.rates = append(p.rates, result.RowsPerSecond)
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

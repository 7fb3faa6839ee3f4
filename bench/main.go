//go:build unix

// Command bench measures walks, in one run and at each level of this machine: what
// the core could do, the kernels' share of it, rows a second and core for each model
// at the shapes of Criteo, Avazu and KDD, what a second core adds, and the ratio to a
// peer in PyTorch. Levels and peers are processes that take turns, and the medians of
// their processor times are printed, as a table in Markdown.
//
// The peer wants Debian's python3-torch and libopenblas0-pthread; without the
// latter it multiplies with the reference BLAS, at a fortieth of the speed.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// levelSettings turn levels of the kernels off, from the fastest on; the Go runtime
// warns that it does not know the first.
var levelSettings = []string{"", "cpu.amxtile=off", "cpu.avx512f=off"}

// level is one level of the kernels: turns of a process that has it.
type level struct {
	setting string
	turns   []turn
}

func main() {
	rounds := flag.Int("rounds", 5, "turns of everything")
	python := flag.String("python", "/usr/bin/python3", "Python with torch for the peer; empty = no peer")
	script := flag.String("peer", "bench/peer/walk.py", "the peer")
	checkpoints := flag.String("checkpoints", "", "checkpoints to measure too, separated by commas")
	only := flag.String("only", "", "lines whose name holds this")
	one := flag.Bool("turn", false, "measure one turn of one level, and print it as JSON")
	flag.Parse()
	var err error
	if *one {
		err = printTurn(*checkpoints, *only)
	} else {
		err = run(*rounds, *python, *script, *checkpoints, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds int, python, script, checkpoints, only string) error {
	var levels []*level
	for _, setting := range levelSettings {
		levels = append(levels, &level{setting: setting})
	}
	var peers []*peer
	for round := range rounds {
		for _, l := range levels {
			fmt.Fprintf(os.Stderr, "round %d: kernels %s\n", round+1, l.setting)
			t, err := runTurn(l.setting, checkpoints, only)
			if err != nil {
				return err
			}
			l.turns = append(l.turns, *t)
		}
		if round == 0 { // settings that turn off what this machine lacks
			levels = slices.CompactFunc(levels, func(a, b *level) bool { return a.turns[0].Kernel == b.turns[0].Kernel })
		}
		if round == 0 && python != "" {
			peers = peersOf(levels[0].turns[0].Lines)
		}
		for _, p := range peers {
			fmt.Fprintf(os.Stderr, "round %d: PyTorch %s, P = %d\n", round+1, p.kind, p.players)
			if err := p.measure(python, script); err != nil {
				return err
			}
		}
	}
	report(levels, peers)
	return nil
}

// runTurn runs a process of one level.
func runTurn(setting, checkpoints, only string) (*turn, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(program, "-turn", "-checkpoints", checkpoints, "-only", only)
	c.Env = append(os.Environ(), "GODEBUG="+setting)
	var errors bytes.Buffer
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("turn with GODEBUG=%s: %w: %s", setting, err, errors.String())
	}
	t := new(turn)
	if err := json.Unmarshal(out, t); err != nil {
		return nil, fmt.Errorf("turn with GODEBUG=%s printed %q: %w", setting, out, err)
	}
	if len(t.Lines) == 0 {
		return nil, fmt.Errorf("no line's name holds %q", only)
	}
	return t, nil
}

func report(levels []*level, peers []*peer) {
	for _, l := range levels {
		fmt.Printf("- kernel %s, %d rounds: peak of this core %.0f GFLOP/s", l.turns[0].Kernel, len(l.turns), l.median(func(t *turn) float64 { return t.Peak })/1e9)
		for i, s := range l.turns[0].Layers {
			fmt.Printf("; Layer %s: %.0f%% of it", s.Name, 100*l.median(func(t *turn) float64 { return t.Layers[i].Value }))
		}
		fmt.Printf("; two cores are %.2f times as fast as one\n", l.median(func(t *turn) float64 { return t.TwoCores }))
	}
	fmt.Print("\n| rows/s and core |")
	for _, l := range levels {
		fmt.Printf(" %s |", l.turns[0].Kernel)
	}
	fmt.Println(" PyTorch |", "\n|---|"+strings.Repeat("---|", len(levels)+1))
	for i, line := range levels[0].turns[0].Lines {
		fmt.Printf("| %s |", line.Name)
		theirs := rateOf(peers, line.Peer)
		for _, l := range levels {
			rate := l.median(func(t *turn) float64 { return t.Lines[i].Rate })
			if fmt.Printf(" %.0f", rate); theirs > 0 {
				fmt.Printf(" (%.1fx)", rate/theirs)
			}
			fmt.Print(" |")
		}
		if theirs > 0 {
			fmt.Printf(" %.1f", theirs)
		}
		fmt.Println(" |")
	}
}

// median returns the median of some value over a level's turns.
func (l *level) median(of func(t *turn) float64) float64 {
	var values []float64
	for i := range l.turns {
		values = append(values, of(&l.turns[i]))
	}
	return median(values)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

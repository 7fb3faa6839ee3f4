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

	"shaver/internal/kernel"
)

// level is one level of the kernels: turns of processes that use it.
type level struct {
	name  string
	turns []turn
}

func main() {
	rounds := flag.Int("rounds", 5, "turns of everything")
	python := flag.String("python", "/usr/bin/python3", "Python with torch for the peer; empty = no peer")
	script := flag.String("peer", "bench/peer/walk.py", "the peer")
	checkpoints := flag.String("checkpoints", "", "checkpoints to measure too, separated by commas")
	only := flag.String("only", "", "lines whose name holds this")
	one := flag.String("turn", "", "measure one turn of this level, and print it as JSON")
	flag.Parse()
	var err error
	if *one != "" {
		err = printTurn(*one, *checkpoints, *only)
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
	names := kernel.Names()
	for _, name := range names[:max(1, len(names)-1)] { // the portable one would take minutes a line
		levels = append(levels, &level{name: name})
	}
	var peers []*peer
	for round := range rounds {
		for _, l := range levels {
			fmt.Fprintf(os.Stderr, "round %d: kernel %s\n", round+1, l.name)
			t, err := runTurn(l.name, checkpoints, only)
			if err != nil {
				return err
			}
			l.turns = append(l.turns, *t)
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
func runTurn(name, checkpoints, only string) (*turn, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(program, "-turn", name, "-checkpoints", checkpoints, "-only", only)
	var errors bytes.Buffer
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("turn of kernel %s: %w: %s", name, err, errors.String())
	}
	t := new(turn)
	if err := json.Unmarshal(out, t); err != nil {
		return nil, fmt.Errorf("turn of kernel %s printed %q: %w", name, out, err)
	}
	if len(t.Lines) == 0 {
		return nil, fmt.Errorf("no line's name holds %q", only)
	}
	return t, nil
}

func report(levels []*level, peers []*peer) {
	for _, l := range levels {
		fmt.Printf("- kernel %s, %d rounds: peak of this core %.0f GFLOP/s", l.name, len(l.turns), l.median(func(t *turn) float64 { return t.Peak })/1e9)
		for i, s := range l.turns[0].Layers {
			fmt.Printf("; Layer %s: %.0f%% of it", s.Name, 100*l.median(func(t *turn) float64 { return t.Layers[i].Value }))
		}
		fmt.Printf("; two cores are %.2f times as fast as one\n", l.median(func(t *turn) float64 { return t.TwoCores }))
	}
	fmt.Print("\n| rows/s and core |")
	for _, l := range levels {
		fmt.Printf(" %s |", l.name)
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

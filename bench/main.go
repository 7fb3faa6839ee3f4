//go:build unix

// Command bench measures walks at each kernel level of this machine. In a single run it
// measures the peak of a core, the share of it that the kernels reach, the rows per
// second and core of each model at the shapes of Criteo, Avazu and KDD, the gain of a
// second core, and the ratio to a peer in PyTorch. Levels and peers run as processes that
// take turns. The program prints the medians of their processor times as a Markdown
// table.
//
// The peer needs Debian's python3-torch and libopenblas0-pthread. Without the latter it
// multiplies with the reference BLAS, which is forty times slower.
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

	"shaver/internal/num/kernel"
)

// level is one level of the kernels with the turns measured at it.
type level struct {
	name  string
	turns []turn
}

func main() {
	rounds := flag.Int("rounds", 5, "number of turns of each level and peer")
	python := flag.String("python", "/usr/bin/python3", "Python with torch for the peer; empty = no peer")
	script := flag.String("peer", "bench/peer/walk.py", "path of the peer's program")
	checkpoints := flag.String("checkpoints", "", "further checkpoints to measure, separated by commas")
	only := flag.String("only", "", "measure only lines whose name contains this text")
	one := flag.String("turn", "", "measure one turn of this level and print it as JSON")
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
	for _, name := range names[:max(1, len(names)-1)] { // the portable level would take minutes per line
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

// runTurn runs a process that measures one level.
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
		return nil, fmt.Errorf("no line's name contains %q", only)
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
			if share := l.median(func(t *turn) float64 { return t.Lines[i].Share }); share > 0 {
				fmt.Printf(" (%.0f%% of the peak)", 100*share)
			}
			fmt.Print(" |")
		}
		if theirs > 0 {
			fmt.Printf(" %.1f", theirs)
		}
		fmt.Println(" |")
	}
}

// median returns the median of a value over the turns of a level.
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

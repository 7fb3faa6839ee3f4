//go:build unix

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
)

// peerName says which peer a line is compared with; no kind is none.
type peerName struct {
	Kind    string `json:"kind"`
	Players int    `json:"players"`
}

// peer is the PyTorch program at one shape, shared by the lines of that shape.
type peer struct {
	kind    string
	players int
	batch   int // the best one, once known
	rates   []float64
}

// peersOf returns the peers of some lines.
func peersOf(lines []line) []*peer {
	var peers []*peer
	for _, l := range lines {
		if l.Peer.Kind != "" && !slices.ContainsFunc(peers, func(p *peer) bool { return p.is(l.Peer) }) {
			peers = append(peers, &peer{kind: l.Peer.Kind, players: l.Peer.Players})
		}
	}
	return peers
}

func (p *peer) is(name peerName) bool { return p.kind == name.Kind && p.players == name.Players }

// rateOf returns the named peer's rows a second, 0 if there is none.
func rateOf(peers []*peer, name peerName) float64 {
	for _, p := range peers {
		if p.is(name) {
			return median(p.rates)
		}
	}
	return 0
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

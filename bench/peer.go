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

// peerName identifies the peer of a line. An empty Kind means that the line has no peer.
type peerName struct {
	Kind    string `json:"kind"`
	Players int    `json:"players"`
}

// peer is the PyTorch program at one shape. All lines of that shape share it.
type peer struct {
	kind    string
	players int
	batch   int // the best batch size; 0 = not known yet
	rates   []float64
}

// peersOf returns the peers of the given lines.
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

// rateOf returns the rows per second of the named peer, or 0 if there is no such peer.
func rateOf(peers []*peer, name peerName) float64 {
	for _, p := range peers {
		if p.is(name) {
			return median(p.rates)
		}
	}
	return 0
}

// measure runs the peer. Its first run tries several batch sizes.
func (p *peer) measure(python, script string) error {
	args := []string{script, "--kind", p.kind, "--players", strconv.Itoa(p.players), "--seconds", "1"}
	if p.batch > 0 {
		args = append(args, "--batches", strconv.Itoa(p.batch))
	}
	c := exec.Command(python, args...)
	// OpenBLAS mistakes processors that are newer than itself for very old ones.
	c.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS=1", "OPENBLAS_CORETYPE="+cmp.Or(os.Getenv("OPENBLAS_CORETYPE"), "SkylakeX"))
	var errors bytes.Buffer
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("run the peer: %w: %s", err, errors.String())
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

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// kind is a sort of fault.
type kind string

// The faults. "Kill" is SIGKILL, "term" SIGTERM, "stop" SIGSTOP and later
// SIGCONT. A link is one client's way to all nodes: slow, cut (connections end,
// new ones are refused), or a hole (connections stay, nothing comes through).
const (
	killWorker        kind = "kill-worker"
	killCoordinator   kind = "kill-coordinator"
	killNode          kind = "kill-node"
	termWorker        kind = "term-worker"
	stopWorker        kind = "stop-worker"
	stopCoordinator   kind = "stop-coordinator"
	stopNode          kind = "stop-node"
	fillStream        kind = "fill-stream" // the blobs' quota is what they take
	fillNode          kind = "fill-node"   // a node's disk is
	slowLink          kind = "slow-link"
	cutLink           kind = "cut-link"
	holeLink          kind = "hole-link"
	corruptPartial    kind = "corrupt-partial"
	corruptShard      kind = "corrupt-shard"
	corruptCheckpoint kind = "corrupt-checkpoint"
	corruptModel      kind = "corrupt-model"
	loseStream        kind = "lose-stream" // all that one of them held
	rival             kind = "rival"       // a second coordinator of the job
)

// law is how often a fault is drawn, beside the others, and how long it lasts:
// until the restart, the continuation, the room, the healing.
type law struct {
	kind      kind
	weight    int
	low, high time.Duration
}

// lease is the job's: short, so that a run sees many of them end.
const lease = 2 * time.Second

var laws = []law{
	{killWorker, 18, 0, 2 * time.Second},
	{killCoordinator, 14, 0, 2 * time.Second},
	{killNode, 12, 0, 3 * time.Second},
	{termWorker, 10, 0, time.Second},
	{stopWorker, 10, lease, 3 * lease},
	{stopCoordinator, 4, time.Second, 6 * time.Second},
	{stopNode, 4, time.Second, 6 * time.Second},
	{fillStream, 6, time.Second, 5 * time.Second},
	{fillNode, 4, time.Second, 4 * time.Second},
	{slowLink, 6, 2 * time.Second, 6 * time.Second},
	{cutLink, 5, 0, 3 * time.Second},
	{holeLink, 5, time.Second, 6 * time.Second},
	{corruptPartial, 5, 0, 0},
	{corruptShard, 5, 0, 0},
	{corruptCheckpoint, 3, 0, 0},
	{corruptModel, 2, 0, 0},
	{loseStream, 2, 0, 0},
	{rival, 6, 0, 0},
}

// fault is one thing that will be done to a run.
type fault struct {
	Kind   kind          `json:"kind"`
	At     time.Duration `json:"at"`     // since the job was submitted
	Length time.Duration `json:"length"` // see law
	Pick   uint32        `json:"pick"`   // which one of those that there are
}

func (f fault) String() string {
	s := fmt.Sprintf("%5.1f s %s #%d", f.At.Seconds(), f.Kind, f.Pick%100)
	if f.Length > 0 {
		s += fmt.Sprintf(" for %.1f s", f.Length.Seconds())
	}
	return s
}

// plan is a run, drawn before anything is started.
type plan struct {
	Seed   uint64  `json:"seed"`
	Nodes  int     `json:"nodes"`
	Faults []fault `json:"faults"`
}

// choice narrows what is drawn.
type choice struct {
	nodes  int // 0 = 1 or 3
	budget int // faults
	only   []kind
}

// meanGap is the mean time between two faults.
const meanGap = time.Second

// draw draws the run of a seed. The same seed and choice give the same run.
func draw(seed uint64, c choice) plan {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	p := plan{Seed: seed, Nodes: 1 + 2*r.IntN(2)}
	if c.nodes != 0 {
		p.Nodes = c.nodes
	}
	open := laws
	if len(c.only) > 0 {
		open = slices.DeleteFunc(slices.Clone(laws), func(l law) bool { return !slices.Contains(c.only, l.kind) })
	}
	at := time.Duration(0)
	for range c.budget {
		at += time.Duration(r.ExpFloat64() * float64(meanGap))
		l := pick(open, r)
		f := fault{Kind: l.kind, At: at.Round(time.Millisecond), Length: l.low, Pick: r.Uint32()}
		f.Length += time.Duration(r.Float64() * float64(l.high-l.low)).Round(time.Millisecond)
		p.Faults = append(p.Faults, f)
	}
	return p
}

func pick(open []law, r *rand.Rand) law {
	total := 0
	for _, l := range open {
		total += l.weight
	}
	at := r.IntN(total)
	for _, l := range open {
		if at -= l.weight; at < 0 {
			return l
		}
	}
	panic("chaos: weights do not add up")
}

// parseKinds reads a list of faults separated by commas; "" is all.
func parseKinds(list string) ([]kind, error) {
	if list == "" {
		return nil, nil
	}
	var kinds []kind
	for name := range strings.SplitSeq(list, ",") {
		if !slices.ContainsFunc(laws, func(l law) bool { return string(l.kind) == name }) {
			return nil, fmt.Errorf("-only: no fault %q; the faults are %s", name, kindNames())
		}
		kinds = append(kinds, kind(name))
	}
	return kinds, nil
}

func kindNames() string {
	var names []string
	for _, l := range laws {
		names = append(names, string(l.kind))
	}
	return strings.Join(names, ", ")
}

// text is the plan for people.
func (p *plan) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d NATS nodes, %d faults\n", p.Seed, p.Nodes, len(p.Faults))
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// kind is a kind of fault.
type kind string

// The kinds of faults. "Kill" is SIGKILL, "term" is SIGTERM, and "stop" is SIGSTOP,
// followed later by SIGCONT. A link connects one client to all nodes. It can be slow, cut
// (connections end and new ones are refused) or a hole (connections stay open, but
// nothing passes).
const (
	killWorker        kind = "kill-worker"
	killCoordinator   kind = "kill-coordinator"
	killNode          kind = "kill-node"
	termWorker        kind = "term-worker"
	stopWorker        kind = "stop-worker"
	stopCoordinator   kind = "stop-coordinator"
	stopNode          kind = "stop-node"
	fillStream        kind = "fill-stream" // the blobs reach their quota
	fillNode          kind = "fill-node"   // the disk of a node is full
	slowLink          kind = "slow-link"
	cutLink           kind = "cut-link"
	holeLink          kind = "hole-link"
	corruptPartial    kind = "corrupt-partial"
	corruptShard      kind = "corrupt-shard"
	corruptCheckpoint kind = "corrupt-checkpoint"
	corruptModel      kind = "corrupt-model"
	loseStream        kind = "lose-stream" // a stream is deleted with everything in it
	rival             kind = "rival"       // a second coordinator leads the job
)

// law says how often a kind of fault is drawn and how long such a fault lasts. A fault
// ends when the process is restarted or continued, or when the storage or the link works
// again.
type law struct {
	kind      kind
	weight    int           // relative frequency
	low, high time.Duration // bounds of the length
}

// lease is the job's lease. It is short, so that many leases end in a run.
const lease = 2 * time.Second

// laws holds the law of each kind of fault.
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

// fault is one fault of a run.
type fault struct {
	Kind   kind          `json:"kind"`
	At     time.Duration `json:"at"`     // time since the submission of the job
	Length time.Duration `json:"length"` // see law
	Pick   uint32        `json:"pick"`   // selects one of the possible targets
}

func (f fault) String() string {
	s := fmt.Sprintf("%5.1f s %s #%d", f.At.Seconds(), f.Kind, f.Pick%100)
	if f.Length > 0 {
		s += fmt.Sprintf(" for %.1f s", f.Length.Seconds())
	}
	return s
}

// plan is a run. It is drawn completely before anything is started.
type plan struct {
	Seed   uint64  `json:"seed"`
	Nodes  int     `json:"nodes"`
	Faults []fault `json:"faults"`
}

// choice restricts what is drawn.
type choice struct {
	nodes  int // number of nodes; 0 = 1 or 3, drawn
	budget int // number of faults
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

// parseKinds parses a list of faults separated by commas. "" means all and gives nil.
func parseKinds(list string) ([]kind, error) {
	if list == "" {
		return nil, nil
	}
	var kinds []kind
	for name := range strings.SplitSeq(list, ",") {
		if !slices.ContainsFunc(laws, func(l law) bool { return string(l.kind) == name }) {
			return nil, fmt.Errorf("-only: unknown fault %q, expected some of %s", name, kindNames())
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

// text returns the plan as text for people.
func (p *plan) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d NATS nodes, %d faults\n", p.Seed, p.Nodes, len(p.Faults))
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}

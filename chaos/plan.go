package main

import (
	"errors"
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
// nothing passes). With hosts, a link may also be that of a node to all others, and it can
// lose packets.
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
	killMerger        kind = "kill-merger"
	stopMerger        kind = "stop-merger"
	rival             kind = "rival"          // a second coordinator leads the job
	splitMinority     kind = "split-minority" // one node and the others do not reach each other, and some clients reach only one side
	splitMajority     kind = "split-majority" // no two nodes reach each other
	oneWay            kind = "one-way"        // packets between two sides arrive in one direction only
	lossyLink         kind = "lossy-link"
	clockForward      kind = "clock-forward" // the clock of a process is set
	clockBack         kind = "clock-back"
	flipFile          kind = "flip-file"   // bytes in the files of a stopped node change
	flipMemory        kind = "flip-memory" // bits of the model in the memory of a worker change
)

// law says how often a kind of fault is drawn and how long such a fault lasts. A fault
// ends when the process is restarted or continued, or when the storage or the link works
// again.
type law struct {
	kind      kind
	weight    int           // relative frequency
	low, high time.Duration // bounds of the length
	needs     need
}

// need is what a kind of fault needs.
type need int

const (
	nothing need = iota
	aHost        // hosts with packets
	aClock       // clocks that can be set
	aMerger      // mergers
	aCheck       // a job that verifies shards
)

// lease is the job's lease. It is short, so that many leases end in a run.
const lease = 2 * time.Second

// laws holds the law of each kind of fault.
var laws = []law{
	{killWorker, 18, 0, 2 * time.Second, nothing},
	{killCoordinator, 14, 0, 2 * time.Second, nothing},
	{killNode, 12, 0, 3 * time.Second, nothing},
	{termWorker, 10, 0, time.Second, nothing},
	{stopWorker, 10, lease, 3 * lease, nothing},
	{stopCoordinator, 4, time.Second, 6 * time.Second, nothing},
	{stopNode, 4, time.Second, 6 * time.Second, nothing},
	{fillStream, 6, time.Second, 5 * time.Second, nothing},
	{fillNode, 4, time.Second, 4 * time.Second, nothing},
	{slowLink, 6, 2 * time.Second, 6 * time.Second, nothing},
	{cutLink, 5, 0, 3 * time.Second, nothing},
	{holeLink, 5, time.Second, 6 * time.Second, nothing},
	{corruptPartial, 5, 0, 0, nothing},
	{corruptShard, 5, 0, 0, nothing},
	{corruptCheckpoint, 3, 0, 0, nothing},
	{corruptModel, 2, 0, 0, nothing},
	{loseStream, 2, 0, 0, nothing},
	{rival, 6, 0, 0, nothing},
	{splitMinority, 9, time.Second, 5 * time.Second, aHost},
	{splitMajority, 5, time.Second, 4 * time.Second, aHost},
	{oneWay, 9, time.Second, 5 * time.Second, aHost},
	{lossyLink, 9, 2 * time.Second, 6 * time.Second, aHost},
	{clockForward, 9, 0, 6 * time.Second, aClock},
	{clockBack, 9, 0, 6 * time.Second, aClock},
	{flipFile, 9, 0, time.Second, nothing},
	{killMerger, 14, 0, 2 * time.Second, aMerger},
	{stopMerger, 5, time.Second, 15 * time.Second, aMerger},
	{flipMemory, 15, 0, 0, aCheck},
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

// job is a kind of job.
type job string

// The jobs. A path has 21 rounds. A paired job corrects the scores of a previous model, as a night does.
const (
	walksJob  job = "walks"
	pathJob   job = "path"
	pairedJob job = "paired"
	fieldsJob job = "fields"
)

// jobs are all jobs, first those that may have mergers. Runs have them equally often.
var jobs = []job{pathJob, walksJob, pairedJob, fieldsJob}

// plan is a run. It is drawn completely before anything is started.
type plan struct {
	Seed   uint64  `json:"seed"`
	Nodes  int     `json:"nodes"`
	Hosts  bool    `json:"hosts"`            // whether each process has a host of its own
	Ranges int     `json:"ranges,omitempty"` // number of mergers; 0 = the coordinator keeps the sums
	Job    job     `json:"job"`
	Verify float64 `json:"verify,omitempty"` // portion of the shards that are verified
	Faults []fault `json:"faults"`
}

// choice restricts what is drawn.
type choice struct {
	nodes  int // number of nodes; 0 = 1 or 3, drawn
	budget int // number of faults
	only   []kind
	hosts  bool    // whether to draw faults that need hosts
	clocks bool    // whether to draw faults that need clocks
	ranges int     // number of mergers; 0 = none, and no faults that need them
	job    job     // "" = drawn
	verify float64 // portion of the shards that are verified
}

// allows reports whether faults of the law may be drawn.
func (c *choice) allows(l law) bool {
	switch {
	case len(c.only) > 0 && !slices.Contains(c.only, l.kind):
		return false
	case l.needs == aHost:
		return c.hosts
	case l.needs == aClock:
		return c.clocks
	case l.needs == aMerger:
		return c.ranges > 0
	case l.needs == aCheck:
		return c.verify > 0
	}
	return true
}

// check returns an error if no fault may be drawn.
func (c *choice) check() error {
	if !slices.ContainsFunc(laws, c.allows) {
		return errors.New("-only: these faults need hosts, mergers, -verify, or programs whose clocks can be set")
	}
	return nil
}

// meanGap is the mean time between two faults.
const meanGap = time.Second

// jobOf returns the job of a seed. It does not change what else is drawn. Only walks and paths have mergers.
func (c *choice) jobOf(seed uint64) job {
	if c.job != "" {
		return c.job
	}
	jobs := jobs
	if c.ranges > 0 {
		jobs = jobs[:2]
	}
	return jobs[rand.New(rand.NewPCG(seed, 0x9a7b)).IntN(len(jobs))]
}

// draw draws the run of a seed. The same seed and choice give the same run.
func draw(seed uint64, c choice) plan {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	p := plan{Seed: seed, Nodes: 1 + 2*r.IntN(2), Hosts: c.hosts, Ranges: c.ranges, Job: c.jobOf(seed), Verify: c.verify}
	if c.nodes != 0 {
		p.Nodes = c.nodes
	}
	open := slices.DeleteFunc(slices.Clone(laws), func(l law) bool { return !c.allows(l) })
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
	where := "on one host"
	if p.Hosts {
		where = "each process on its own host"
	}
	if p.Ranges > 0 {
		where += fmt.Sprintf(", %d mergers", p.Ranges)
	}
	fmt.Fprintf(&b, "seed %d: %s, %d NATS nodes, %s, %d faults\n", p.Seed, p.Job, p.Nodes, where, len(p.Faults))
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}

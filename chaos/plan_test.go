package main

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestSameSeedSameRun(t *testing.T) {
	c := choice{budget: 20, hosts: true, clocks: true}
	a, b, other := draw(7, c), draw(7, c), draw(8, c)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("seed 7 drew\n%s\nand\n%s", a.text(), b.text())
	}
	if reflect.DeepEqual(a.Faults, other.Faults) {
		t.Error("seeds 7 and 8 drew the same faults")
	}
}

// A seed decides which job is run, and each is drawn equally often. Nothing else that it draws depends on this.
func TestJobsAreDrawn(t *testing.T) {
	drawn, ranged := map[job]int{}, map[job]int{}
	for seed := range uint64(400) {
		p := draw(seed, choice{budget: 5})
		drawn[p.Job]++
		for _, j := range jobs {
			given := draw(seed, choice{budget: 5, job: j})
			if given.Job != j || !reflect.DeepEqual(given.Faults, p.Faults) || given.Nodes != p.Nodes {
				t.Fatalf("seed %d: %+v and %+v", seed, p, given)
			}
		}
		ranged[draw(seed, choice{ranges: 2}).Job]++
	}
	if n := ranged[walksJob]; n < 150 || n > 250 || n+ranged[pathJob] != 400 {
		t.Errorf("400 jobs with ranges are %v, expected walks and paths", ranged)
	}
	for _, j := range jobs {
		if drawn[j] < 70 || drawn[j] > 130 {
			t.Errorf("%d of 400 jobs are %s, expected about one in %d", drawn[j], j, len(jobs))
		}
	}
}

// The four runs of make chaos-short have all jobs, and one and three nodes.
func TestShortCampaign(t *testing.T) {
	drawn, nodes := map[job]bool{}, map[int]bool{}
	for seed := uint64(52); seed < 56; seed++ {
		p := draw(seed, choice{budget: 10})
		drawn[p.Job], nodes[p.Nodes] = true, true
	}
	if len(drawn) != len(jobs) || len(nodes) != 2 {
		t.Errorf("jobs %v, numbers of nodes %v", drawn, nodes)
	}
}

// Over many seeds, each kind of fault is drawn in proportion to its weight and lasts
// within its bounds, and one node is drawn as often as three nodes.
func TestLawsAreKept(t *testing.T) {
	const seeds, budget = 2000, 10
	bounds, weights, total := map[kind]law{}, map[kind]int{}, 0
	for _, l := range laws {
		bounds[l.kind] = l
		total += l.weight
	}
	three := 0
	for seed := range uint64(seeds) {
		p := draw(seed, choice{budget: budget, hosts: true, clocks: true, ranges: 3, verify: 1})
		if p.Nodes == 3 {
			three++
		} else if p.Nodes != 1 {
			t.Fatalf("seed %d: %d nodes", seed, p.Nodes)
		}
		last := time.Duration(0)
		for _, f := range p.Faults {
			weights[f.Kind]++
			if l := bounds[f.Kind]; f.Length < l.low || f.Length > l.high || f.At < last {
				t.Fatalf("seed %d: %v after %v, outside %v", seed, f, last, l)
			}
			last = f.At
		}
	}
	if three < seeds*45/100 || three > seeds*55/100 {
		t.Errorf("%d of %d runs have three nodes", three, seeds)
	}
	for _, l := range laws {
		want := float64(seeds*budget*l.weight) / float64(total)
		if found := float64(weights[l.kind]); found < 0.8*want || found > 1.2*want {
			t.Errorf("%s was drawn %v times, expected about %.0f", l.kind, found, want)
		}
	}
}

// Without hosts, and without clocks that can be set, no fault that needs them is drawn.
func TestNeeds(t *testing.T) {
	needs := map[kind]need{}
	for _, l := range laws {
		needs[l.kind] = l.needs
	}
	for _, c := range []choice{{}, {hosts: true}, {clocks: true}, {hosts: true, clocks: true}, {ranges: 3}, {verify: .1}} {
		c.budget = 2000
		seen := map[need]bool{}
		for _, f := range draw(1, c).Faults {
			seen[needs[f.Kind]] = true
		}
		if !seen[nothing] || seen[aHost] != c.hosts || seen[aClock] != c.clocks || seen[aMerger] != (c.ranges > 0) || seen[aCheck] != (c.verify > 0) {
			t.Errorf("%+v: drew faults with the needs %v", c, seen)
		}
	}
	none := choice{only: []kind{splitMinority, clockBack}}
	if err := none.check(); err == nil {
		t.Error("a choice that allows no fault was accepted")
	}
}

func TestOnlyWhatWasAskedFor(t *testing.T) {
	only, err := parseKinds("rival,kill-node")
	if err != nil {
		t.Fatal(err)
	}
	p := draw(3, choice{nodes: 3, budget: 50, only: only})
	seen := map[kind]bool{}
	for _, f := range p.Faults {
		seen[f.Kind] = true
	}
	if want := map[kind]bool{rival: true, killNode: true}; !reflect.DeepEqual(seen, want) || p.Nodes != 3 {
		t.Errorf("drew %v with %d nodes", seen, p.Nodes)
	}
	if _, err := parseKinds("kill-node,kil-worker"); err == nil || !strings.Contains(err.Error(), `"kil-worker"`) {
		t.Errorf("an unknown fault: %v", err)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// result is the outcome of one run.
type result struct {
	Seed    uint64       `json:"seed"`
	Nodes   int          `json:"nodes"`
	Job     job          `json:"job"`
	Seconds float64      `json:"seconds"`         // including the start and the end of the cluster
	Faults  map[kind]int `json:"faults"`          // faults that happened, by kind
	Missed  int          `json:"missed"`          // faults that found nothing to act on, or came after the job's end
	Wrong   bool         `json:"wrong,omitempty"` // scores of a worker with changed memory that were not verified
	Counts  counts       `json:"counts"`
	Stall   float64      `json:"stall"` // longest stretch without a merged shard, in seconds
	Failure string       `json:"failure,omitempty"`
	Logs    string       `json:"logs,omitempty"` // folder of the logs if it was kept
}

// line returns the result as text for people.
func (r *result) line() string {
	var faults []string
	for _, k := range slices.Sorted(maps.Keys(r.Faults)) {
		faults = append(faults, fmt.Sprintf("%s %d", k, r.Faults[k]))
	}
	s := fmt.Sprintf("seed %d: %s, %d nodes, %.1f s; %s; %d missed; %d redelivered, %d duplicates refused, longest stall %.1f s",
		r.Seed, r.Job, r.Nodes, r.Seconds, strings.Join(faults, ", "), r.Missed, r.Counts.Redelivered, r.Counts.Duplicates, r.Stall)
	if r.Wrong && r.Failure == "" {
		s += "; wrong scores that were not verified"
	}
	if r.Failure != "" {
		s += "\nFAILED: " + strings.TrimRight(r.Failure, "\n")
	}
	if r.Logs != "" {
		s += "\nlogs in " + r.Logs
	}
	return s + "\n"
}

// summary is the outcome of a campaign.
type summary struct {
	Runs    int          `json:"runs"`
	Failed  int          `json:"failed"`
	Wrong   int          `json:"wrong,omitempty"` // runs with wrong scores that were not verified
	Three   int          `json:"three"`           // number of runs with three nodes
	Jobs    map[job]int  `json:"jobs"`            // number of runs of each job
	Seconds float64      `json:"seconds"`
	Faults  map[kind]int `json:"faults"`
	Counts  counts       `json:"counts"`
	Stall   float64      `json:"stall"`   // longest stall of all runs, in seconds
	Stalled uint64       `json:"stalled"` // seed of the run with the longest stall
	Results []result     `json:"results"`
}

func summarise(results []result) *summary {
	s := &summary{Runs: len(results), Jobs: map[job]int{}, Faults: map[kind]int{}, Results: results}
	for _, r := range results {
		s.Seconds += r.Seconds
		s.Counts.add(r.Counts)
		if r.Failure != "" {
			s.Failed++
		}
		if r.Nodes == 3 {
			s.Three++
		}
		if r.Wrong && r.Failure == "" {
			s.Wrong++
		}
		s.Jobs[r.Job]++
		if r.Stall > s.Stall {
			s.Stall, s.Stalled = r.Stall, r.Seed
		}
		for k, n := range r.Faults {
			s.Faults[k] += n
		}
	}
	return s
}

// markdown returns the summary in the form of docs/evidence/chaos.md.
func (s *summary) markdown() string {
	var b strings.Builder
	if s.Runs == 0 {
		return "no run has ended\n"
	}
	first, last := s.Results[0].Seed, s.Results[s.Runs-1].Seed
	var kinds []string
	for _, j := range slices.Sorted(maps.Keys(s.Jobs)) {
		kinds = append(kinds, fmt.Sprintf("%d of %s", s.Jobs[j], j))
	}
	fmt.Fprintf(&b, "Seeds %d to %d: %d runs (%s), %d of them with one NATS node and %d with three, of %.0f minutes in all; **%d failed**.\n\n",
		first, last, s.Runs, strings.Join(kinds, ", "), s.Runs-s.Three, s.Three, s.Seconds/60, s.Failed)
	b.WriteString("| | |\n|---|---|\n")
	total := 0
	for _, l := range laws {
		if n := s.Faults[l.kind]; n > 0 {
			fmt.Fprintf(&b, "| %s | %d |\n", l.kind, n)
			total += n
		}
	}
	c := s.Counts
	for _, row := range []struct {
		what string
		n    int
	}{
		{"**faults in all**", total}, {"shards merged", c.Merged}, {"tasks redelivered", c.Redelivered}, {"duplicate results refused", c.Duplicates},
		{"results discarded", c.Thrown}, {"leases that ran out", c.Leases}, {"checkpoints", c.Checkpoints},
		{"coordinators resumed from a checkpoint", c.Resumed}, {"coordinators fenced", c.Fenced},
	} {
		fmt.Fprintf(&b, "| %s | %d |\n", row.what, row.n)
	}
	if s.Faults[flipMemory] > 0 {
		fmt.Fprintf(&b, "| runs with wrong scores that were not verified | %d |\n", s.Wrong)
	}
	fmt.Fprintf(&b, "| longest stall | %.1f s (seed %d) |\n", s.Stall, s.Stalled)
	return b.String()
}

func (s *summary) write(file string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

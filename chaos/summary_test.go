package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	s := summarise([]result{
		{Seed: 5, Nodes: 1, Job: pathJob, Seconds: 20, Faults: map[kind]int{killWorker: 2, rival: 1}, Counts: counts{Merged: 90, Redelivered: 3, Fenced: 1}, Stall: 2.5},
		{Seed: 6, Nodes: 3, Job: walksJob, Seconds: 40, Faults: map[kind]int{killWorker: 1}, Counts: counts{Merged: 91, Duplicates: 4}, Stall: 8.25, Failure: "it hangs\nforever\n", Logs: "somewhere"},
	})
	if s.Runs != 2 || s.Failed != 1 || s.Three != 1 || s.Stalled != 6 || s.Faults[killWorker] != 3 || s.Counts.Merged != 181 {
		t.Errorf("%+v", s)
	}
	text := s.markdown()
	for _, want := range []string{
		"Seeds 5 to 6: 2 runs (1 of path, 1 of walks), 1 of them with one NATS node and 1 with three, of 1 minutes in all; **1 failed**.",
		"| kill-worker | 3 |\n", "| **faults in all** | 4 |\n", "| shards merged | 181 |\n", "| duplicate results refused | 4 |\n", "| longest stall | 8.2 s (seed 6) |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if line := s.Results[1].line(); !strings.Contains(line, "FAILED: it hangs\nforever\nlogs in somewhere\n") {
		t.Errorf("line %q", line)
	}
	file := filepath.Join(t.TempDir(), "out.json")
	if err := s.write(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var back summary
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(&back, s) {
		t.Errorf("read back %+v (%v), expected %+v", back, err, *s)
	}
	if text := summarise(nil).markdown(); text != "no run has ended\n" {
		t.Errorf("summary of no runs: %q", text)
	}
}

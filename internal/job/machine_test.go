package job

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// Transcripts: each command is an event, its output the actions that follow.
// Run with -rewrite to write the outputs anew, and read the difference.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var m *Machine
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var shard, window int
			var plan Plan
			rows, kernel := int64(-1), "k1"
			switch d.Cmd {
			case "job":
				d.ScanArgs(t, "rows", &plan.Rows)
				d.ScanArgs(t, "per-shard", &plan.RowsPerShard)
				d.ScanArgs(t, "window", &window)
				m = NewMachine(&Spec{Kernel: "k1"}, plan, window)
				return fmt.Sprintf("%d shards\n", plan.Shards())
			case "queued":
				d.ScanArgs(t, "shard", &shard)
				return describe(m.Step(Queued{shard}))
			case "start":
				return describe(m.Start())
			case "result":
				d.ScanArgs(t, "shard", &shard)
				d.MaybeScanArgs(t, "rows", &rows)
				d.MaybeScanArgs(t, "kernel", &kernel)
				if rows < 0 {
					rows = m.plan.ShardRows(shard)
				}
				return describe(m.Step(Result{Shard: shard, Rows: rows, Kernel: kernel}))
			case "quarantine":
				d.ScanArgs(t, "shard", &shard)
				return describe(m.Step(Quarantine{Shard: shard, Reason: d.Input}))
			case "waiting":
				open, left := m.Waiting()
				return fmt.Sprintf("%d published, %d of %d not merged\n", open, left, m.plan.Shards())
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func describe(actions []Action) string {
	var out strings.Builder
	for _, a := range actions {
		switch a := a.(type) {
		case Publish:
			fmt.Fprintf(&out, "publish %d\n", a.Shard)
		case Merge:
			fmt.Fprintf(&out, "merge %d\n", a.Result.Shard)
		case Ignore:
			fmt.Fprintf(&out, "ignore %d: %s\n", a.Shard, a.Why)
		case Fail:
			fmt.Fprintf(&out, "fail: %s\n", a.Reason)
		case Finish:
			fmt.Fprintln(&out, "finish")
		}
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

// Whatever order results come in and however often, every shard is published at
// most once, merged exactly once, the window holds, and the job finishes.
func TestEveryShardIsMergedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := Plan{Rows: rapid.Int64Range(1, 40).Draw(t, "rows"), RowsPerShard: rapid.Int64Range(1, 9).Draw(t, "per shard")}
		window := rapid.IntRange(1, 5).Draw(t, "window")
		m := NewMachine(&Spec{Kernel: "k"}, plan, window)
		published, merged, finished := map[int]bool{}, map[int]bool{}, false
		var inFlight []int
		take := func(actions []Action) {
			for _, a := range actions {
				switch a := a.(type) {
				case Publish:
					if published[a.Shard] {
						t.Fatalf("shard %d published twice", a.Shard)
					}
					published[a.Shard] = true
					inFlight = append(inFlight, a.Shard)
				case Merge:
					if merged[a.Result.Shard] {
						t.Fatalf("shard %d merged twice", a.Result.Shard)
					}
					merged[a.Result.Shard] = true
				case Fail:
					t.Fatal(a.Reason)
				case Finish:
					finished = true
				}
			}
		}
		for shard := range plan.Shards() { // of an earlier coordinator
			if rapid.IntRange(0, 3).Draw(t, "stored") == 0 {
				take(m.Step(Result{Shard: shard, Rows: plan.ShardRows(shard), Kernel: "k"}))
			}
		}
		stored := len(merged)
		take(m.Start())
		for !finished {
			if open, left := m.Waiting(); open > window || open < 1 || left != plan.Shards()-len(merged) {
				t.Fatalf("window %d, open %d, left %d", window, open, left)
			}
			shard := rapid.SampledFrom(inFlight).Draw(t, "shard")
			take(m.Step(Result{Shard: shard, Rows: plan.ShardRows(shard), Kernel: "k"}))
		}
		if len(published)+stored != plan.Shards() {
			t.Fatalf("%d shards were stored, and %d of %d published", stored, len(published), plan.Shards())
		}
		rows := int64(0)
		for shard := range merged {
			rows += plan.ShardRows(shard)
		}
		if rows != plan.Rows {
			t.Fatalf("merged %d of %d rows", rows, plan.Rows)
		}
	})
}

// The same specification is the same job; any other is another.
func TestIdentity(t *testing.T) {
	base := Spec{Version: SpecVersion, Model: "m", Dataset: "d", Splits: []string{"train"}, Sample: 1, Baseline: "zero", Estimator: "permutation", Passes: 1, Seed: 1, Kernel: "k"}
	same := base
	if base.ID() != same.ID() || len(base.ID()) != 20 {
		t.Errorf("%s and %s", base.ID(), same.ID())
	}
	for name, change := range map[string]func(*Spec){
		"model": func(s *Spec) { s.Model = "n" }, "dataset": func(s *Spec) { s.Dataset = "e" },
		"splits": func(s *Spec) { s.Splits = []string{"train", "val"} }, "sample": func(s *Spec) { s.Sample = 0.5 },
		"baseline": func(s *Spec) { s.Baseline = "codebook" }, "estimator": func(s *Spec) { s.Estimator = "exact" },
		"passes": func(s *Spec) { s.Passes = 2 }, "seed": func(s *Spec) { s.Seed = 2 }, "kernel": func(s *Spec) { s.Kernel = "l" },
	} {
		other := base
		change(&other)
		if other.ID() == base.ID() {
			t.Errorf("%s does not change the identity", name)
		}
	}
}

package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"shaver/internal/value/estimator"
	"shaver/internal/value/estimator/estimatortest"
)

// In a transcript each command is an event, and its output is the actions that follow.
// Run with -rewrite to write the outputs again, and review the difference.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		m, plan, done := (*Machine)(nil), Plan{}, Shards(nil)
		limits := Limits{SaveEvery: 100, Tries: 3}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var shard, attempt int
			rows, kernel, bytes := int64(-1), "k1", int64(10)
			d.MaybeScanArgs(t, "shard", &shard)
			d.MaybeScanArgs(t, "attempt", &attempt)
			partial := fmt.Sprintf("partial/%d/%d", shard, attempt)
			switch d.Cmd {
			case "job":
				plan = Plan{}
				for _, rows := range list(d, "rounds") { // each round is a pass over the same rows
					plan.Rounds = append(plan.Rounds, Round{Rows: int64(rows), Pass: len(plan.Rounds)})
					plan.Rows += int64(rows)
				}
				d.MaybeScanArgs(t, "rows", &plan.Rows)
				d.ScanArgs(t, "per-shard", &plan.RowsPerShard)
				d.ScanArgs(t, "window", &limits.Window)
				d.MaybeScanArgs(t, "held", &limits.Held)
				d.MaybeScanArgs(t, "save-every", &limits.SaveEvery)
				d.MaybeScanArgs(t, "save-bytes", &limits.SaveBytes)
				limits.AllowQuarantined = d.HasArg("allow-quarantined")
				m = NewMachine(&Spec{Kernel: "k1"}, plan, limits, nil, 0, nil)
				return fmt.Sprintf("%d shards\n", plan.Shards())
			case "crash": // another coordinator takes over
				m = NewMachine(&Spec{Kernel: "k1"}, plan, limits, done, 0, nil)
				return fmt.Sprintf("%d shards are in the checkpoint\n", done.Len())
			case "inventory":
				return describe(m.Step(Inventory{list(d, "tasks"), list(d, "results"), list(d, "quarantined"), list(d, "stuck"), list(d, "slow")}))
			case "published":
				return describe(m.Step(Published{shard}))
			case "result":
				d.MaybeScanArgs(t, "rows", &rows)
				d.MaybeScanArgs(t, "kernel", &kernel)
				d.MaybeScanArgs(t, "bytes", &bytes)
				if rows < 0 && shard < plan.Shards() {
					rows = plan.ShardRows(shard)
				}
				return describe(m.Step(Result{Shard: shard, Rows: rows, Kernel: kernel, Partial: Blob{Name: partial, Bytes: bytes}}))
			case "merged":
				d.MaybeScanArgs(t, "bytes", &bytes)
				return describe(m.Step(Merged{Result{Shard: shard, Partial: Blob{Name: partial, Bytes: bytes}}}))
			case "unusable":
				return describe(m.Step(Unusable{shard, nil, partial, d.Input}))
			case "foreign":
				if d.HasArg("aside") {
					partial = ""
				}
				return describe(m.Step(Foreign{Shard: shard, Aside: d.HasArg("aside"), Partial: partial, Why: d.Input}))
			case "due":
				return describe(m.Step(Due{}))
			case "saved":
				done = sums(m)
				return describe(m.Step(Saved{}))
			case "full":
				return describe(m.Step(Full{}))
			case "no-room":
				return describe(m.Step(NoRoom{}))
			case "judged":
				return describe(m.Step(Judged{More: d.HasArg("more")}))
			case "quarantine":
				return describe(m.Step(Quarantine{Shard: shard, Reason: d.Input, Input: true}))
			case "lost":
				return describe(m.Step(Quarantine{Shard: shard, Reason: d.Input, Lost: true}))
			case "cancelled":
				return describe(m.Step(Cancelled{}))
			case "counts":
				c := m.Counts()
				return fmt.Sprintf("%d shards, %d merged, %d open, %d quarantined\n", c.Shards, c.Merged, c.Open, c.Quarantined)
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func list(d *datadriven.TestData, name string) (shards []int) {
	for _, arg := range d.CmdArgs {
		if arg.Key != name {
			continue
		}
		for _, text := range arg.Vals {
			shard, err := strconv.Atoi(text)
			if err != nil {
				panic(err)
			}
			shards = append(shards, shard)
		}
	}
	return shards
}

func describe(actions []Action) string {
	var out strings.Builder
	for _, a := range actions {
		switch a := a.(type) {
		case Publish:
			fmt.Fprintf(&out, "publish %d\n", a.Shard)
		case Merge:
			fmt.Fprintf(&out, "merge %d\n", a.Result.Shard)
		case Save:
			fmt.Fprintln(&out, map[bool]string{false: "save", true: "save, and wait for room"}[a.Wait])
		case Clear:
			for _, r := range a.Results {
				fmt.Fprintf(&out, "clear %d %s\n", r.Shard, r.Partial.Name)
			}
			if len(a.Coming) > 0 {
				fmt.Fprintf(&out, "without the results of %v\n", a.Coming)
			}
		case Forget:
			fmt.Fprintf(&out, "forget %d\n", a.Shard)
		case Discard:
			fmt.Fprintf(&out, "discard %d %s: %s\n", a.Shard, a.Partial, a.Why)
		case Withdraw:
			fmt.Fprintf(&out, "withdraw %d\n", a.Shard)
		case Recall:
			fmt.Fprintf(&out, "recall %v\n", a.Shards)
		case SetAside:
			fmt.Fprintf(&out, "set aside %d: %s\n", a.Quarantine.Shard, a.Quarantine.Reason)
		case Readmit:
			fmt.Fprintf(&out, "readmit %d\n", a.Shard)
		case Note:
			fmt.Fprintf(&out, "note %d: %s\n", a.Quarantine.Shard, a.Quarantine.Reason)
		case Reread:
			fmt.Fprintln(&out, "reread")
		case Look:
			fmt.Fprintln(&out, "look")
		case Ignore:
			fmt.Fprintf(&out, "ignore %d: %s\n", a.Shard, a.Why)
		case Judge:
			fmt.Fprintf(&out, "judge round %d\n", a.Round)
		case Fail:
			fmt.Fprintf(&out, "fail without %d\n", len(a.Quarantined))
		case Finish:
			fmt.Fprintf(&out, "finish without %d\n", len(a.Quarantined))
		case Stop:
			fmt.Fprintln(&out, "stop")
		default:
			fmt.Fprintf(&out, "%T?\n", a)
		}
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

// The same specification gives the same job id. Every field changes the id.
func TestIdentity(t *testing.T) {
	base := Spec{Version: SpecVersion, Model: "m", Dataset: "d", Splits: []string{"train"}, Sample: 1, Baseline: "zero", Options: estimator.Options{Estimator: "permutation", Passes: 1}, Seed: 1, Kernel: "k"}
	same := base
	if base.ID() != same.ID() || len(base.ID()) != 20 {
		t.Errorf("%s and %s", base.ID(), same.ID())
	}
	if before := "7af8a6efe47392f836b4"; base.ID() != before { // draws and endpoints were added later
		t.Errorf("the id of a job without draws is %s, expected %s as before", base.ID(), before)
	}
	for name, change := range map[string]func(*Spec){
		"model": func(s *Spec) { s.Model = "n" }, "dataset": func(s *Spec) { s.Dataset = "e" },
		"splits": func(s *Spec) { s.Splits = []string{"train", "val"} }, "sample": func(s *Spec) { s.Sample = 0.5 },
		"baseline": func(s *Spec) { s.Baseline = "codebook" }, "seed": func(s *Spec) { s.Seed = 2 }, "kernel": func(s *Spec) { s.Kernel = "l" },
		"audit": func(s *Spec) { s.Audit = .01 }, "until": func(s *Spec) { s.Until = &Until{Rule: Paper, Bound: .01} },
		"days": func(s *Spec) { s.Days = []string{"e"} }, "baseline values": func(s *Spec) { s.BaselineValues = "b" },
		"previous": func(s *Spec) { s.Previous = &Previous{Generation: 1} },
	} {
		other := base
		change(&other)
		if other.ID() == base.ID() {
			t.Errorf("%s does not change the identity", name)
		}
	}
	found := map[string]estimator.Options{}
	for _, o := range estimatortest.Valid() {
		other := base
		other.Options = o
		if same, ok := found[other.ID()]; ok {
			t.Errorf("%+v and %+v have the same identity", o, same)
		}
		found[other.ID()] = o
	}
}

// sums returns the shards in the sums, which a checkpoint has to name.
func sums(m *Machine) Shards {
	set := NewShards(len(m.state))
	for shard, s := range m.state {
		if s == merged || s == saved {
			set.Add(shard)
		}
	}
	return set
}

// A partial of several shards that cannot be used counts as one failed try of each of them,
// although each has a result that names it.
func TestUnusablePartialOfSeveralShards(t *testing.T) {
	m := NewMachine(&Spec{Kernel: "k"}, Plan{Rows: 4, RowsPerShard: 1}, Limits{Window: 4, SaveEvery: 9, Tries: 2}, nil, 0, nil)
	m.Step(Inventory{Results: []int{0, 1, 2, 3}})
	r := Result{Shards: []int{0, 1, 2, 3}, Rows: 4, Kernel: "k", Partial: Blob{Name: "p"}}
	if actions := m.Step(r); !slices.Equal(types(actions), []string{"job.Merge"}) {
		t.Fatalf("actions %+v", actions)
	}
	got := types(m.Step(Unusable{0, r.Shards, "p", "missing"}))
	slices.Sort(got)
	discard, publish := slices.Repeat([]string{"job.Discard"}, 4), slices.Repeat([]string{"job.Publish"}, 4)
	if want := append(discard, publish...); !slices.Equal(got, want) {
		t.Fatalf("actions %q, want %q", got, want)
	}
	for shard := 1; shard < 4; shard++ {
		r.Shard = shard
		if actions := m.Step(r); !slices.Equal(types(actions), []string{"job.Discard"}) {
			t.Errorf("shard %d: actions %+v", shard, actions)
		}
	}
	if c := m.Counts(); c.Quarantined != 0 || c.Open != 4 {
		t.Errorf("counts %+v", c)
	}
}

// Two shards are published for each task that workers hold or ask for, within the limits.
func TestWindowFollowsCrew(t *testing.T) {
	m := NewMachine(&Spec{Kernel: "k"}, Plan{Rows: 100, RowsPerShard: 1}, Limits{Window: 4, Largest: 30, Held: 100, SaveEvery: 9, Tries: 2}, nil, 0, nil)
	m.Step(Inventory{})
	for _, step := range []struct{ crew, open int }{{1, 4}, {5, 10}, {3, 10}, {1000, 30}} {
		m.Step(Crew{step.crew})
		if open := m.Counts().Open; open != step.open {
			t.Errorf("%d shards are open for %d tasks of workers, expected %d", open, step.crew, step.open)
		}
	}
	for shard := range 3 {
		r := Result{Shard: shard, Rows: 1, Kernel: "k", Partial: Blob{Name: fmt.Sprint(shard), Bytes: 10}}
		m.Step(r)
		m.Step(Merged{r})
	}
	if open := m.Counts().Open; open != 27 {
		t.Errorf("%d shards are open, expected 27: their partials may have 100 bytes, each of which has 10", open)
	}
}

// If one of the shards of a partial is merged already, none of the others is merged from it. Such a partial is no
// reason for a warning.
func TestPartialOfAMergedShard(t *testing.T) {
	m := NewMachine(&Spec{Kernel: "k"}, Plan{Rows: 3, RowsPerShard: 1}, Limits{Window: 3, SaveEvery: 9, Tries: 2}, nil, 0, nil)
	m.Step(Inventory{Results: []int{0, 1, 2}})
	one := Result{Shard: 1, Rows: 1, Kernel: "k", Partial: Blob{Name: "one"}}
	m.Step(one)
	m.Step(Merged{one})
	r := Result{Shards: []int{0, 1, 2}, Rows: 3, Kernel: "k", Partial: Blob{Name: "p"}}
	for _, shard := range []int{0, 2} {
		r.Shard = shard
		actions := m.Step(r)
		if got := types(actions); !slices.Equal(got, []string{"job.Discard", "job.Publish"}) || !actions[0].(Discard).Spare {
			t.Errorf("shard %d: actions %+v", shard, actions)
		}
	}
	if c := m.Counts(); c.Merged != 1 || c.Open != 2 {
		t.Errorf("counts %+v", c)
	}
}

// types returns the types of actions.
// The inventories at the beginning of short rounds may list results that are still being deleted. They are
// not read again.
func TestInventoriesOfShortRounds(t *testing.T) {
	plan := Plan{Rows: 3, RowsPerShard: 1, Rounds: []Round{{Rows: 1}, {Rows: 1, Pass: 1}, {Rows: 1, Pass: 2}}}
	m := NewMachine(&Spec{Kernel: "k"}, plan, Limits{Window: 4, SaveEvery: 1, Tries: 2}, nil, 0, nil)
	m.Step(Inventory{})
	for shard := range 3 {
		r := Result{Shard: shard, Rows: 1, Kernel: "k", Partial: Blob{Name: fmt.Sprint(shard)}}
		m.Step(r)
		m.Step(Merged{r})
		m.Step(Due{})
		m.Step(Saved{})
		if shard == 2 {
			break
		}
		m.Step(Judged{More: true})
		if got := types(m.Step(Inventory{Results: []int{0, shard}})); slices.Contains(got, "job.Reread") {
			t.Errorf("after round %d: %v", shard, got)
		}
	}
}

func types(actions []Action) (names []string) {
	for _, a := range actions {
		names = append(names, fmt.Sprintf("%T", a))
	}
	return names
}

package job

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/value/estimator"
)

// world is a bus with its workers, and a coordinator that may die between any two
// actions.
type world struct {
	*rapid.T
	spec   Spec
	plan   Plan
	limits Limits

	tasks    map[int]bool
	results  map[int]Result
	aside    map[int]Quarantine
	partials map[string]bool
	attempt  int
	saveds   int

	bad  map[int]bool // shards whose task cannot be computed
	last int          // the round after which the job ends

	// The checkpoint: how often each shard is in the sums, and which shards it names.
	kept map[int]int
	done Shards

	// Of a path: which shards each round that is over had when it was cut, in the checkpoint and in the
	// coordinator, and after which cuts each stored task and result was computed.
	keptCuts, cuts       []string
	taskCuts, resultCuts map[int]string
	repairs              int // how often a shard may still be repaired and put back

	// The coordinator.
	m      *Machine
	sums   map[int]int
	inbox  []Event
	queue  []int // shards to be published
	ended  Action
	deaths int

	workers []string         // names; "x" computes wrong now and then
	wrong   []string         // workers that were found out
	voters  map[int][]string // by task with Verify, the workers that have computed its shard
	from    map[int]string   // the workers of what is in sums and kept
	tainted map[int]bool     // shards of which something wrong is in them

	full    int // how often a checkpoint may still find no room
	foreign int // how often workers with another protocol may still interfere
}

func (w *world) begin() {
	w.cuts = slices.Clone(w.keptCuts)
	w.m = NewMachine(&w.spec, w.plan, w.limits, w.done, len(w.cuts), w.wrong)
	w.sums, w.inbox, w.queue = maps.Clone(w.kept), nil, nil
	w.reread()
	w.step(w.inventory())
}

func (w *world) reread() {
	w.inbox = nil
	for _, shard := range slices.Sorted(maps.Keys(w.results)) {
		w.inbox = append(w.inbox, eventOf(w.results[shard]))
	}
	for _, shard := range slices.Sorted(maps.Keys(w.aside)) {
		w.inbox = append(w.inbox, asideEventOf(w.aside[shard]))
	}
}

// foreignMark marks the results and quarantines of workers with another protocol.
const foreignMark = "another protocol"

func eventOf(r Result) Event {
	if r.Kernel == foreignMark {
		return Foreign{Shard: r.Shard, Partial: r.Partial.Name, Why: foreignMark}
	}
	return r
}

func asideEventOf(q Quarantine) Event {
	if q.Reason == foreignMark {
		return Foreign{Shard: q.Shard, Aside: true, Why: foreignMark}
	}
	return q
}

// interfere lets a worker with another protocol, which got a task from an older
// coordinator, store something for a shard.
func (w *world) interfere(shard int) {
	w.foreign--
	if rapid.Bool().Draw(w.T, "aside") {
		if _, there := w.aside[shard]; !there {
			w.aside[shard] = Quarantine{Shard: shard, Reason: foreignMark, Input: true}
			w.inbox = append(w.inbox, asideEventOf(w.aside[shard]))
		}
	} else if _, there := w.results[shard]; !there {
		w.attempt++
		r := Result{Shard: shard, Kernel: foreignMark, Partial: Blob{Name: partialOf(shard, w.attempt), Bytes: 10}}
		w.results[shard], w.partials[r.Partial.Name] = r, true
		w.inbox = append(w.inbox, eventOf(r))
	}
}

func (w *world) inventory() Inventory {
	return Inventory{Tasks: slices.Sorted(maps.Keys(w.tasks)), Results: slices.Sorted(maps.Keys(w.results)), Quarantined: slices.Sorted(maps.Keys(w.aside))}
}

// step handles an event, carries out the actions that follow, and then handles their
// outcomes in order, as the coordinator does. It stops if the coordinator dies.
func (w *world) step(e Event) {
	for queue := []Event{e}; len(queue) > 0; queue = queue[1:] {
		for _, a := range w.m.Step(queue[0]) {
			if d, ok := a.(Distrust); ok && w.distrust(d) {
				return
			}
			if w.deaths > 0 && rapid.IntRange(0, 9).Draw(w.T, "dies") == 0 {
				w.deaths--
				w.begin()
				return
			}
			if outcome := w.do(a); outcome != nil {
				queue = append(queue, outcome)
			}
		}
	}
}

// do carries out an action and returns its outcome, nil if it has none.
func (w *world) do(a Action) (outcome Event) {
	switch a := a.(type) {
	case Publish:
		if open := w.m.Counts().Open; a.Workers == nil && open > max(w.limits.Window, min(2*w.m.crew, w.limits.Largest)) {
			w.Fatalf("shard %d is published although %d are open", a.Shard, open)
		}
		if r, _, _ := w.plan.Locate(a.Shard % w.plan.Shards()); w.spec.Traits().Ranks && r != len(w.cuts) {
			w.Fatalf("shard %d of round %d is published after %d cuts", a.Shard, r, len(w.cuts))
		}
		w.queue, w.voters[a.Shard] = append(w.queue, a.Shard), a.Workers
	case Merge:
		if r, _, _ := w.plan.Locate(a.Result.Shard); w.spec.Traits().Ranks && (r != len(w.cuts) || w.resultCuts[a.Result.Shard] != fmt.Sprint(w.cuts)) {
			w.Fatalf("a result of round %d after the cuts %v is merged after the cuts %v", r, w.resultCuts[a.Result.Shard], w.cuts)
		}
		if !w.partials[a.Result.Partial.Name] {
			return Unusable{a.Result.Shard, a.Result.Shards, a.Result.Partial.Name, "missing"}
		}
		for i, shard := range a.Result.Covers() {
			w.sums[shard]++
			w.from[shard], w.tainted[shard] = a.Result.Worker, a.Result.Digests[i] != uint64(shard)
		}
		return Merged{a.Result}
	case Save:
		if !a.Wait && w.full > 0 && rapid.Bool().Draw(w.T, "full") {
			w.full--
			return Full{}
		}
		w.saveds++
		w.save()
		if len(w.kept) != w.done.Len() {
			w.Fatalf("the checkpoint has %d shards in its sums and %d in its set", len(w.kept), w.done.Len())
		}
		return Saved{}
	case Clear:
		for _, r := range a.Results {
			for _, shard := range r.Covers() {
				if slices.Contains(a.Coming, shard) {
					delete(w.partials, r.Partial.Name)
				} else {
					w.remove(shard, r.Partial.Name)
				}
			}
		}
	case Forget:
		if w.partials[w.results[a.Shard].Partial.Name] {
			w.Fatalf("the result of shard %d is deleted without its partial", a.Shard)
		}
		delete(w.results, a.Shard)
	case Discard:
		w.remove(a.Shard, a.Partial)
	case Withdraw:
		delete(w.tasks, a.Shard)
	case Recall:
		w.queue = slices.DeleteFunc(w.queue, func(shard int) bool { return shard < w.plan.Shards() })
		for _, shard := range a.Shards {
			delete(w.tasks, shard)
		}
	case SetAside:
		w.aside[a.Quarantine.Shard] = a.Quarantine
		delete(w.tasks, a.Quarantine.Shard)
	case Readmit:
		delete(w.aside, a.Shard)
	case Reread:
		w.reread()
	case Look:
		return w.inventory()
	case Judge:
		if w.spec.Traits().Ranks {
			w.cut(a.Round)
		} else {
			w.judge(a.Round)
		}
		return Judged{More: a.Round < w.last}
	case Fail, Finish:
		w.ended = a
	}
	return nil
}

// distrust reports whether the job begins again, because results of a worker that was found out are merged.
func (w *world) distrust(d Distrust) (again bool) {
	if d.Worker != "x" {
		w.Fatalf("an honest worker has computed wrong: %+v", d)
	}
	w.wrong = append(w.wrong, d.Worker)
	w.workers = slices.DeleteFunc(w.workers, func(name string) bool { return name == "x" })
	for shard, n := range w.sums {
		again = again || n > 0 && w.from[shard] == d.Worker
	}
	if again {
		clear(w.tasks)
		clear(w.results)
		clear(w.aside)
		clear(w.partials)
		w.kept, w.done, w.keptCuts = map[int]int{}, nil, nil
		w.begin()
	}
	return again
}

// digest returns what a worker computes for a shard, which is its number unless the worker is wrong.
func (w *world) digest(worker string, shard int) uint64 {
	if worker != "x" {
		return uint64(shard)
	}
	return rapid.SampledFrom([]uint64{uint64(shard), uint64(1000 + shard), uint64(2000 + w.attempt)}).Draw(w.T, "digest")
}

// judge checks that the sums hold exactly the rounds up to the given one, whichever
// coordinators led.
func (w *world) judge(round int) {
	for shard := range w.plan.Shards() {
		switch r, _, _ := w.plan.Locate(shard); {
		case r > round && w.sums[shard] > 0:
			w.Fatalf("round %d is judged with shard %d of round %d", round, shard, r)
		case r <= round && w.sums[shard] != 1 && !w.bad[shard]:
			w.Fatalf("round %d is judged with shard %d of round %d in the sums %d times", round, shard, r, w.sums[shard])
		}
	}
}

// save makes a checkpoint.
func (w *world) save() {
	w.kept, w.done, w.keptCuts = maps.Clone(w.sums), sums(w.m), slices.Clone(w.cuts)
}

// cut ends a round of a path, as the coordinator does.
func (w *world) cut(round int) {
	if len(w.cuts) > round {
		return
	}
	from := w.plan.End(round - 1)
	var has []int
	for shard := from; shard < w.plan.End(round); shard++ {
		if w.sums[shard] == 1 {
			has = append(has, shard)
		}
	}
	w.cuts = append(w.cuts, fmt.Sprint(has))
	if len(w.m.Quarantined()) > 0 && round < w.last {
		w.save()
	}
}

func (w *world) remove(shard int, partial string) {
	delete(w.results, shard)
	delete(w.partials, partial)
}

// work lets a worker take a task. The worker may die before or after it stores the
// result, or find another worker's result.
func (w *world) work(shard int) {
	switch how := rapid.IntRange(0, 9).Draw(w.T, "worker"); {
	case how == 0: // the worker dies
	case w.bad[shard%w.plan.Shards()]:
		if _, there := w.aside[shard]; !there {
			w.aside[shard] = Quarantine{Shard: shard, Reason: "bad", Input: true}
			w.inbox = append(w.inbox, w.aside[shard])
		}
		delete(w.tasks, shard)
	default:
		w.attempt++
		name, n := partialOf(shard, w.attempt), w.plan.Shards()
		if _, there := w.results[shard]; !there {
			able := slices.DeleteFunc(slices.Clone(w.workers), func(name string) bool { return slices.Contains(w.voters[shard], name) })
			if len(able) == 0 {
				able = w.workers
			}
			worker := rapid.SampledFrom(able).Draw(w.T, "name")
			r := Result{Shard: shard, Rows: w.plan.ShardRows(shard % n), Kernel: "k", Worker: worker, Digests: []uint64{w.digest(worker, shard%n)}, Mask: w.taskCuts[shard], Alone: slices.Contains(w.voters[shard], worker)}
			if shard < n {
				r.Partial = Blob{Name: name, Bytes: 10}
				w.partials[name] = how != 1 // false if the partial is lost
			}
			w.results[shard] = r
			w.resultCuts[shard] = w.taskCuts[shard]
			w.inbox = append(w.inbox, r)
		}
		if how != 2 { // otherwise the acknowledgement is lost, and the task is delivered again
			delete(w.tasks, shard)
		}
	}
}

// combine lets a worker take several tasks and store one partial for all of them. It may die
// before it has stored all results, and other workers may have stored some.
func (w *world) combine(shards []int) {
	w.attempt++
	r := Result{Shards: shards, Kernel: "k", Partial: Blob{Name: partialOf(shards[0], w.attempt), Bytes: 10}, Worker: rapid.SampledFrom(w.workers).Draw(w.T, "name")}
	for _, shard := range shards {
		r.Digests = append(r.Digests, w.digest(r.Worker, shard))
		r.Rows += w.plan.ShardRows(shard)
	}
	w.partials[r.Partial.Name] = rapid.IntRange(0, 9).Draw(w.T, "partial") > 0
	for _, shard := range shards {
		how := rapid.IntRange(0, 9).Draw(w.T, "combining worker")
		if how == 0 { // the worker dies
			return
		}
		if _, there := w.results[shard]; !there {
			r.Shard = shard
			w.results[shard] = r
			w.inbox = append(w.inbox, r)
		}
		if how > 1 { // otherwise the acknowledgement is lost
			delete(w.tasks, shard)
		}
	}
}

func partialOf(shard, attempt int) string {
	return fmt.Sprint(shard, "/", attempt)
}

// No matter when the coordinator and the workers die, at the end every shard is in the
// sums exactly once, unless it cannot be computed.
func TestEveryShardIsMergedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{T: t, spec: Spec{Kernel: "k"}, taskCuts: map[int]string{}, resultCuts: map[int]string{}, tasks: map[int]bool{}, results: map[int]Result{}, aside: map[int]Quarantine{}, partials: map[string]bool{}, kept: map[int]int{}, bad: map[int]bool{},
			plan: Plan{Rows: rapid.Int64Range(1, 40).Draw(t, "rows"), RowsPerShard: rapid.Int64Range(3, 9).Draw(t, "per shard")},
			limits: Limits{Window: rapid.IntRange(1, 5).Draw(t, "window"), Largest: rapid.IntRange(0, 9).Draw(t, "largest"), SaveEvery: rapid.IntRange(1, 5).Draw(t, "save every"), Tries: 50,
				AllowQuarantined: rapid.Bool().Draw(t, "allow")},
			workers: []string{"a", "b"}, voters: map[int][]string{}, from: map[int]string{}, tainted: map[int]bool{},
			deaths: rapid.IntRange(0, 6).Draw(t, "deaths"), foreign: rapid.IntRange(0, 9).Draw(t, "foreign"), full: rapid.IntRange(0, 6).Draw(t, "fulls")}
		if n := rapid.IntRange(0, 4).Draw(t, "rounds"); n > 0 {
			w.plan.Rows = 0
			for i := range n {
				round := Round{Rows: rapid.Int64Range(int64(max(0, 1-i)), 25).Draw(t, "rows"), Pass: max(0, i-1)}
				w.plan.Rounds = append(w.plan.Rounds, round)
				w.plan.Rows += round.Rows
			}
			w.last = rapid.IntRange(0, n-1).Draw(t, "last")
			if rapid.Bool().Draw(t, "path") {
				w.spec.Estimator = estimator.Path
				w.repairs = rapid.IntRange(0, 3).Draw(t, "repairs")
			}
		}
		w.limits.Verify = rapid.SampledFrom([]float64{0, .3, 1}).Draw(t, "verify")
		if rapid.Bool().Draw(t, "wrong worker") {
			w.workers = append(w.workers, "x")
		}
		for shard := range w.plan.Shards() {
			w.bad[shard] = rapid.IntRange(0, 15).Draw(t, "bad") == 0
		}
		w.begin()
		for steps := 0; w.ended == nil; steps++ {
			if steps > 5000 {
				t.Fatalf("no end: %+v", w.m.Counts())
			}
			if w.repairs > 0 && len(w.aside) > 0 && rapid.IntRange(0, 20).Draw(t, "repair") == 0 {
				shard := rapid.SampledFrom(slices.Sorted(maps.Keys(w.aside))).Draw(t, "repaired")
				w.repairs--
				w.bad[shard] = false
				delete(w.aside, shard)
			}
			switch rapid.IntRange(0, 7).Draw(t, "next") {
			case 0, 1:
				if len(w.inbox) > 0 {
					e := w.inbox[0]
					w.inbox = w.inbox[1:]
					w.step(e)
				}
			case 2:
				if len(w.queue) > 0 {
					shard := w.queue[0]
					w.queue = w.queue[1:]
					if r, _, _ := w.plan.Locate(shard % w.plan.Shards()); w.spec.Traits().Ranks && r != len(w.cuts) {
						continue // the publisher leaves out what was ordered in a round that is over
					}
					if !w.tasks[shard] {
						w.tasks[shard], w.taskCuts[shard] = true, fmt.Sprint(w.cuts)
					}
					w.step(Published{shard})
				}
			case 3:
				var able []int
				for _, shard := range slices.Sorted(maps.Keys(w.tasks)) {
					if shard < w.plan.Shards() && !w.bad[shard] && len(able) < MostCombined {
						able = append(able, shard)
					}
				}
				if n := rapid.IntRange(1, 4).Draw(t, "together"); w.plan.Rounds == nil && n > 1 && n <= len(able) {
					from := rapid.IntRange(0, len(able)-n).Draw(t, "from")
					w.combine(able[from : from+n])
				} else if len(w.tasks) > 0 {
					w.work(rapid.SampledFrom(slices.Sorted(maps.Keys(w.tasks))).Draw(t, "task"))
				}
			case 4:
				if w.full > 0 && rapid.IntRange(0, 9).Draw(t, "no room") == 0 {
					w.full--
					w.step(NoRoom{})
				}
				w.step(Due{})
			case 5:
				w.step(w.inventory())
			case 6:
				if w.foreign > 0 {
					w.interfere(rapid.IntRange(0, w.plan.Shards()-1).Draw(t, "shard"))
				}
			case 7:
				w.step(Crew{rapid.IntRange(0, 9).Draw(t, "crew")})
			}
		}
		w.check()
	})
}

func (w *world) check() {
	for shard, n := range w.sums {
		if n > 0 && w.limits.Verify == 1 && w.tainted[shard] {
			w.Fatalf("something wrong of shard %d is in the sums, although all shards were verified", shard)
		}
	}
	if w.spec.Traits().Ranks {
		w.checkPath()
		return
	}
	missing, last := 0, w.last
	if fail, ok := w.ended.(Fail); ok && len(fail.Quarantined) > 0 { // it failed in the first round that lacks a shard
		last, _, _ = w.plan.Locate(fail.Quarantined[0].Shard)
	}
	for shard := range w.plan.End(last) {
		switch n := w.sums[shard]; {
		case n == 1 && !w.bad[shard]:
		case n == 0 && w.bad[shard]:
			missing++
		default:
			w.Fatalf("shard %d is in the sums %d times (cannot be computed: %v)", shard, n, w.bad[shard])
		}
	}
	switch end := w.ended.(type) {
	case Finish:
		if len(end.Quarantined) != missing || missing > 0 && !w.limits.AllowQuarantined {
			w.Fatalf("finished without %d shards, but %d cannot be computed", len(end.Quarantined), missing)
		}
	case Fail:
		if len(end.Quarantined) != missing || missing == 0 || w.limits.AllowQuarantined {
			w.Fatalf("failed without %d shards, but %d cannot be computed", len(end.Quarantined), missing)
		}
		if w.done.Len() != w.plan.End(last)-missing {
			w.Fatalf("failed, but the checkpoint has %d shards, expected %d", w.done.Len(), w.plan.End(last)-missing)
		}
	}
}

// checkPath checks the end of a path. What is missing was missing at the cut of its round.
func (w *world) checkPath() {
	last := w.last
	fail, failed := w.ended.(Fail)
	if failed {
		last = w.m.round
	}
	missing := 0
	for shard := range w.plan.End(last) {
		if w.sums[shard] > 1 {
			w.Fatalf("shard %d is in the sums %d times", shard, w.sums[shard])
		}
		missing += 1 - w.sums[shard]
	}
	finish, _ := w.ended.(Finish)
	if n := len(fail.Quarantined) + len(finish.Quarantined); n != missing || missing > 0 && failed == w.limits.AllowQuarantined {
		w.Fatalf("%+v, but %d shards are missing", w.ended, missing)
	}
}

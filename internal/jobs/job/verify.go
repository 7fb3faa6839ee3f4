package job

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

// verifier compares the results of workers. Some shards are computed again by another worker, by tasks
// with Verify, and their results wait until two workers agree. A worker that disagrees with
// two others has computed wrong.
type verifier struct {
	portion uint64          // of the shards, as a fraction of 2^63
	seed    uint64          // decides which shards
	checks  map[int]*check  // by shard
	waiting map[int]*Result // by shard in the state checking
	passed  map[int]bool    // shards whose waiting result is verified
	wrong   map[string]bool // workers that have computed wrong
}

// check is the verification of a shard.
type check struct {
	votes []vote
	task  state // that of the task with Verify: todo, wanted or open
	doubt bool  // the last inventory contradicted the task
	tries int   // results with Verify that were asked for, without those whose tasks were lost
}

// vote is what an attempt computed.
type vote struct {
	worker  string
	digest  uint64
	partial string // "" if the task had Verify
	alone   bool   // see Result.Alone
}

func newVerifier(spec *Spec, portion float64, wrong []string) verifier {
	v := verifier{checks: map[int]*check{}, waiting: map[int]*Result{}, passed: map[int]bool{}, wrong: map[string]bool{}}
	for _, worker := range wrong {
		v.wrong[worker] = true
	}
	if portion > 0 {
		v.portion = uint64(min(portion*(1<<63), 1<<63))
		h := fnv.New64a()
		h.Write([]byte(spec.ID()))
		v.seed = h.Sum64()
	}
	return v
}

// verifies reports whether a shard is one of those that are computed again.
func (v *verifier) verifies(shard int) bool {
	x := v.seed + uint64(shard)*0x9e3779b97f4a7c15 // the finalizer of SplitMix64 follows
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x^x>>31)>>1 < v.portion
}

// check merges a result whose shards are all in the state merging, or makes it wait until those of its
// shards are verified that are to be computed again.
func (m *Machine) check(r Result) (actions []Action) {
	var again []int
	for _, shard := range r.Covers() {
		if m.verifies(shard) || m.checks[shard] != nil {
			again = append(again, shard)
		}
	}
	if len(again) == 0 {
		return []Action{Merge{Result: r}}
	}
	for _, shard := range r.Covers() {
		m.set(shard, checking)
		m.waiting[shard] = &r
	}
	for _, shard := range again {
		m.checks[shard] = cmp.Or(m.checks[shard], &check{})
	}
	for _, shard := range again {
		if m.waiting[shard] == &r { // otherwise an earlier vote showed that its worker computes wrong
			actions = append(actions, m.vote(shard, vote{r.Worker, r.digest(shard), r.Partial.Name, false})...)
		}
	}
	return actions
}

// compare compares a result of a shard with the one from which it was merged. If they differ, the shard
// is computed again.
func (m *Machine) compare(shard int, from, r *Result) []Action {
	if m.over(shard) || m.wrong[r.Worker] || from.Mask != r.Mask || from.digest(shard) == r.digest(shard) {
		return nil
	}
	return append(m.vote(shard, vote{from.Worker, from.digest(shard), from.Partial.Name, false}), m.vote(shard, vote{r.Worker, r.digest(shard), r.Partial.Name, false})...)
}

// vote adds what an attempt computed, and decides if it can.
func (m *Machine) vote(shard int, v vote) []Action {
	c := cmp.Or(m.checks[shard], &check{})
	m.checks[shard] = c
	if v.partial == "" || !slices.ContainsFunc(c.votes, func(o vote) bool { return o.partial == v.partial }) {
		c.votes = append(c.votes, v)
	}
	return m.decide(shard, c)
}

// decide ends the verification of a shard if two workers agree, or if only one worker has computed it, twice with the
// same result. Otherwise it asks for another attempt.
func (m *Machine) decide(shard int, c *check) (actions []Action) {
	for i, v := range c.votes {
		for _, o := range c.votes[:i] {
			if o.worker == v.worker && o.digest != v.digest {
				actions = m.distrust(v.worker, shard, fmt.Sprintf("it computed shard %d twice, with different results", shard))
				return append(actions, m.decideAgain(shard, c)...)
			}
		}
	}
	var agreed *vote
	workers := c.workers()
	for i, v := range c.votes {
		if slices.ContainsFunc(c.votes[:i], func(o vote) bool {
			return o.digest == v.digest && (o.worker != v.worker || len(workers) == 1 && (o.alone || v.alone))
		}) {
			agreed = &c.votes[i]
			break
		}
	}
	if agreed == nil {
		return m.decideAgain(shard, c)
	}
	delete(m.checks, shard)
	if c.task != todo {
		actions = append(actions, Withdraw{shard + len(m.state)})
	}
	r := m.waiting[shard]
	if r != nil && r.digest(shard) == agreed.digest {
		m.passed[shard] = true
	}
	for _, o := range c.votes {
		if o.digest != agreed.digest {
			actions = append(actions, m.distrust(o.worker, shard, fmt.Sprintf("%s and another worker agree on another result of shard %d", agreed.worker, shard))...)
		}
	}
	if r == m.waiting[shard] && r != nil {
		actions = append(actions, m.mergeVerified(r)...)
	}
	return actions
}

// decideAgain asks for another attempt at a shard, unless one is asked for or there is nothing to compare it with.
func (m *Machine) decideAgain(shard int, c *check) []Action {
	if m.checks[shard] != c || len(c.votes) == 0 || m.waiting[shard] == nil && m.state[shard] != merged && m.state[shard] != saved || c.task != todo {
		return nil
	}
	if c.tries++; c.tries > m.limits.Tries {
		return m.giveUp(shard, fmt.Sprintf("after %d tries no two workers agree; it was computed by %s", m.limits.Tries, strings.Join(c.workers(), ", ")))
	}
	c.task = wanted
	return []Action{Publish{shard + len(m.state), c.workers()}}
}

// workers returns the workers that have voted.
func (c *check) workers() (names []string) {
	for _, v := range c.votes {
		if !slices.Contains(names, v.worker) {
			names = append(names, v.worker)
		}
	}
	return names
}

// mergeVerified merges a waiting result if all its shards that were to be verified are.
func (m *Machine) mergeVerified(r *Result) []Action {
	verified := 0
	for _, shard := range r.Covers() {
		if m.passed[shard] {
			verified++
		} else if m.checks[shard] != nil {
			return nil
		}
	}
	for _, shard := range r.Covers() {
		delete(m.waiting, shard)
		delete(m.passed, shard)
		m.set(shard, merging)
	}
	return []Action{Merge{*r, verified}}
}

// distrust makes what a worker computes worthless. Its results that wait are computed again.
func (m *Machine) distrust(worker string, shard int, why string) []Action {
	if m.wrong[worker] {
		return nil
	}
	m.wrong[worker] = true
	actions := []Action{Distrust{worker, shard, why}}
	for _, shard := range slices.Sorted(maps.Keys(m.waiting)) {
		if r := m.waiting[shard]; r != nil && r.Worker == worker {
			actions = append(actions, m.drop(r, "its worker "+worker+" has computed wrong")...)
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(m.checks)) {
		c := m.checks[shard]
		c.votes = slices.DeleteFunc(c.votes, func(v vote) bool { return v.worker == worker })
		if len(c.votes) == 0 && c.task == todo {
			delete(m.checks, shard)
		}
	}
	return actions
}

// drop discards a waiting result. Its shards are published again.
func (m *Machine) drop(r *Result, why string) (actions []Action) {
	for _, shard := range r.Covers() {
		delete(m.waiting, shard)
		delete(m.passed, shard)
		delete(m.heard, shard)
		m.republish(shard)
		if c := m.checks[shard]; c != nil {
			c.votes = slices.DeleteFunc(c.votes, func(v vote) bool { return v.partial == r.Partial.Name })
		}
		actions = append(actions, Discard{shard, r.Partial.Name, why, false})
	}
	if len(r.Shards) > 0 { // results of the others may still come
		m.refused[r.Partial.Name] = true
	}
	return actions
}

// giveUp quarantines a shard that cannot be verified.
func (m *Machine) giveUp(shard int, why string) (actions []Action) {
	if m.state[shard] != checking { // it is merged, and a result that came later differs
		delete(m.checks, shard)
		return []Action{Ignore{shard, why}}
	}
	actions = m.drop(m.waiting[shard], why)
	q := Quarantine{Shard: shard, Reason: "it cannot be verified: " + why, Worker: "coordinator"}
	m.set(shard, quarantined)
	m.reasons[shard] = q
	return append(actions, SetAside{q})
}

// computedAgain handles an event of the task with Verify of a shard.
func (m *Machine) computedAgain(shard int, e Event) []Action {
	number, c := shard+len(m.state), m.checks[shard]
	again := func(actions ...Action) []Action { // the task is published again
		if c != nil && c.task != todo {
			c.task = todo
			actions = append(actions, m.decide(shard, c)...)
		}
		return actions
	}
	switch e := e.(type) {
	case Published:
		if c != nil && c.task == wanted {
			c.task = open
		}
	case Result:
		forget := Forget{number}
		s := m.state[shard]
		switch {
		case m.wrong[e.Worker] || len(e.Digests) != 1 || e.Partial.Name != "" || e.Rows != m.plan.ShardRows(shard) || e.Kernel != m.spec.Kernel || m.elsewhere(shard, e.Mask):
			return again(forget)
		case c == nil && (s == checking || s == merging || s == merged || s == saved || s == quarantined || !m.verifies(shard)):
			return []Action{forget}
		}
		if c != nil {
			c.task = todo
		}
		return append([]Action{forget}, m.vote(shard, vote{e.Worker, e.Digests[0], "", e.Alone})...)
	case Unusable:
		return again(Discard{number, "", e.Why, false})
	case Foreign:
		if e.Aside {
			return again(Readmit{number})
		}
		return again(Discard{number, "", e.Why, false})
	case Quarantine:
		return again(Readmit{number}, Withdraw{number})
	}
	return nil
}

// elsewhere reports whether a result of a path was perhaps computed with another mask than the one it is to be compared with.
func (m *Machine) elsewhere(shard int, mask string) bool {
	r := m.waiting[shard]
	return m.spec.Traits().Ranks && (r == nil || r.Mask != mask)
}

// missing publishes tasks with Verify again that are missing from two consecutive inventories or whose workers
// are silent, and asks for results that did not come.
func (m *Machine) missing(inv Inventory) (actions []Action) {
	n, reread := len(m.state), false
	tasks, results, aside := shardsOf(n, n, inv.Tasks), shardsOf(n, n, inv.Results), shardsOf(n, n, inv.Quarantined)
	stuck, slow := shardsOf(n, n, inv.Stuck), shardsOf(n, n, inv.Slow)
	for _, shard := range slices.Sorted(maps.Keys(m.checks)) {
		c, answered := m.checks[shard], results.Has(shard) || aside.Has(shard)
		if c.task != open {
			continue
		}
		doubt := answered || stuck.Has(shard) || !tasks.Has(shard)
		twice := doubt && c.doubt
		c.doubt = doubt && !twice
		switch {
		case !twice && (doubt || !slow.Has(shard)):
		case answered:
			reread = true
		default:
			if tasks.Has(shard) {
				actions = append(actions, Withdraw{shard + n})
			}
			if !stuck.Has(shard) { // this is not a failure
				c.tries--
			}
			c.task = todo
			actions = append(actions, m.decide(shard, c)...)
		}
	}
	if reread {
		actions = append(actions, Reread{})
	}
	return actions
}

package job

import (
	"fmt"
	"maps"
	"slices"
)

// Limits bounds the work of a job that is in progress.
type Limits struct {
	Window    int   // most shards published and not merged while few workers are there, at least 1
	Largest   int   // most shards published and not merged, however many workers there are
	Held      int64 // bytes that the partials of these shards may have, judged by the largest partial so far; 0 = no bound
	SaveEvery int   // number of merged shards after which the sums are saved, at least 1
	SaveBytes int64 // bytes of partials since the last checkpoint after which the sums are also saved; 0 = no bound
	Tries     int   // tries of a shard that may fail before it is quarantined, at least 1
	// Verify is the portion of the shards that another worker computes again; 0 = none.
	Verify float64
	// AllowQuarantined lets the job finish without the shards that cannot be computed.
	AllowQuarantined bool
}

// state is the state of a shard.
type state uint8

const (
	todo        state = iota
	wanted            // Publish was asked for
	open              // its task or result is stored
	checking          // its result waits until it is verified, or another shard in it is
	merging           // Merge was asked for
	merged            // in the sums, not in a checkpoint
	saved             // in a checkpoint
	quarantined       // set aside
)

// Machine leads a job from its plan to its end. It publishes shards in order, within
// Limits. It merges each shard once, no matter which events arrive, how often and in
// which order, and which coordinators led the job before. It must not be used by several
// goroutines at once.
//
// The checkpoint is the only authority. An Inventory shows what is stored on the bus, but
// the machine never assumes that the list is complete. If a shard that should be stored is
// missing from two consecutive inventories, the machine publishes it again.
//
// The rounds of a plan follow one another. Nothing of a round is published or merged
// before all earlier rounds are merged and Judge is answered. The data that Judge decides
// on therefore depend only on the plan.
type Machine struct {
	spec    *Spec
	plan    Plan
	limits  Limits
	state   []state
	tries   []uint8
	doubt   []uint8 // number of consecutive inventories that contradicted the state
	reasons map[int]Quarantine
	next    int   // first shard that has not been published yet
	again   []int // shards to be published again, before next
	count   [quarantined + 1]int
	unsaved []Result        // results merged since the last checkpoint
	cleared int             // how many of unsaved made room for a checkpoint
	refused map[string]bool // partials of several shards that could not be used
	heard   map[int]bool    // shards of unsaved whose own results came
	coming  map[int]string  // shards of the checkpoint whose own results did not come yet, and the partials they came with
	held    int64           // bytes of the partials in unsaved, without those of cleared
	largest int64           // bytes of the largest partial so far
	crew    int             // tasks that workers hold or ask for
	most    int             // shards that may be published and not merged because the bus had no room; 0 = no bound
	since   int             // shards merged since most grew
	saving  bool            // Save was asked for and not yet answered
	round   int             // the round that is being computed
	past    int             // of a path, number of shards of the rounds that are over
	limit   int             // number of shards of round and all earlier rounds
	verifier
	early   bool // an event of a later round was ignored
	judging bool // Judge was asked for and not yet answered
	started bool // the first inventory of the round has been taken
	hasty   bool // the next inventory comes at once after the end of a round
	asked   bool // the round is settled except for one last look
	ended   bool
}

// NewMachine returns a machine for a job whose checkpoint holds the shards of done. Of a path, the
// checkpoint is that of a coordinator that ended the given number of rounds; otherwise judged is 0. wrong
// names the workers that have computed wrong. The machine publishes nothing before the first Inventory.
func NewMachine(spec *Spec, plan Plan, limits Limits, done Shards, judged int, wrong []string) *Machine {
	if limits.Window < 1 || limits.SaveEvery < 1 || limits.Tries < 1 || plan.Rows < 1 || plan.RowsPerShard < 1 {
		panic(fmt.Sprintf("job: NewMachine: limits %+v, plan %+v", limits, plan))
	}
	n := plan.Shards()
	m := &Machine{verifier: newVerifier(spec, limits.Verify, wrong), spec: spec, plan: plan, limits: limits, state: make([]state, n), tries: make([]uint8, n), doubt: make([]uint8, n), reasons: map[int]Quarantine{}, refused: map[string]bool{}, heard: map[int]bool{}, coming: map[int]string{}}
	m.count[todo] = n
	m.round = max(plan.RoundOf(done), min(judged, plan.rounds()-1))
	m.limit = plan.End(m.round)
	if spec.Traits().Ranks {
		m.past = plan.End(judged - 1)
	}
	for shard := range n {
		switch {
		case done.Has(shard):
			m.set(shard, saved)
		case shard < m.past:
			m.set(shard, quarantined)
			m.reasons[shard] = Quarantine{Shard: shard, Reason: pastReason, Worker: "coordinator"}
		}
	}
	return m
}

// pastReason is the reason of a shard that was set aside in a round of a path that is over, until the stored
// quarantine is read.
const pastReason = "it was set aside in a round that is over"

func (m *Machine) set(shard int, s state) {
	m.count[m.state[shard]]--
	m.count[s]++
	m.state[shard], m.doubt[shard] = s, 0
	if s != quarantined {
		delete(m.reasons, shard)
	} else {
		delete(m.checks, shard)
	}
}

// Counts is the progress of a job in shards.
type Counts struct {
	Shards      int // number of shards of the plan
	Merged      int // shards in the sums
	Open        int // shards asked for or stored, but not merged
	Quarantined int
}

// Counts returns the progress of the job.
func (m *Machine) Counts() Counts {
	c := &m.count
	return Counts{len(m.state), c[merged] + c[saved], c[wanted] + c[open] + c[checking] + c[merging], c[quarantined]}
}

// Quarantined returns the quarantines of the job, ordered by shard.
func (m *Machine) Quarantined() []Quarantine {
	var all []Quarantine
	for shard, s := range m.state {
		if s == quarantined {
			all = append(all, m.reasons[shard])
		}
	}
	return all
}

// Strip returns, for each cell of size shards in their order, how many are merged, open and
// quarantined. The last cell may have fewer shards.
func (m *Machine) Strip(size int) []Counts {
	cells := make([]Counts, (len(m.state)+size-1)/size)
	for shard, s := range m.state {
		c := &cells[shard/size]
		c.Shards++
		switch s {
		case merged, saved:
			c.Merged++
		case wanted, open, checking, merging:
			c.Open++
		case quarantined:
			c.Quarantined++
		}
	}
	return cells
}

// Step handles one event and returns the actions that follow from it. The coordinator
// carries them out in order. If actions ask for an outcome, it then passes these outcomes
// to Step, in the same order, before any other event.
func (m *Machine) Step(e Event) []Action {
	if m.ended {
		return nil
	}
	var actions []Action
	shard, named := shardOf(e)
	again := named && shard >= len(m.state) && shard < 2*len(m.state) // of a task with Verify
	if again {
		shard -= len(m.state)
	}
	if named && (shard < 0 || shard >= len(m.state)) {
		return []Action{Ignore{shard, fmt.Sprintf("unknown shard; the job has %d", len(m.state))}}
	} else if named && shard >= m.limit {
		m.early = true
		return []Action{Ignore{shard, "its round has not begun"}}
	}
	if again {
		return m.proceed(m.computedAgain(shard, e))
	}
	switch e := e.(type) {
	case Inventory:
		actions = m.inventory(e)
	case Published:
		if m.state[e.Shard] == wanted {
			m.set(e.Shard, open)
		}
	case Result:
		actions = m.result(e)
	case Unusable:
		actions = m.unusable(e)
	case Foreign:
		actions = m.foreign(e)
	case Merged:
		m.merge(e.Result)
	case Quarantine:
		actions = m.quarantine(e)
	case Due:
		actions = m.save()
	case Saved:
		actions = m.saved()
	case Full:
		actions = m.full()
	case NoRoom:
		actions = m.noRoom()
	case Judged:
		actions = m.judged(e)
	case Crew:
		m.crew = e.Tasks
	case Cancelled:
		m.ended = true
		return []Action{Stop{}}
	default:
		panic(fmt.Sprintf("job: Step: unknown event %T", e))
	}
	return m.proceed(actions)
}

func (m *Machine) result(r Result) []Action {
	switch m.state[r.Shard] {
	case checking:
		if first := m.waiting[r.Shard]; first.Partial.Name != r.Partial.Name {
			return append(m.compare(r.Shard, first, &r), Discard{r.Shard, r.Partial.Name, "another result of the shard is being verified", true})
		}
		m.heard[r.Shard] = true
		return []Action{Ignore{r.Shard, "result is being verified"}}
	case merging:
		return []Action{Ignore{r.Shard, "result is being merged"}}
	case merged:
		if from := m.mergedFrom(r.Shard); from.Partial.Name != r.Partial.Name { // the shard came with the partial of several shards
			return append(m.compare(r.Shard, from, &r), Discard{r.Shard, r.Partial.Name, "the shard was merged already", true})
		}
		m.heard[r.Shard] = true
		return []Action{Ignore{r.Shard, "result was merged already"}}
	case saved:
		if m.coming[r.Shard] == r.Partial.Name { // Clear has deleted the partial
			delete(m.coming, r.Shard)
			return []Action{Forget{r.Shard}}
		}
		return []Action{Discard{r.Shard, r.Partial.Name, "the shard is in the checkpoint", true}}
	}
	if m.refused[r.Partial.Name] { // the shard is published again already
		return []Action{Discard{r.Shard, "", "its partial, which has several shards, could not be used", false}}
	}
	rows := int64(0)
	for _, shard := range r.Covers() {
		if shard < 0 || shard >= m.limit {
			return m.unusable(Unusable{Shard: r.Shard, Partial: r.Partial.Name, Why: fmt.Sprintf("its partial has shard %d, expected one below %d", shard, m.limit)})
		}
		rows += m.plan.ShardRows(shard)
	}
	switch {
	case r.Partial.Name == "":
		return m.unusable(Unusable{Shard: r.Shard, Why: "its result has no partial"})
	case r.Rows != rows:
		return m.unusable(Unusable{Shard: r.Shard, Partial: r.Partial.Name, Why: fmt.Sprintf("its result has %d rows, expected %d", r.Rows, rows)})
	case r.Kernel != m.spec.Kernel:
		return m.unusable(Unusable{Shard: r.Shard, Partial: r.Partial.Name, Why: fmt.Sprintf("its result was computed by kernel %s, expected %s", r.Kernel, m.spec.Kernel)})
	}
	if m.over(r.Shard) {
		return []Action{Discard{r.Shard, r.Partial.Name, "its round is over", false}}
	}
	if m.wrong[r.Worker] {
		m.republish(r.Shard)
		return []Action{Discard{r.Shard, r.Partial.Name, "its worker " + r.Worker + " has computed wrong", false}}
	}
	for _, shard := range r.Covers() {
		if s := m.state[shard]; s == checking || s == merging || s == merged || s == saved { // another worker was faster
			m.republish(r.Shard)
			return []Action{Discard{r.Shard, r.Partial.Name, fmt.Sprintf("shard %d of the same partial came with another partial", shard), true}}
		}
	}
	var actions []Action
	for _, shard := range r.Covers() {
		if m.state[shard] == quarantined { // another worker had quarantined the shard
			actions = append(actions, Readmit{shard})
		}
		m.set(shard, merging)
	}
	m.largest = max(m.largest, r.Bytes())
	m.heard[r.Shard] = true
	return append(actions, m.check(r)...)
}

// over reports whether a shard belongs to a round of a path that is over. If it is quarantined, it
// stays so, because its partial no longer fits the sums.
func (m *Machine) over(shard int) bool { return shard < m.past }

// mergedFrom returns the result from which a shard was merged since the last checkpoint.
func (m *Machine) mergedFrom(shard int) *Result {
	for i := range m.unsaved {
		if slices.Contains(m.unsaved[i].Covers(), shard) {
			return &m.unsaved[i]
		}
	}
	panic(fmt.Sprintf("job: Step: shard %d was merged from no result", shard))
}

// Largest returns the bytes of the largest partial so far.
func (m *Machine) Largest() int64 { return m.largest }

func (m *Machine) merge(r Result) {
	for _, shard := range r.Covers() {
		if m.state[shard] != merging {
			panic(fmt.Sprintf("job: Step: shard %d merged without a request", shard))
		}
		m.set(shard, merged)
	}
	m.unsaved = append(m.unsaved, r)
	m.held += r.Bytes()
	if m.most > 0 { // somebody may have made room
		m.since += len(r.Covers())
		m.most += m.since / growEvery
		m.since %= growEvery
	}
}

// unusable discards a result, and those of the other shards of its partial. The shards are
// computed again, unless they have been tried Limits.Tries times.
func (m *Machine) unusable(e Unusable) []Action {
	switch m.state[e.Shard] {
	case merged:
		return []Action{Ignore{e.Shard, "its result became unreadable after it was merged"}}
	case checking:
		return []Action{Ignore{e.Shard, "its result became unreadable while it was verified"}}
	case saved:
		return []Action{Discard{e.Shard, e.Partial, "the shard is in the checkpoint", true}}
	case quarantined:
		if m.over(e.Shard) {
			return []Action{Discard{e.Shard, e.Partial, "its round is over", false}}
		}
	}
	actions := []Action{Discard{e.Shard, e.Partial, e.Why, false}}
	for _, shard := range e.Shards {
		m.refused[e.Partial] = true
		if shard != e.Shard {
			actions = append(actions, Discard{shard, "", e.Why, false})
			actions = append(actions, m.retry(shard, "its result is unusable: "+e.Why)...)
		}
	}
	return append(actions, m.retry(e.Shard, "its result is unusable: "+e.Why)...)
}

// foreign deletes a result or a quarantine of a build with another protocol. The shard is
// computed again unless it is merged.
func (m *Machine) foreign(e Foreign) []Action {
	var actions []Action
	s := m.state[e.Shard]
	switch {
	case e.Aside:
		actions = []Action{Readmit{e.Shard}}
	case s == checking || s == merging || s == merged: // the stored result is by now the one that was merged
		return []Action{Ignore{e.Shard, e.Why}}
	default:
		actions = []Action{Discard{e.Shard, e.Partial, e.Why, false}}
	}
	if s != checking && s != merging && s != merged && s != saved && (s != quarantined || e.Aside && !m.over(e.Shard)) {
		m.republish(e.Shard)
	}
	return actions
}

// retry publishes a shard again, or quarantines it after too many tries.
func (m *Machine) retry(shard int, why string) []Action {
	m.tries[shard]++
	if int(m.tries[shard]) < m.limits.Tries {
		m.republish(shard)
		return nil
	}
	q := Quarantine{Shard: shard, Reason: fmt.Sprintf("given up after %d tries: %s", m.tries[shard], why), Worker: "coordinator"}
	m.set(shard, quarantined)
	m.reasons[shard] = q
	return []Action{SetAside{q}}
}

func (m *Machine) republish(shard int) {
	m.set(shard, todo)
	if shard < m.next && !slices.Contains(m.again, shard) {
		m.again = append(m.again, shard)
	}
}

func (m *Machine) quarantine(q Quarantine) []Action {
	switch m.state[q.Shard] {
	case checking, merging, merged, saved:
		return []Action{Readmit{q.Shard}}
	case quarantined:
		if m.reasons[q.Shard].Reason == pastReason && !q.Lost {
			m.reasons[q.Shard] = q
			return []Action{Note{q}}
		}
		return []Action{Ignore{q.Shard, "it is quarantined already"}}
	}
	if q.Lost {
		return append([]Action{Readmit{q.Shard}, Withdraw{q.Shard}}, m.retry(q.Shard, q.Reason)...)
	}
	m.set(q.Shard, quarantined)
	m.reasons[q.Shard] = q
	return []Action{Note{q}}
}

// inventory compares what is stored with what should be stored.
func (m *Machine) inventory(inv Inventory) []Action {
	n := len(m.state)
	tasks, results, aside := shardsOf(0, n, inv.Tasks), shardsOf(0, n, inv.Results), shardsOf(0, n, inv.Quarantined)
	stuck, slow := shardsOf(0, n, inv.Stuck), shardsOf(0, n, inv.Slow)
	var actions []Action
	reread := false
	for shard, s := range m.state[:m.limit] {
		task, answered := tasks.Has(shard), results.Has(shard) || aside.Has(shard)
		switch {
		case (s == todo || s == wanted) && (task || answered):
			m.set(shard, open)
		case s == quarantined && m.over(shard):
		case s == quarantined && !aside.Has(shard): // somebody removed the quarantine
			m.tries[shard] = 0
			m.republish(shard)
		case s == saved && task: // published by a slower coordinator
			actions = append(actions, Withdraw{shard})
		case s == saved: // Reread delivers the result again, and it is discarded then
			reread = m.twice(shard, results.Has(shard)) || reread
		case s == open && answered:
			reread = m.twice(shard, true) || reread
		case s == open && !task:
			if m.twice(shard, true) {
				m.republish(shard)
			}
		case s == open && m.twice(shard, stuck.Has(shard)):
			actions = append(actions, Withdraw{shard})
			actions = append(actions, m.retry(shard, "its task is stored, but nobody gets it")...)
		case s == open && slow.Has(shard): // this is not a failure, so it does not count as a try
			actions = append(actions, Withdraw{shard})
			m.republish(shard)
		}
	}
	actions = append(actions, m.missing(inv)...)
	m.started, m.hasty = true, false
	if reread {
		actions = append(actions, Reread{})
	}
	if m.asked && m.settled() {
		return append(actions, m.end()...)
	}
	return actions
}

// twice records whether an inventory contradicted a shard's state, and reports whether two
// consecutive ones did. One contradiction means nothing, because the stored messages
// change while they are listed. Rounds may be so short that what a checkpoint covers is still being
// deleted in the inventories of several, so the one at the beginning of a later round counts as none.
func (m *Machine) twice(shard int, doubtful bool) bool {
	if m.hasty {
		return false
	}
	if !doubtful {
		m.doubt[shard] = 0
		return false
	}
	m.doubt[shard]++
	if m.doubt[shard] < 2 {
		return false
	}
	m.doubt[shard] = 0
	return true
}

func (m *Machine) save() []Action {
	if len(m.unsaved) == 0 || m.saving {
		return nil
	}
	m.saving = true
	return []Action{Save{Wait: m.cleared == len(m.unsaved) && m.settled()}}
}

func (m *Machine) saved() []Action {
	if !m.saving {
		panic("job: Step: saved without a request")
	}
	act := m.clear(m.unsaved)
	for i := range m.unsaved {
		for _, shard := range m.unsaved[i].Covers() {
			m.set(shard, saved)
		}
	}
	for _, shard := range act.Coming {
		m.coming[shard] = m.mergedFrom(shard).Partial.Name
	}
	maps.DeleteFunc(m.heard, func(shard int, _ bool) bool { return m.state[shard] == saved })
	m.unsaved, m.cleared, m.held, m.saving = nil, 0, 0, false
	return []Action{act}
}

// full makes room for the checkpoint that found none. What is merged already is deleted, and the
// checkpoint is tried again: a coordinator that continues from an older one computes these shards
// again. If that is not enough, the room comes from the partials that are merged next. In either
// case at most half as many shards are published from now on, and one more for each growEvery shards that are merged.
func (m *Machine) full() []Action {
	if !m.saving {
		panic("job: Step: full without a request")
	}
	m.most, m.since = max(2, m.window()/2), 0
	act := m.clear(m.unsaved[m.cleared:])
	m.cleared, m.held, m.saving = len(m.unsaved), 0, false
	if len(act.Results) == 0 && !m.settled() {
		return nil
	}
	return append([]Action{act}, m.save()...)
}

// growEvery is the number of merged shards after which one more may be published on a bus that had no room.
const growEvery = 4

// noRoom makes room for the partials of tasks that workers have done, which wait for it: of the tasks that are stored, the second half is
// taken back. As after Full, at most half as many are published from now on.
func (m *Machine) noRoom() []Action {
	m.most, m.since = max(1, m.count[open]/2), 0
	var act Recall
	stored := 0
	for shard := m.past; shard < m.limit; shard++ {
		if m.state[shard] == open {
			stored++
		}
		if m.state[shard] == wanted || m.state[shard] == open && stored > m.most {
			m.republish(shard)
			act.Shards = append(act.Shards, shard)
		}
	}
	return []Action{act}
}

// clear returns the action that deletes results.
func (m *Machine) clear(results []Result) Clear {
	act := Clear{Results: results}
	for i := range results {
		for _, shard := range results[i].Covers() {
			if !m.heard[shard] {
				act.Coming = append(act.Coming, shard)
			}
		}
	}
	return act
}

// settled reports whether every shard of the rounds so far is merged or quarantined, and none is being
// verified.
func (m *Machine) settled() bool {
	return m.count[merged]+m.count[saved]+m.count[quarantined] == m.limit && len(m.checks) == 0
}

// proceed appends the actions that are due after any event: the end, a checkpoint, tasks.
func (m *Machine) proceed(actions []Action) []Action {
	switch {
	case m.ended || !m.started || m.saving || m.judging:
		return actions
	case !m.settled():
		m.asked = false
		if len(m.unsaved)-m.cleared >= m.limits.SaveEvery || m.limits.SaveBytes > 0 && m.held >= m.limits.SaveBytes {
			actions = append(actions, m.save()...)
		}
		return m.publish(actions)
	case m.count[quarantined] == 0:
		return append(actions, m.end()...)
	case len(m.unsaved) > 0: // save the state, whichever way the job ends
		return append(actions, m.save()...)
	case !m.asked: // somebody may have removed a quarantine
		m.asked = true
		return append(actions, Look{})
	}
	return actions
}

// end ends the round. It also ends the job, unless the plan has rounds and Judge has to
// decide.
func (m *Machine) end() []Action {
	aside := m.Quarantined()
	if len(aside) > 0 && !m.limits.AllowQuarantined {
		m.ended = true
		return []Action{Fail{aside}}
	}
	if m.plan.Rounds != nil {
		m.judging = true
		return []Action{Judge{m.round}}
	}
	m.ended = true
	return []Action{Finish{aside}}
}

// judged ends the job or begins the next round. A round begins with a look at what an
// older coordinator may have stored for it.
func (m *Machine) judged(e Judged) []Action {
	if !m.judging || e.More && m.round == len(m.plan.Rounds)-1 {
		panic(fmt.Sprintf("job: Step: %+v in round %d of %d", e, m.round, len(m.plan.Rounds)))
	}
	if !e.More {
		m.ended = true
		return []Action{Finish{m.Quarantined()}}
	}
	if m.spec.Traits().Ranks {
		m.past = m.limit
	}
	m.round++
	m.limit = m.plan.End(m.round)
	actions := []Action{Look{}}
	if m.early {
		actions = append(actions, Reread{})
	}
	m.judging, m.asked, m.started, m.early, m.hasty = false, false, false, false, true
	return actions
}

// window returns how many shards may be published and not merged: two for each task that workers
// hold or ask for, within the limits.
func (m *Machine) window() int {
	window := max(m.limits.Window, min(2*m.crew, m.limits.Largest))
	if m.limits.Held > 0 && m.largest > 0 {
		window = min(window, int(max(2, m.limits.Held/m.largest)))
	}
	if m.most > 0 {
		window = min(window, m.most)
	}
	return window
}

// publish appends as many tasks as the window allows.
func (m *Machine) publish(actions []Action) []Action {
	window := m.window()
	for m.count[wanted]+m.count[open]+m.count[checking]+m.count[merging] < window {
		shard := m.next
		if len(m.again) > 0 {
			shard, m.again = m.again[0], m.again[1:]
		} else if m.next++; shard >= m.limit {
			m.next = m.limit
			break
		}
		if m.state[shard] == todo {
			m.set(shard, wanted)
			actions = append(actions, Publish{Shard: shard})
		}
	}
	return actions
}

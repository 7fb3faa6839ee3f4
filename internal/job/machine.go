package job

import "fmt"

// Plan is how a job is cut into tasks. It does not change the scores.
type Plan struct {
	Rows         int64 `json:"rows"`           // rows to score
	RowsPerShard int64 `json:"rows_per_shard"` // the last shard may have fewer
}

// Shards returns the number of shards.
func (p *Plan) Shards() int { return int((p.Rows + p.RowsPerShard - 1) / p.RowsPerShard) }

// ShardRows returns the number of rows of a shard.
func (p *Plan) ShardRows(shard int) int64 {
	return min(p.RowsPerShard, p.Rows-int64(shard)*p.RowsPerShard)
}

// Event is something that happened to a job: a Result or a Quarantine arrived,
// or, before Start, a task was found Queued.
type Event any

// Queued says that an earlier coordinator's task of the shard is in the queue.
type Queued struct{ Shard int }

// Action is something the coordinator must do, in order.
type Action any

// The actions.
type (
	// Publish asks for the task of a shard to be cut and published.
	Publish struct{ Shard int }
	// Merge asks for the partial of a result to be fetched and added.
	Merge struct{ Result Result }
	// Ignore says why an event changes nothing; it is for the log.
	Ignore struct {
		Shard int
		Why   string
	}
	// Fail ends the job: a task cannot be computed.
	Fail struct{ Reason string }
	// Finish ends the job: every shard was merged.
	Finish struct{}
)

// Machine leads a job from its plan to its end. It publishes shards in order,
// at most window of them ahead of their results, and merges each shard once,
// whatever arrives, how often and in which order. It is for one goroutine.
type Machine struct {
	spec           *Spec
	plan           Plan
	window         int
	merged         []bool
	queued         []bool // the task is stored: it need not be published
	next           int    // first shard that was not published
	open           int    // published and not merged
	left           int    // not merged
	started, ended bool
}

// NewMachine returns the state of a job that has not begun. window is at least 1.
func NewMachine(spec *Spec, plan Plan, window int) *Machine {
	if window < 1 || plan.Rows < 1 || plan.RowsPerShard < 1 {
		panic(fmt.Sprintf("job: NewMachine: window %d, plan %+v", window, plan))
	}
	return &Machine{spec: spec, plan: plan, window: window, merged: make([]bool, plan.Shards()), queued: make([]bool, plan.Shards()), left: plan.Shards()}
}

// Start begins to publish, and returns the first actions. What an earlier
// coordinator left comes first: shards of its tasks and results are not published.
func (m *Machine) Start() []Action {
	m.started = true
	if m.ended {
		return nil
	}
	return m.publish(nil)
}

// Waiting returns the number of shards that are published and not merged, and of
// those that are not merged at all: what the job waits for.
func (m *Machine) Waiting() (open, left int) { return m.open, m.left }

// Step takes in one event and returns what follows from it.
func (m *Machine) Step(e Event) []Action {
	if m.ended {
		return nil
	}
	switch e := e.(type) {
	case Queued:
		if m.started {
			panic("job: Step: Queued after Start")
		}
		if e.Shard < 0 || e.Shard >= len(m.queued) {
			return []Action{Ignore{e.Shard, fmt.Sprintf("task of an unknown shard; the job has %d", len(m.queued))}}
		}
		m.queued[e.Shard] = true
		return nil
	case Result:
		return m.result(e)
	case Quarantine:
		if e.Shard < 0 || e.Shard >= len(m.merged) || m.merged[e.Shard] {
			return []Action{Ignore{e.Shard, "quarantined, but merged or unknown"}}
		}
		m.ended = true
		return []Action{Fail{fmt.Sprintf("shard %d: %s", e.Shard, e.Reason)}}
	}
	panic(fmt.Sprintf("job: Step: unknown event %T", e))
}

func (m *Machine) result(r Result) []Action {
	switch {
	case r.Shard < 0 || r.Shard >= len(m.merged):
		return []Action{Ignore{r.Shard, fmt.Sprintf("result of an unknown shard; the job has %d", len(m.merged))}}
	case m.merged[r.Shard]:
		return []Action{Ignore{r.Shard, "result was merged already"}}
	case r.Rows != m.plan.ShardRows(r.Shard):
		m.ended = true
		return []Action{Fail{fmt.Sprintf("shard %d: its result has %d rows, the shard %d", r.Shard, r.Rows, m.plan.ShardRows(r.Shard))}}
	case r.Kernel != m.spec.Kernel:
		m.ended = true
		return []Action{Fail{fmt.Sprintf("shard %d: its result was computed by kernel %s, the job's is %s", r.Shard, r.Kernel, m.spec.Kernel)}}
	}
	m.merged[r.Shard] = true
	m.left--
	if r.Shard < m.next {
		m.open--
	}
	actions := []Action{Merge{r}}
	if m.left == 0 {
		m.ended = true
		return append(actions, Finish{})
	}
	return m.publish(actions)
}

// publish appends what the window allows, but for shards that an earlier
// coordinator's results or tasks cover.
func (m *Machine) publish(actions []Action) []Action {
	for m.started && m.next < len(m.merged) && m.open < m.window {
		if !m.merged[m.next] {
			m.open++
			if !m.queued[m.next] {
				actions = append(actions, Publish{m.next})
			}
		}
		m.next++
	}
	return actions
}

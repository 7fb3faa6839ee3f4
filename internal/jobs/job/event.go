package job

// Event is something that happened to a job: one of the types below, a Result or a
// Quarantine.
type Event any

// The events.
type (
	// Inventory lists what is stored for the job. Its tasks were listed before its
	// results, so a task that is completed in between appears at least as a result.
	Inventory struct {
		Tasks, Results, Quarantined []int
		Stuck                       []int // those Tasks that no worker holds and no worker will get
		Slow                        []int // those Tasks whose workers have been silent for so long that other workers may compute them too
	}
	// Published means that the task of a shard is stored.
	Published struct{ Shard int }
	// Merged means that a result's partial has been added to the sums.
	Merged struct{ Result Result }
	// Unusable means that a stored result cannot be merged, because it is malformed, or
	// its partial is missing, corrupt or invalid.
	Unusable struct {
		Shard   int
		Shards  []int  // as in the result
		Partial string // name of the partial, "" if unknown
		Why     string
	}
	// Foreign means that a stored result or quarantine was written by a build with another
	// protocol. It says nothing about the shard and counts as no try.
	Foreign struct {
		Shard   int
		Aside   bool   // it is a quarantine
		Partial string // name of the result's partial, "" if unknown
		Why     string
	}
	// Due means that it is time for another checkpoint.
	Due struct{}
	// Saved means that the checkpoint that Save asked for is stored.
	Saved struct{}
	// Full answers Save, too: the bus had no room for the checkpoint.
	Full struct{}
	// NoRoom means that no result comes, and that the bus has no room for another partial.
	NoRoom struct{}
	// Judged answers Judge and says whether another round follows. More must be false
	// after the last round.
	Judged struct{ More bool }
	// Crew says how many tasks workers hold or ask for.
	Crew struct{ Tasks int }
	// Cancelled means that the job is no longer wanted.
	Cancelled struct{}
)

// Action is something the coordinator must do.
type Action any

// The actions.
type (
	// Publish asks the coordinator to cut and store the task of a shard. Published
	// answers it. Workers are those that have computed the shard if the task has Verify; otherwise nil.
	Publish struct {
		Shard   int
		Workers []string
	}
	// Merge asks for the partial of a result to be added. Merged or Unusable answers it.
	Merge struct {
		Result   Result
		Verified int // how many of its shards were computed again with the same result
	}
	// Distrust says that a worker has computed wrong. It must not get tasks any more, and what is merged
	// of it must be computed again, so the job begins again if there is any.
	Distrust struct {
		Worker string
		Shard  int
		Why    string
	}
	// Save asks for a checkpoint of the sums and of the set of merged shards, once what Clear
	// named is deleted. Saved or Full answers it. Full must not if Wait is set: no room can be
	// made, so the coordinator waits for it.
	Save struct{ Wait bool }
	// Clear deletes results, partials and shards. The checkpoint has made them unnecessary, or
	// it needs their room. A worker stores one result after the other for the shards of a partial, so some
	// may not be stored yet. Forget follows for each of these.
	Clear struct {
		Results []Result
		Coming  []int // shards of Results whose own results must not be deleted yet
	}
	// Forget deletes the result of a shard whose partial Clear has deleted.
	Forget struct{ Shard int }
	// Discard deletes a result and its partial.
	Discard struct {
		Shard   int
		Partial string // "" if unknown
		Why     string
		Spare   bool // another worker was faster, which is usual after a lease ran out
	}
	// Withdraw deletes the task of a shard.
	Withdraw struct{ Shard int }
	// Recall takes back the Publish of the given shards, which are all whose tasks are not stored yet, except those with Workers, and some
	// others. Their tasks and data are deleted. One that is just being cut may be stored all the same.
	Recall struct{ Shards []int }
	// SetAside stores a quarantine and deletes the shard's task.
	SetAside struct{ Quarantine Quarantine }
	// Readmit deletes the quarantine of a shard that was computed after all, or is to be
	// computed again.
	Readmit struct{ Shard int }
	// Note reports a quarantined shard to people.
	Note struct{ Quarantine Quarantine }
	// Reread asks for all stored results and quarantines to be delivered as events again.
	Reread struct{}
	// Look asks for an Inventory now.
	Look struct{}
	// Judge asks whether to continue. The sums hold exactly the rounds up to and
	// including the given one. Judged answers it. Only a job whose plan has rounds needs
	// it.
	Judge struct{ Round int }
	// Ignore says why an event changes nothing. It is for the log.
	Ignore struct {
		Shard int
		Why   string
	}
	// Fail ends the job and keeps its state. The checkpoint holds everything that can be
	// computed, and the given shards cannot be.
	Fail struct{ Quarantined []Quarantine }
	// Finish ends the job. Every shard of its rounds is merged, except the given ones.
	Finish struct{ Quarantined []Quarantine }
	// Stop ends the job and keeps nothing of it.
	Stop struct{}
)

// shardOf returns the shard of an event, and whether the event has one.
func shardOf(e Event) (shard int, named bool) {
	switch e := e.(type) {
	case Published:
		return e.Shard, true
	case Result:
		return e.Shard, true
	case Merged:
		return e.Result.Shard, true
	case Unusable:
		return e.Shard, true
	case Foreign:
		return e.Shard, true
	case Quarantine:
		return e.Shard, true
	}
	return 0, false
}

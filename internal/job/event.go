package job

// Event is something that happened to a job: one of the types below, a Result
// or a Quarantine.
type Event any

// The events.
type (
	// Inventory says what is stored of the job. Its tasks were listed before its
	// results, so that a task that is done in between is seen as one of them.
	Inventory struct {
		Tasks, Results, Quarantined []int
		Stuck                       []int // of Tasks: nobody has them, and nobody will get them
	}
	// Published says that the task of a shard is stored.
	Published struct{ Shard int }
	// Merged says that a result's partial is in the sums.
	Merged struct{ Result Result }
	// Unusable says that what is stored as a result cannot be merged: it is
	// malformed, or its partial is missing, corrupt or none.
	Unusable struct {
		Shard   int
		Partial string // its name, "" if not known
		Why     string
	}
	// Due says that some time has passed since the last checkpoint.
	Due struct{}
	// Saved says that the checkpoint that Save asked for is stored.
	Saved struct{}
	// Judged says whether the round is to be followed by another, after Judge. It
	// must not be after the last.
	Judged struct{ More bool }
	// Cancelled says that the job is no longer wanted.
	Cancelled struct{}
)

// Action is something the coordinator must do.
type Action any

// The actions.
type (
	// Publish asks for the task of a shard to be cut and stored; Published follows.
	Publish struct{ Shard int }
	// Merge asks for the partial of a result to be added: Merged or Unusable follows.
	Merge struct{ Result Result }
	// Save asks for a checkpoint of the sums and of which shards are in them; Saved
	// follows.
	Save struct{}
	// Clear deletes what a checkpoint has made superfluous: results, partials, shards.
	Clear struct{ Results []Result }
	// Discard deletes a result and its partial.
	Discard struct {
		Shard   int
		Partial string // "" if not known
		Why     string
	}
	// Withdraw deletes the task of a shard.
	Withdraw struct{ Shard int }
	// SetAside stores a quarantine, and deletes the shard's task.
	SetAside struct{ Quarantine Quarantine }
	// Readmit deletes the quarantine of a shard that was computed after all, or
	// is to be.
	Readmit struct{ Shard int }
	// Note says that a shard was set aside; it is for people.
	Note struct{ Quarantine Quarantine }
	// Reread asks for all stored results and quarantines to be told again.
	Reread struct{}
	// Look asks for an Inventory now.
	Look struct{}
	// Judge asks whether to go on, with the sums of the rounds up to and with the
	// given one, and of no other: Judged follows. Only plans with rounds have it.
	Judge struct{ Round int }
	// Ignore says why an event changes nothing; it is for the log.
	Ignore struct {
		Shard int
		Why   string
	}
	// Fail ends the job, whose state is kept: all that can be computed is in the
	// checkpoint, these shards cannot.
	Fail struct{ Quarantined []Quarantine }
	// Finish ends the job: every shard of its rounds is merged but these.
	Finish struct{ Quarantined []Quarantine }
	// Stop ends the job, of which nothing is kept.
	Stop struct{}
)

// shardOf returns the shard that an event names.
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
	case Quarantine:
		return e.Shard, true
	}
	return 0, false
}

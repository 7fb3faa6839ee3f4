package job

// Lead is the record of who leads a job and what is merged. It is the value of the key
// JOB.checkpoint and is replaced only by compare-and-set. A coordinator that finds the
// record of another coordinator is fenced, and its sums no longer count.
type Lead struct {
	Job        string `json:"job"`
	Epoch      int64  `json:"epoch"`      // increased by each coordinator that takes the job over
	Owner      string `json:"owner"`      // the coordinator's name and a random token
	Number     int64  `json:"number"`     // number of checkpoints in this epoch
	Checkpoint *Blob  `json:"checkpoint"` // null = nothing is merged permanently
	Ending     bool   `json:"ending"`     // everything of the job is being deleted
	// Out is where the coordinator writes the scores; "" = unknown.
	Out   string   `json:"out,omitempty"`
	Wrong []string `json:"wrong,omitempty"` // workers that have computed wrong
	// Run is an id that all tries of a run have, such as the pods of a Kubernetes Job; "" = none.
	Run string `json:"run,omitempty"`
}

// Elsewhere reports whether the leader writes its scores to another place than out. An
// unknown place is not another one.
func (l *Lead) Elsewhere(out string) bool { return l.Out != "" && out != "" && l.Out != out }

// Submission is the value of the key JOB.spec. The plan of a job's first submission also
// applies to all later ones.
type Submission struct {
	Spec Spec `json:"spec"`
	Plan Plan `json:"plan"`
	// Protocol and Program are those of the build that submitted the job first. Builds
	// before protocol 1 store neither.
	Protocol int    `json:"protocol,omitempty"`
	Program  string `json:"program,omitempty"`
}

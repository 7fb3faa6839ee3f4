package job

// Lead says who leads a job and what is merged: the value of the key
// JOB.checkpoint. It is only ever replaced by compare-and-set, so that a
// coordinator which finds another's there is fenced, and its sums count no more.
type Lead struct {
	Job        string `json:"job"`
	Epoch      int64  `json:"epoch"`      // raised by each coordinator that takes the job
	Owner      string `json:"owner"`      // its name and a random token
	Number     int64  `json:"number"`     // of checkpoints in this epoch
	Checkpoint *Blob  `json:"checkpoint"` // null = nothing is merged for good
	Ending     bool   `json:"ending"`     // everything of the job is being deleted
}

// Submission is the value of the key JOB.spec. The plan of the first submission
// of a job is that of the later ones.
type Submission struct {
	Spec Spec `json:"spec"`
	Plan Plan `json:"plan"`
}

// Package job defines jobs: specification and identity, tasks and results, and the state
// machine that leads a job from its submission to its end. The package is pure. The state
// machine turns events into actions and uses no clock, network or file.
package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
)

// Spec is everything that decides the bytes of a job's scores, and nothing
// else: no worker count, no shard size, no address.
type Spec struct {
	Version  int      `json:"version"`  // version of this form, see SpecVersion
	Model    string   `json:"model"`    // SHA-256 of the model's canonical bytes
	Dataset  string   `json:"dataset"`  // SHA-256 of the dataset's manifest
	Splits   []string `json:"splits"`   // names of the scored splits, in the dataset's order
	Sample   float64  `json:"sample"`   // scored portion of the rows, (0, 1]
	Baseline string   `json:"baseline"` // what a dropped entry reads: zero, codebook or words; of fields also marginal

	estimator.Options // with Until and without Previous, Passes is the largest number of passes

	Seed   uint64  `json:"seed"`
	Kernel string  `json:"kernel"`          // the float32 kernel that computes the job; other kernels give results that differ in the last bits
	Until  *Until  `json:"until,omitempty"` // nil = all rows and passes, in one round
	Audit  float64 `json:"audit,omitempty"` // portion of the rows on which multilinear is compared with walks; 0 = no audit

	Days           []string  `json:"days,omitempty"`            // digests of the datasets of which Dataset consists; nil = Dataset is a single folder
	BaselineValues string    `json:"baseline_values,omitempty"` // SHA-256 of the baseline's bytes, if it has several words or does not follow from model and dataset
	Previous       *Previous `json:"previous,omitempty"`        // what a paired job corrects; nil = the job is not paired
	Revision       int       `json:"revision,omitempty"`        // estimator.Traits.Revision
	Loss           loss.Kind `json:"loss,omitempty"`            // loss of a row; empty = the log loss
	Players        string    `json:"players,omitempty"`         // estimator.Fields or estimator.Pairs; empty = embedding entries
	Freeze         []int     `json:"freeze,omitempty"`          // fields whose entries are no players; see model.Architecture.Frozen

	Fresh *estimator.Fresh `json:"fresh,omitempty"` // rows that count more than once; nil = none
	Adds  bool             `json:"adds,omitempty"`  // the path adds entries again at its end
	Tasks []model.Task     `json:"tasks,omitempty"` // rows are those of each task; nil = those of the dataset

	LargestWeight int64 `json:"largest_weight,omitempty"` // largest weight of a row of data; 0 = rows have no weights
}

// Previous identifies the previous values that a paired job corrects. A paired job computes
// the previous model and the new model on each sampled row, with the same random numbers. The
// mean difference of their contributions corrects the previous values.
type Previous struct {
	Model    string `json:"model"`    // SHA-256 of the previous model's canonical bytes
	Baseline string `json:"baseline"` // SHA-256 of the bytes of the previous model's baseline
	Values   string `json:"values"`   // SHA-256 of the file with the previous values
	// Generation is the number of paired jobs since the last full one, this job included, at
	// least 1. It selects the sample, so that each generation scores other rows.
	Generation int `json:"generation"`
}

// SpecVersion changes when the same spec would give other bytes, whatever its estimator. If
// only the jobs of one estimator change, its Revision changes instead.
const SpecVersion = 2

// TaskOptions returns the options of a task. With Until a task is one pass, except in a
// paired job, whose tasks have all passes.
func (s *Spec) TaskOptions() estimator.Options {
	o := s.Options
	if s.Until != nil && s.Previous == nil {
		o.Passes = 1
	}
	return o
}

// OfFields reports whether the job gives values to fields and not to embedding entries.
func (s *Spec) OfFields() bool { return s.Players != "" }

// OfPairs reports whether the job also gives values to pairs of fields.
func (s *Spec) OfPairs() bool { return s.Players == estimator.Pairs }

// Weights returns how often the rows count.
func (s *Spec) Weights() estimator.Weights {
	w := estimator.Weights{Rows: s.LargestWeight}
	if s.Fresh != nil {
		w.Fresh = s.Fresh.Weight
	}
	return w
}

// Generation returns the number of paired jobs since the last full one, this job included;
// 0 = the job is not paired.
func (s *Spec) Generation() int {
	if s.Previous == nil {
		return 0
	}
	return s.Previous.Generation
}

// ID returns the job's identity: 20 hexadecimal digits of the SHA-256 of the
// spec's JSON. The same job submitted twice has the same ID.
func (s *Spec) ID() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("job: spec does not marshal: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:10])
}

// Blob is a reference to immutable bytes in the blob store.
type Blob struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // hexadecimal
}

// Place says which rows of the dataset form a shard, for workers that have the dataset.
// They are rows of the sample, beginning at row Seen of the job's splits.
type Place struct {
	Seen int64 `json:"seen"` // number of rows of the splits before the shard
	Kept int64 `json:"kept"` // number of those rows that are in the sample
	// Either SHA256 or Blocks is set. A worker checks the rows by it.
	SHA256 string `json:"sha256,omitempty"` // SHA-256 of the shard's rows, hexadecimal; see shard.Digest
	Blocks string `json:"blocks,omitempty"` // dataset.Dataset.Blocks, the digest of the lists of blocks
	// For a round with a portion of the rows: the portion's index and the number of
	// portions. See job.Portion.
	Portion  int `json:"portion,omitempty"`
	Portions int `json:"portions,omitempty"`
	// The parts of the rows that the round takes, as in Round.
	Part  int `json:"part,omitempty"`
	Take  int `json:"take,omitempty"`
	Parts int `json:"parts,omitempty"`
}

// Task is the unit of work, of retry and of identity. It covers all passes over the rows
// of one shard, or a single pass in a job with Until that is not paired.
type Task struct {
	Protocol int    `json:"protocol"` // of the build that wrote the message; package bus sets it
	Job      string `json:"job"`
	Shard    int    `json:"shard"`
	Spec     Spec   `json:"spec"`
	Pass     int    `json:"pass,omitempty"` // with Until, the index of the pass
	Rows     int64  `json:"rows"`           // number of rows of the shard
	// Combine states that a worker may add up the partials of several tasks of the job. It then
	// stores one partial for all of them.
	Combine  bool  `json:"combine,omitempty"`
	Ranges   int   `json:"ranges,omitempty"` // number of blobs of the partial; see Plan.Ranges
	Data     Blob  `json:"data,omitzero"`    // the shard; empty if Place is set
	Place    Place `json:"place,omitzero"`   // where the rows are, for plans with InPlace; empty if Data is set
	Model    Blob  `json:"model"`            // in the form of package modelfile; its name has Spec.Model
	Baseline Blob  `json:"baseline"`         // baseline.Encode, or of a job of fields shapley.Fields.Encode
	// The previous model and its baseline, in the same forms; empty unless the job is paired.
	PreviousModel    Blob `json:"previous_model,omitzero"`
	PreviousBaseline Blob `json:"previous_baseline,omitzero"`
	// Path says at which tables a task of a path measures; nil = the job is not a path.
	Path *PathRound `json:"path,omitempty"`
	// Verify says that the task computes a shard once more; nil = it does not.
	Verify *Verify `json:"verify,omitempty"`
	// Wrong names the workers that have computed wrong. They must not take the task.
	Wrong []string `json:"wrong,omitempty"`
}

// Verify marks a task that computes again what another one computed. It stores no partial, and its
// result has the digest alone. Its number is that of the shard plus Plan.Shards.
type Verify struct {
	Shard   int      `json:"shard"`
	Workers []string `json:"workers"` // those that have computed the shard; another one should take the task
}

// PathRound is what the tasks of a round of a path share.
type PathRound struct {
	// Masks is the layout.Mask of the entries that the tables do not have. If Adds is set, the round measures entries that it
	// may add, and the mask of all other entries follows. Otherwise it measures those that the tables have.
	Masks       Blob             `json:"masks"`
	Adds        bool             `json:"adds,omitempty"`
	Calibration loss.Calibration `json:"calibration"` // of the model with these tables
}

// Result describes a finished task, or several tasks of one worker whose partials are added up.
// In the latter case each of the shards has a result, which differ only in Shard. The partial
// must be merged once, for all of these shards, or not at all.
type Result struct {
	Protocol int    `json:"protocol"` // of the build that wrote the message; package bus sets it
	Job      string `json:"job"`
	Shard    int    `json:"shard"`
	Shards   []int  `json:"shards,omitempty"` // all shards in the partial, ascending; empty if it has only Shard
	Rows     int64  `json:"rows"`             // of the partial
	Partial  Blob   `json:"partial,omitzero"` // empty if the task has Verify
	// Digests has the digest of each shard's own partial, in the order of Covers; see tally.Partial.Check.
	Digests []uint64 `json:"digests"`
	Alone   bool     `json:"alone,omitempty"` // of a task with Verify: the worker has computed the shard before, and no other one took the task
	More    []Blob   `json:"more,omitempty"`  // with Task.Ranges, the ranges of the partial from the second on; Partial is then the first
	Mask    string   `json:"mask,omitempty"`  // of a path: SHA-256 of PathRound.Masks, with which it was computed
	Kernel  string   `json:"kernel"`
	Worker  string   `json:"worker"`  // name of the worker, for people
	Seconds float64  `json:"seconds"` // wall time of the computation
	CPU     float64  `json:"cpu"`     // core-seconds of the computation
}

// Partials returns the blobs of the partial of r: one, or one for each range.
func (r *Result) Partials() []Blob { return append([]Blob{r.Partial}, r.More...) }

// digest returns the digest of one of the shards in r.
func (r *Result) digest(shard int) uint64 { return r.Digests[slices.Index(r.Covers(), shard)] }

// Bytes returns the size of the partial of r.
func (r *Result) Bytes() (bytes int64) {
	for _, blob := range r.Partials() {
		bytes += blob.Bytes
	}
	return bytes
}

// MostCombined is the largest number of tasks whose partials a worker adds up.
const MostCombined = 16

// FullBytes is the memory of sums from which on a worker stores them. Together with those of one more
// task they are below what a partial may have.
const FullBytes = 512 << 20

// Covers returns the shards in the partial of r.
func (r *Result) Covers() []int {
	if len(r.Shards) == 0 {
		return []int{r.Shard}
	}
	return r.Shards
}

// Quarantine sets a task aside, because its shard or model cannot be computed and another
// try would fail in the same way. If Lost is set, the reason is that stored data that the
// task needs is missing or changed, and the coordinator has to store it again first.
type Quarantine struct {
	Protocol int    `json:"protocol"` // of the build that wrote the message; package bus sets it
	Job      string `json:"job"`
	Shard    int    `json:"shard"`
	Reason   string `json:"reason"`         // one line that names the row or tensor and the problem
	Input    bool   `json:"input"`          // the input is at fault; false = the task was tried too often
	Lost     bool   `json:"lost,omitempty"` // stored data is missing or changed
	Worker   string `json:"worker"`
}

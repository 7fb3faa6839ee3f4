// Package job says what a job is: its specification and identity, its tasks and
// results, and the state machine that leads from a submission to a finished
// set of shards. It is pure: events in, actions out; no clock, network or file.
package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"shaver/internal/estimator"
)

// Spec is everything that decides the bytes of a job's scores, and nothing
// else: no worker count, no shard size, no address.
type Spec struct {
	Version  int      `json:"version"`  // of this form; see SpecVersion
	Model    string   `json:"model"`    // SHA-256 of the model's canonical bytes
	Dataset  string   `json:"dataset"`  // SHA-256 of the dataset's manifest
	Splits   []string `json:"splits"`   // in the dataset's order
	Sample   float64  `json:"sample"`   // portion of the rows, (0, 1]
	Baseline string   `json:"baseline"` // what stands in for a dropped entry: zero or codebook

	estimator.Options // with Until, Passes is the most that are computed

	Seed   uint64  `json:"seed"`
	Kernel string  `json:"kernel"`          // float32 kernels that compute it; others give other last bits
	Until  *Until  `json:"until,omitempty"` // nil = all rows and passes, in one round
	Audit  float64 `json:"audit,omitempty"` // portion of the rows on which multilinear is held against walks; 0 = none
}

// SpecVersion changes when the same spec would give other bytes.
const SpecVersion = 2

// TaskOptions returns the options of a task: with Until it is one pass.
func (s *Spec) TaskOptions() estimator.Options {
	o := s.Options
	if s.Until != nil {
		o.Passes = 1
	}
	return o
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

// Blob refers to immutable bytes in the blob store.
type Blob struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // hexadecimal
}

// Place says which of a dataset's rows are a shard, for workers that have the
// dataset: those of the sample from the row Seen of the job's splits on.
type Place struct {
	Seen   int64  `json:"seen"`   // rows of the splits that come before
	Kept   int64  `json:"kept"`   // how many of these are in the sample
	SHA256 string `json:"sha256"` // of the shard's rows, hexadecimal; see shard.Digest
	// Of a round that has a portion of the rows: which, of how many; see job.Portion.
	Portion  int `json:"portion,omitempty"`
	Portions int `json:"portions,omitempty"`
}

// Task is the unit of work, of retry and of identity: all passes over the rows
// of one shard, or, of a job with Until, one pass.
type Task struct {
	Job      string `json:"job"`
	Shard    int    `json:"shard"`
	Spec     Spec   `json:"spec"`
	Pass     int    `json:"pass,omitempty"` // with Until: which pass over the rows
	Rows     int64  `json:"rows"`           // of the shard
	Data     Blob   `json:"data,omitzero"`  // the shard; or:
	Place    Place  `json:"place,omitzero"` // where it is, of a plan with InPlace
	Model    Blob   `json:"model"`          // the whole checkpoint, as safetensors
	Baseline Blob   `json:"baseline"`       // m*d little-endian float32
}

// Result is the manifest of a finished task.
type Result struct {
	Job     string  `json:"job"`
	Shard   int     `json:"shard"`
	Rows    int64   `json:"rows"`
	Partial Blob    `json:"partial"`
	Kernel  string  `json:"kernel"`
	Worker  string  `json:"worker"`  // who computed it, for people
	Seconds float64 `json:"seconds"` // wall time of the computation
	CPU     float64 `json:"cpu"`     // core-seconds of the computation
}

// Quarantine sets a task aside: its shard or its model cannot be computed, and
// trying again would fail the same way; or, with Lost, what it needs is not
// stored as it was, and the coordinator has to store it again first.
type Quarantine struct {
	Job    string `json:"job"`
	Shard  int    `json:"shard"`
	Reason string `json:"reason"` // one line: which row or tensor, and why
	Input  bool   `json:"input"`  // the input is to blame; else it was tried too often
	Lost   bool   `json:"lost,omitempty"`
	Worker string `json:"worker"`
}

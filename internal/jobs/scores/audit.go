package scores

import (
	"cmp"
	"encoding/json"
	"math"
)

// Audit compares the values of a multilinear job with those of a reference that has no bias. It
// covers the entries that occur in a sample of the rows of the job's splits. The sample consists
// of two independent halves; a difference that both halves show is not noise. A figure is nil
// if noise leaves it undefined.
type Audit struct {
	Reference string `json:"reference"` // the estimator of the reference
	Rows      int64  `json:"rows"`      // number of rows of both halves together
	Entries   int    `json:"entries"`   // number of entries that occur in these rows

	// The job's estimator compared with the reference, over both halves.
	RelativeRMS  *float64 `json:"relative_rms"`  // root mean square of the difference, including noise, relative to the values
	RelativeBias *float64 `json:"relative_bias"` // like RelativeRMS, but excluding noise; see compare.RelativeBias
	BiasNoise    *float64 `json:"bias_noise"`    // largest RelativeBias that noise alone may cause
	Spearman     *float64 `json:"spearman"`      // rank correlation of |phi|

	// Rank correlation of the reference on one half with that on the other half, which differ
	// only by noise.
	ReferenceSpearman *float64 `json:"reference_spearman"`

	Overlaps []Overlap `json:"overlaps"`
}

// Overlap is the portion of the entries kept at a sparsity that two rankings by |phi| both
// keep; see compare.Overlap.
type Overlap struct {
	Sparsity  float64 `json:"sparsity"`
	Overlap   float64 `json:"overlap"`   // portion for the job's estimator and the reference
	Reference float64 `json:"reference"` // portion for the reference on one half and that on the other half
}

// byWalks is the reference of audits that do not name one.
const byWalks = "permutation"

// UnmarshalJSON reads audits of all programs so far. In earlier ones the reference was walks.
func (a *Audit) UnmarshalJSON(data []byte) error {
	type form Audit
	was := struct {
		*form
		Walks    *float64 `json:"walks_spearman"`
		Overlaps []struct {
			Overlap
			Walks float64 `json:"walks"`
		} `json:"overlaps"`
	}{form: (*form)(a)}
	if err := json.Unmarshal(data, &was); err != nil {
		return err
	}
	a.Reference = cmp.Or(a.Reference, byWalks)
	a.ReferenceSpearman = cmp.Or(a.ReferenceSpearman, was.Walks)
	a.Overlaps = nil
	for _, o := range was.Overlaps {
		o.Reference = cmp.Or(o.Reference, o.Walks)
		a.Overlaps = append(a.Overlaps, o.Overlap)
	}
	return nil
}

// AuditSparsities lists the sparsities of Audit.Overlaps.
var AuditSparsities = []float64{0.5, 0.8, 0.9, 0.95, 0.99}

// Figure returns &v. It returns nil if v is NaN or infinite, because JSON has no such
// numbers.
func Figure(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

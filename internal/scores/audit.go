package scores

import "math"

// Audit compares the values of a multilinear job with values from full walks. It covers the
// entries that occur in a sample of the rows of the job's splits. The sample consists of two
// independent halves; a difference that both halves show is not noise. A figure is nil if
// noise leaves it undefined.
type Audit struct {
	Rows    int64 `json:"rows"`    // number of rows of both halves together
	Entries int   `json:"entries"` // number of entries that occur in these rows

	// The job's estimator compared with one walk per row, over both halves.
	RelativeRMS  *float64 `json:"relative_rms"`  // root mean square of the difference, including the noise of both, relative to the values
	RelativeBias *float64 `json:"relative_bias"` // like RelativeRMS, but excluding noise; see compare.RelativeBias
	BiasNoise    *float64 `json:"bias_noise"`    // largest RelativeBias that noise alone may cause
	Spearman     *float64 `json:"spearman"`      // rank correlation of |phi|

	// Rank correlation of walks on one half with walks on the other half, which differ only
	// by noise.
	WalksSpearman *float64 `json:"walks_spearman"`

	Overlaps []Overlap `json:"overlaps"`

	Endpoints      *float64 `json:"endpoints"`       // bias of plain end points relative to balanced ones, as a portion of the values
	EndpointsNoise *float64 `json:"endpoints_noise"` // largest Endpoints that noise alone may cause
}

// Overlap is the portion of the entries kept at a sparsity that two rankings by |phi| both
// keep; see compare.Overlap.
type Overlap struct {
	Sparsity float64 `json:"sparsity"`
	Overlap  float64 `json:"overlap"` // portion for the job's estimator and walks
	Walks    float64 `json:"walks"`   // portion for walks on one half and walks on the other half
}

// AuditSparsities lists the sparsities of Audit.Overlaps.
var AuditSparsities = []float64{0.5, 0.8, 0.9, 0.95, 0.99}

// Differ reports whether plain and balanced end points give different values. Their
// difference must be above EndpointsBound and, if EndpointsNoise is known, above the noise.
func (a *Audit) Differ() bool {
	noise := 0.0
	if a.EndpointsNoise != nil {
		noise = *a.EndpointsNoise
	}
	return a.Endpoints != nil && *a.Endpoints > max(EndpointsBound, noise)
}

// EndpointsBound is the largest Audit.Endpoints at which values from plain end points can
// be trusted.
const EndpointsBound = 0.1

// Figure returns &v. It returns nil if v is NaN or infinite, because JSON has no such
// numbers.
func Figure(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

package scores

import "math"

// Audit holds the values of a multilinear job against full walks, on a sample of
// the rows of its splits, of the entries that occur in them. The sample is two, drawn
// independently: what both say is not noise. A figure that noise leaves undefined
// is null.
type Audit struct {
	Rows    int64 `json:"rows"`    // of both samples
	Entries int   `json:"entries"` // that occur in them

	// The job's estimator against one walk a row, over both samples.
	RelativeRMS  *float64 `json:"relative_rms"`  // of the difference, with the noise of both
	RelativeBias *float64 `json:"relative_bias"` // the same without noise; see compare.RelativeBias
	BiasNoise    *float64 `json:"bias_noise"`    // what noise alone may look like as bias
	Spearman     *float64 `json:"spearman"`      // of |phi|

	// Walks on one sample against walks on the other: what noise alone does.
	WalksSpearman *float64 `json:"walks_spearman"`

	Overlaps []Overlap `json:"overlaps"`

	// The bias of plain end points against balanced ones, relative to the values.
	Endpoints      *float64 `json:"endpoints"`
	EndpointsNoise *float64 `json:"endpoints_noise"`
}

// Overlap is which portion of what is kept at a sparsity is kept by both of two
// rankings by |phi|; see compare.Overlap.
type Overlap struct {
	Sparsity float64 `json:"sparsity"`
	Overlap  float64 `json:"overlap"` // of the job's estimator and walks
	Walks    float64 `json:"walks"`   // of walks on one sample and on the other
}

// AuditSparsities are those of Audit.Overlaps.
var AuditSparsities = []float64{0.5, 0.8, 0.9, 0.95, 0.99}

// Differ reports whether end points matter: their difference is above EndpointsBound,
// and more than noise, if that is known.
func (a *Audit) Differ() bool {
	noise := 0.0
	if a.EndpointsNoise != nil {
		noise = *a.EndpointsNoise
	}
	return a.Endpoints != nil && *a.Endpoints > max(EndpointsBound, noise)
}

// EndpointsBound is the most that Audit.Endpoints may be of values to be quoted.
const EndpointsBound = 0.1

// Figure returns v, or nil if it is NaN or infinite, which JSON does not have.
func Figure(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

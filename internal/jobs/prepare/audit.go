package prepare

import "shaver/internal/value/estimator"

// The estimators that an audit compares, as indices into the result of AuditRequests.
const (
	ByFlips         = iota // the reference, which has no bias
	AsRequested            // the request's own options
	AuditEstimators        // number of estimators
)

// AuditRequests returns the jobs of the audit of r, a multilinear request. Each
// estimator scores the same two samples, each half the size of the audit, with the same random
// numbers. Therefore the values differ by the corrections of the reference, and not by the noise
// of the draws, unless the end points of r are balanced. scored is the portion of the splits'
// rows that the job of r scored.
func (r Request) AuditRequests(scored float64) (requests [AuditEstimators][2]Request) {
	for by := range AuditEstimators {
		for half := range 2 {
			sub := r
			if by == ByFlips {
				sub.Options = estimator.Options{Estimator: estimator.Debiased, Passes: 1, Draws: r.Options.Draws, Endpoints: estimator.Plain, Flips: estimator.DefaultFlips}
			}
			sub.Seed += uint64(1 + half)
			sub.Sample, sub.MaxRows, sub.Until, sub.Audit, sub.Previous = r.Audit*scored/2, 0, nil, 0, nil
			requests[by][half] = sub
		}
	}
	return requests
}

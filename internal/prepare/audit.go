package prepare

import "shaver/internal/estimator"

// The estimators that an audit compares, as indices into the result of AuditRequests.
const (
	ByWalks         = iota // full walks, the reference
	AsRequested            // the request's own options
	OtherEndpoints         // the request's options with the other end points
	AuditEstimators        // number of estimators
)

// AuditRequests returns the jobs of the audit of r, a multilinear request. Each
// estimator scores the same two samples, each half the size of the audit. scored is
// the portion of the splits' rows that the job of r scored.
func (r Request) AuditRequests(scored float64) (requests [AuditEstimators][2]Request) {
	for by := range AuditEstimators {
		for half := range 2 {
			sub := r
			sub.Options = auditOptions(r.Options, by)
			sub.Seed += uint64(1 + half)
			sub.Sample, sub.MaxRows, sub.Until, sub.Audit, sub.Previous = r.Audit*scored/2, 0, nil, 0, nil
			requests[by][half] = sub
		}
	}
	return requests
}

func auditOptions(o estimator.Options, by int) estimator.Options {
	switch {
	case by == ByWalks:
		return estimator.Options{Estimator: estimator.Permutation, Passes: 1}
	case by == AsRequested:
	case o.Endpoints == estimator.Plain:
		o.Endpoints, o.Draws = estimator.Balanced, max(4, o.Draws)
	default:
		o.Endpoints = estimator.Plain
	}
	return o
}

// Package audit compares the scores of a multilinear job with debiased values, on a
// sample of the rows of its splits.
package audit

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/layout"
	"shaver/internal/value/compare"
	"shaver/internal/value/tally"
)

// Run audits the finished job of c, whose outcome is given and whose scores are at c.Out.
// It writes the audit into the scores file and into outcome.Scores, and adds the audit's
// core-seconds to outcome.CPU. Run does nothing if c asks for no audit or the scores
// already have one. A job that was interrupted before its audit is therefore audited when
// it runs again.
//
// The audit runs four jobs on b, because each of two estimators scores each of two
// samples. c's callbacks are called for each of these jobs.
func Run(ctx context.Context, b *bus.Bus, c coordinator.Config, outcome *coordinator.Outcome) error {
	s := &outcome.Scores
	if c.Audit == 0 || s.Audit != nil {
		return nil
	}
	requests := c.AuditRequests(float64(s.Rows) / float64(s.DatasetRows))
	var all results
	for half := range 2 {
		for by := range prepare.AuditEstimators {
			sub := c
			sub.Request = requests[by][half]
			sub.Place, sub.Out, sub.Sink = c.Where(), "", all[by][half].take
			c.Log.Info("audit", zap.String("estimator", sub.Options.Estimator), zap.String("endpoints", sub.Options.Endpoints), zap.Int("sample", half+1))
			o, err := coordinator.Run(ctx, b, sub)
			if err != nil {
				return fmt.Errorf("audit of %s: %w", c.Out, err)
			}
			outcome.CPU += o.CPU
		}
	}
	s.Audit = newAudit(&all, &s.Shape)
	s.Audit.Reference = requests[prepare.ByFlips][0].Options.Estimator
	file, err := scores.Read(c.Out)
	if err != nil {
		return err
	}
	file.Audit = s.Audit
	return scores.Write(c.Out, file)
}

// results are the values from each estimator on each of the two samples.
type results [prepare.AuditEstimators][2]result

// result holds the values of one job, for the features that occur in its rows.
type result struct {
	rows     int64
	features []int32   // ascending
	phi      []float64 // of the entries of these features
}

// take stores the values of a job in r. It is a coordinator.Config.Sink.
func (r *result) take(f *scores.File, values func(feature int, into tally.Values)) error {
	r.rows = f.Rows
	for feature, count := range f.Count {
		if count == 0 {
			continue
		}
		r.features = append(r.features, int32(feature))
		from, to := f.Shape.Row(feature)
		r.phi = append(r.phi, make([]float64, to-from)...)
		values(feature, tally.Values{Phi: r.phi[len(r.phi)-(to-from):]})
	}
	return nil
}

// over returns the values of the entries of the given features. The features are ascending
// and include all features of r. The entries of a feature that r lacks have the value 0.
func (r *result) over(features []int32, shape *layout.Shape) []float64 {
	var phi []float64
	at, rest := 0, r.phi
	for _, feature := range features {
		from, to := shape.Row(int(feature))
		if at < len(r.features) && r.features[at] == feature {
			phi, rest = append(phi, rest[:to-from]...), rest[to-from:]
			at++
		} else {
			phi = append(phi, make([]float64, to-from)...)
		}
	}
	return phi
}

// newAudit compares the results.
func newAudit(all *results, shape *layout.Shape) *scores.Audit {
	a := &scores.Audit{}
	var features []int32
	for half := range 2 {
		a.Rows += all[prepare.ByFlips][half].rows
		for by := range prepare.AuditEstimators {
			features = append(features, all[by][half].features...)
		}
	}
	slices.Sort(features)
	features = slices.Compact(features)
	var phi [prepare.AuditEstimators][2][]float64
	for by := range prepare.AuditEstimators {
		for half := range 2 {
			phi[by][half] = all[by][half].over(features, shape)
		}
	}
	references := phi[prepare.ByFlips]
	reference, requested := mean(references), mean(phi[prepare.AsRequested])
	a.Entries = len(reference)
	a.RelativeRMS = scores.Figure(compare.RelativeRMS(requested, reference))
	a.RelativeBias, a.BiasNoise = bias(phi[prepare.AsRequested], references)
	a.Spearman = scores.Figure(compare.Spearman(requested, reference))
	a.ReferenceSpearman = scores.Figure(compare.Spearman(references[0], references[1]))
	for _, sparsity := range scores.AuditSparsities {
		a.Overlaps = append(a.Overlaps, scores.Overlap{Sparsity: sparsity, Overlap: compare.Overlap(requested, reference, len(requested), sparsity),
			Reference: compare.Overlap(references[0], references[1], len(requested), sparsity)})
	}
	return a
}

// bias returns the relative bias of the values and its noise, or nil where it is not
// defined.
func bias(values, reference [2][]float64) (relative, noise *float64) {
	r, n := compare.RelativeBias(values, reference)
	return scores.Figure(r), scores.Figure(n)
}

// mean returns the mean of the values of two samples of equal size.
func mean(halves [2][]float64) []float64 {
	values := slices.Clone(halves[0])
	for i, v := range halves[1] {
		values[i] = (values[i] + v) / 2
	}
	return values
}

package coordinator

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"shaver/internal/bus"
	"shaver/internal/compare"
	"shaver/internal/estimator"
	"shaver/internal/scores"
	"shaver/internal/tally"
)

// found is what a job of the audit found: of the features that occur in its rows.
type found struct {
	rows     int64
	features []int32
	phi      []float64 // [len(features), d]
}

// collect keeps the values of the job in f, in place of a scores file.
func (f *found) collect(r *run) {
	dim := r.arch.Dim
	f.rows = r.sums.Rows()
	for feature, count := range r.sums.State().Count {
		if count == 0 {
			continue
		}
		f.features = append(f.features, int32(feature))
		f.phi = append(f.phi, make([]float64, dim)...)
		r.sums.Values(feature, r.estimate(), tally.Values{Phi: f.phi[len(f.phi)-dim:]})
	}
}

// over returns the values of the features, ascending, of which f has some; 0 for
// the others.
func (f *found) over(features []int32, dim int) []float64 {
	phi := make([]float64, len(features)*dim)
	at := 0
	for i, feature := range features {
		if at < len(f.features) && f.features[at] == feature {
			copy(phi[i*dim:], f.phi[at*dim:(at+1)*dim])
			at++
		}
	}
	return phi
}

// The estimators of an audit.
const (
	byWalks = iota
	asAsked
	otherwise // with the other end points
	estimators
)

// audited runs the audit of a job whose scores are at c.Out, and writes it into
// them. Two samples of the splits' rows, of half the portion each, are scored by each
// estimator, as jobs of their own.
func audited(ctx context.Context, b *bus.Bus, c *Config, outcome *Outcome) error {
	s := &outcome.Scores
	var jobs [estimators][2]found
	for half := range 2 {
		for estimator := range estimators {
			sub := c.auditJob(estimator, half, float64(s.Rows)/float64(s.DatasetRows))
			sub.collect = jobs[estimator][half].collect
			c.Log.Info("audit", zap.String("estimator", sub.Options.Estimator), zap.String("endpoints", sub.Options.Endpoints), zap.Int("sample", half+1))
			o, err := one(ctx, b, sub)
			if err != nil {
				return fmt.Errorf("audit of %s: %w", c.Out, err)
			}
			outcome.CPU += o.CPU
		}
	}
	s.Audit = newAudit(&jobs, s.Dim, c.Options.Endpoints == estimator.Balanced)
	if s.Audit.Differ() {
		c.Log.Warn("plain and balanced end points differ: the values of plain are not to be quoted", zap.String("difference", fmt.Sprintf("%.0f%%", 100**s.Audit.Endpoints)))
	}
	file, err := scores.Read(c.Out)
	if err != nil {
		return err
	}
	file.Audit = s.Audit
	return scores.Write(c.Out, file)
}

// auditJob returns a job of the audit of c, which scored a portion of the rows of its
// splits.
func (c *Config) auditJob(estimator, half int, scored float64) Config {
	sub := *c
	sub.Options = auditOptions(c.Options, estimator)
	sub.Seed += uint64(1 + half)
	sub.Sample, sub.MaxRows, sub.Until, sub.Audit, sub.Out = c.Audit*scored/2, 0, nil, 0, ""
	return sub
}

func auditOptions(o estimator.Options, by int) estimator.Options {
	switch {
	case by == byWalks:
		return estimator.Options{Estimator: estimator.Permutation, Passes: 1}
	case by == asAsked:
	case o.Endpoints == estimator.Plain:
		o.Endpoints, o.Draws = estimator.Balanced, max(4, o.Draws)
	default:
		o.Endpoints = estimator.Plain
	}
	return o
}

func newAudit(jobs *[estimators][2]found, dim int, balancedAsked bool) *scores.Audit {
	a := &scores.Audit{}
	var features []int32
	for half := range 2 {
		a.Rows += jobs[byWalks][half].rows
		for estimator := range estimators {
			features = append(features, jobs[estimator][half].features...)
		}
	}
	slices.Sort(features)
	features = slices.Compact(features)
	a.Entries = len(features) * dim
	var phi [estimators][2][]float64
	for estimator := range estimators {
		for half := range 2 {
			phi[estimator][half] = jobs[estimator][half].over(features, dim)
		}
	}
	walks, asked := mean(phi[byWalks]), mean(phi[asAsked])
	plain, balanced := phi[asAsked], phi[otherwise]
	if balancedAsked {
		plain, balanced = balanced, plain
	}
	a.RelativeRMS = scores.Figure(compare.RelativeRMS(asked, walks))
	a.RelativeBias, a.BiasNoise = bias(phi[asAsked], phi[byWalks])
	a.Spearman = scores.Figure(compare.Spearman(asked, walks))
	a.WalksSpearman = scores.Figure(compare.Spearman(phi[byWalks][0], phi[byWalks][1]))
	a.Endpoints, a.EndpointsNoise = bias(plain, balanced)
	for _, sparsity := range scores.AuditSparsities {
		a.Overlaps = append(a.Overlaps, scores.Overlap{Sparsity: sparsity, Overlap: compare.Overlap(asked, walks, sparsity),
			Walks: compare.Overlap(phi[byWalks][0], phi[byWalks][1], sparsity)})
	}
	return a
}

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

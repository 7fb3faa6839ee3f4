package night

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"shaver/internal/app/steps"
	"shaver/internal/base/atomicfile"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/data/dataset"
	"shaver/internal/num/loss"
	"shaver/internal/prune/nightly"
)

// Choose prunes the model by the published mask and compares by how much the loss rises, on the validation rows,
// with how much it rose for the published night. Both rises are of the same rows, so their difference is far more
// certain than each. Over nights that keep the mask the differences and their variances add up. The mask stays
// if the upper end of the 95% interval of the sum is at most the setting reuse, and the check passes.
func (s *running) Choose(ctx context.Context, n *nightly.Night) (*nightly.Chosen, error) {
	if n.PreviousModel == "" {
		return &nightly.Chosen{Why: "Scored, because the settings changed or the last checkpoint is not there."}, nil
	}
	if _, err := s.checkDays(n); err != nil {
		return nil, err
	}
	why, err := s.newFeatures(n)
	if err != nil || why != "" {
		return &nightly.Chosen{Why: why}, err
	}
	folder := filepath.Join(n.Folder, ".candidate")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	made := atomicfile.Track(folder)
	defer made.Remove()
	candidate := *n
	candidate.Kept = true
	if _, err := s.prune(ctx, &candidate, folder); err != nil {
		return nil, err
	}
	pruned := filepath.Join(folder, nightly.PrunedFile)
	var all []*evaluate.Predictions
	for _, path := range []string{n.PreviousModel, n.Previous, n.Model, pruned} {
		_, found, err := steps.Measure(ctx, path, n.Days, dataset.Val)
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	rise, metric := evaluate.CompareRises(all[0], all[1], all[2], all[3]), "LogLoss"
	if all[0].Loss == loss.Squared {
		metric = "RMSE"
	}
	if math.IsNaN(rise.SE) {
		return &nightly.Chosen{Why: "Scored, because the split " + dataset.Val + " has too few rows to compare with the last night."}, nil
	}
	c := &nightly.Chosen{Nights: 1, SE: rise.SE}
	if p := n.PreviousChosen; p != nil && p.Kept && p.Rise != nil {
		c.Nights += p.Nights
		rise.Value += p.Rise.Value
		c.SE = math.Hypot(rise.SE, p.SE)
	}
	low, high := rise.Value-z*c.SE, rise.Value+z*c.SE
	c.Rise = &nightly.Change{Value: rise.Value, Low: &low, High: &high, Bound: s.config.Reuse}
	more := "more"
	if rise.Value < 0 {
		more = "less"
	}
	figures := fmt.Sprintf("%s rises by %.2g %s than when the table was scored last (95%% interval of the difference %.2g to %.2g, at most %g is allowed)", metric, math.Abs(rise.Value), more, low, high, *s.config.Reuse)
	failure := ""
	if high <= *s.config.Reuse {
		if failure, err = s.failure(ctx, n, pruned); err != nil {
			return nil, err
		}
	}
	c.Kept, c.Why = decide(figures, low, high, *s.config.Reuse, failure)
	return c, nil
}

// decide reports whether the last choice of entries stays, and why. The 95% interval of the rise ends at low and high, and
// figures describe it. failure says why the check fails, or is "".
func decide(figures string, low, high, bound float64, failure string) (kept bool, why string) {
	switch {
	case high > bound && low <= bound:
		return false, "Scored, because with the last choice of entries " + figures + ". The rows do not decide on which side of the bound the rise is."
	case high > bound:
		return false, "Scored, because with the last choice of entries " + figures + "."
	case failure != "":
		return false, "Scored, because with the last choice of entries the check fails: " + failure + "."
	}
	return true, "The last choice of entries is kept: " + figures + "."
}

// z is the half-width of a 95% interval in standard errors.
const z = 1.959964

// newFeatures says why the model cannot be pruned by the published mask, or returns "".
func (s *running) newFeatures(n *nightly.Night) (string, error) {
	now, err := checkpoint.Read(n.Model)
	if err != nil {
		return "", err
	}
	before, err := checkpoint.Read(n.Previous)
	if err != nil {
		return "", err
	}
	if now.Architecture.Features() != before.Architecture.Features() {
		return fmt.Sprintf("Scored, because the model has %d features and the last one %d.", now.Architecture.Features(), before.Architecture.Features()), nil
	}
	return "", nil
}

// failure says why the file pruned fails the check, or returns "".
func (s *running) failure(ctx context.Context, n *nightly.Night, pruned string) (string, error) {
	found, err := s.compare(ctx, n, pruned, "")
	if err != nil {
		return "", err
	}
	return found.Failure(), nil
}

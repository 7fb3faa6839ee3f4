package evaluate

import (
	"cmp"
	"math"
	"slices"

	"shaver/internal/num/loss"
)

// Ranking holds predictions and the ranks of their rows by logit. It takes 12 bytes per row
// in addition to the predictions, which must not change. With the squared loss, only the order
// is known, and the AUC is NaN.
type Ranking struct {
	*Predictions
	auc   float64
	order []int32 // rows by ascending logit
	// The placement of a positive row is the portion of the negative rows with a lower logit.
	// The placement of a negative row is the portion of the positive rows with a higher logit.
	// Ties count half. For either label, the mean placement of its rows is the AUC.
	placements []float64
}

// Rank ranks the rows of p.
func Rank(p *Predictions) *Ranking {
	order := make([]int32, len(p.Logits))
	all := 0.0 // positive rows
	for i, label := range p.Labels {
		order[i] = int32(i)
		all += float64(label)
	}
	slices.SortFunc(order, func(i, j int32) int { return cmp.Or(cmp.Compare(p.Logits[i], p.Logits[j]), cmp.Compare(i, j)) })
	if p.Loss == loss.Squared {
		return &Ranking{Predictions: p, order: order, auc: math.NaN()}
	}
	r := &Ranking{Predictions: p, order: order, placements: make([]float64, len(order))}
	var below, wins, positives float64 // negatives so far, pairs won, positives so far
	for tied := range r.ties() {
		equal := 0.0 // positive rows with this logit
		for _, i := range tied {
			equal += float64(p.Labels[i])
		}
		negatives := float64(len(tied)) - equal
		under, over := below+negatives/2, all-positives-equal/2
		for _, i := range tied {
			if p.Labels[i] == 1 {
				r.placements[i] = under / (float64(len(order)) - all)
			} else {
				r.placements[i] = over / all
			}
		}
		wins += equal * under
		below += negatives
		positives += equal
	}
	r.auc = wins / (positives * below)
	return r
}

// ties yields the rows of each logit, in ascending order of the logits.
func (r *Ranking) ties() func(yield func(rows []int32) bool) {
	return func(yield func(rows []int32) bool) {
		for from := 0; from < len(r.order); {
			to := from + 1
			for to < len(r.order) && r.Logits[r.order[to]] == r.Logits[r.order[from]] {
				to++
			}
			if !yield(r.order[from:to]) {
				return
			}
			from = to
		}
	}
}

// AUC returns AUC of the predictions.
func (r *Ranking) AUC() float64 { return r.auc }

// CurveBin is a bin of a calibration curve.
type CurveBin struct {
	Rows      int64
	Predicted float64 // mean of the predicted probabilities, or with the squared loss of the outputs
	Observed  float64 // mean of the labels, which is the portion of the rows with label 1 if they are 0 or 1
}

// Curve returns the calibration curve of the predictions, calibrated by c. It divides the rows
// by ascending logits into at most the given number of bins. The bins have equally many
// rows, except that rows with equal logits are in the same bin. The bins are the same for
// every c.
func (r *Ranking) Curve(bins int, c loss.Calibration) []CurveBin {
	var curve []CurveBin
	var bin CurveBin
	done, edge := 0, 1 // rows so far, and the next multiple of n/bins at which a bin ends
	for tied := range r.ties() {
		for _, i := range tied {
			predicted := c.Apply(r.Logits[i])
			if r.Loss != loss.Squared {
				predicted = 1 / (1 + math.Exp(-predicted))
			}
			bin.Predicted += predicted
			bin.Observed += float64(r.Labels[i])
		}
		bin.Rows += int64(len(tied))
		done += len(tied)
		if done*bins >= edge*len(r.order) {
			bin.Predicted /= float64(bin.Rows)
			bin.Observed /= float64(bin.Rows)
			curve, bin = append(curve, bin), CurveBin{}
			edge = done*bins/len(r.order) + 1
		}
	}
	return curve
}

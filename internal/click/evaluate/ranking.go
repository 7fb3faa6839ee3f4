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
	groups     *Within // nil without groups
}

// Rank ranks the rows of p.
func Rank(p *Predictions) *Ranking {
	order := make([]int32, len(p.Logits))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int { return cmp.Or(cmp.Compare(p.Logits[i], p.Logits[j]), cmp.Compare(i, j)) })
	r := &Ranking{Predictions: p, order: order, auc: math.NaN()}
	if p.Loss == loss.Squared {
		return r
	}
	r.placements = make([]float64, len(order))
	r.auc = r.area(r.placements)
	if p.Groups != nil {
		r.groups = r.within()
	}
	return r
}

// area returns the AUC of the rows of r.order, and sets their placements, unless they are nil.
func (r *Ranking) area(placements []float64) float64 {
	var all, negative float64 // how often positive and negative rows count
	for _, i := range r.order {
		if r.Labels[i] == 1 {
			all += r.times(int(i))
		} else {
			negative += r.times(int(i))
		}
	}
	var below, wins, positives float64 // negatives so far, pairs won, positives so far
	for tied := range r.ties() {
		equal, negatives := 0.0, 0.0 // rows with this logit
		for _, i := range tied {
			if r.Labels[i] == 1 {
				equal += r.times(int(i))
			} else {
				negatives += r.times(int(i))
			}
		}
		under, over := below+negatives/2, all-positives-equal/2
		for _, i := range tied {
			switch {
			case placements == nil:
			case r.Labels[i] == 1:
				placements[i] = under / negative
			default:
				placements[i] = over / all
			}
		}
		wins += float64(equal * under)
		below += negatives
		positives += equal
	}
	return wins / float64(positives*below)
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

// Within returns what the groups say, or nil without groups.
func (r *Ranking) Within() *Within { return r.groups }

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
	weight := 0.0      // of the rows of bin
	done, edge := 0, 1 // rows so far, and the next multiple of n/bins at which a bin ends
	for tied := range r.ties() {
		for _, i := range tied {
			predicted := c.Apply(r.Logits[i])
			if r.Loss != loss.Squared {
				predicted = 1 / (1 + math.Exp(-predicted))
			}
			times := r.times(int(i))
			bin.Predicted += float64(times * predicted)
			bin.Observed += float64(times * float64(r.Labels[i]))
			weight += times
		}
		bin.Rows += int64(len(tied))
		done += len(tied)
		if done*bins >= edge*len(r.order) {
			bin.Predicted /= weight
			bin.Observed /= weight
			curve, bin, weight = append(curve, bin), CurveBin{}, 0
			edge = done*bins/len(r.order) + 1
		}
	}
	return curve
}

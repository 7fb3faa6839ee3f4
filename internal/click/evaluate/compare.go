package evaluate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"shaver/internal/num/loss"
)

// Difference is an estimate of a difference b - a between two models on the population
// that the rows come from.
type Difference struct {
	Value     float64 // difference on the rows
	SE        float64 // standard error of Value
	Low, High float64 // 95% confidence interval
}

// Comparison holds the differences between two models on the same rows.
type Comparison struct {
	AUC  Difference // with the squared loss, all numbers are NaN
	Loss Difference // of Predictions.MeanLoss
	// With groups, the differences of the fields of Within; otherwise zero.
	GAUC, NDCG, Recall Difference
}

// Compare returns the differences b - a. The two models must have predicted the same rows
// in the same order. Otherwise Compare panics.
//
// The differences are paired, so their standard errors are far smaller than those of the
// metrics themselves if the models are alike. The variance of the difference of the AUCs is
// that of DeLong, DeLong and Clarke-Pearson (Biometrics, 1988), computed from ranks as Sun
// and Xu do (IEEE Signal Processing Letters, 2014). It treats the rows of each label as a
// random sample and counts ties half. The interval uses Student's t with the degrees of
// freedom of Welch and Satterthwaite, because there may be few rows of a label. For LogLoss
// the standard error and Student's t come from the differences of the rows' losses. For RMSE,
// the loss of a row counts as loss / (2 RMSE), which is its effect on the root (delta method).
//
// If all labels are equal, the AUC has no difference, and all its numbers are NaN. If a label
// has only one row, the variance of its rows is unknown. Then the difference has a value,
// but its other numbers are NaN. The same holds for LogLoss if there is only one row. If
// both models rank the rows alike, the standard error for AUC is 0, and the interval has the
// width 0.
//
// If rows have weights or groups, the same placements and losses give the variance by linearisation: that of the sums, over the rows of each
// group, of how much a row moves the metric. A row without a group is a group of its own. The groups are a random sample, and the interval uses
// Student's t with their number less one (for AUC as Obuchowski does, Biometrics, 1997).
func Compare(a, b *Predictions) Comparison { return Rank(b).Minus(Rank(a)) }

// Minus returns Compare(a, r). It does not sort the rows again.
func (r *Ranking) Minus(a *Ranking) Comparison {
	checkPaired(a.Predictions, r.Predictions)
	losses := CompareLoss(a.Predictions, r.Predictions, loss.Uncalibrated, loss.Uncalibrated)
	if r.Loss == loss.Squared {
		nan := math.NaN()
		return Comparison{AUC: Difference{nan, nan, nan, nan}, Loss: losses}
	}
	if !r.independent() {
		return r.minusClusters(a, losses)
	}
	var of [2]moments // by label: differences of the rows' placements
	for i, placement := range r.placements {
		of[int(r.Labels[i])].add(placement - a.placements[i])
	}
	negatives, positives := of[0].variance(), of[1].variance()
	variance := negatives + positives
	degrees := float64(variance*variance) / (float64(negatives*negatives)/(of[0].n-1) + float64(positives*positives)/(of[1].n-1))
	return Comparison{
		AUC:  difference(r.auc-a.auc, variance, degrees),
		Loss: losses,
	}
}

// minusClusters is Minus for rows with weights or groups.
func (r *Ranking) minusClusters(a *Ranking, losses Difference) Comparison {
	positives := r.positives()
	weight := [2]float64{r.total() - positives, positives} // by label
	variance, degrees := r.clustered(func(i int) float64 {
		return r.times(i) * (r.placements[i] - a.placements[i] - (r.auc - a.auc)) / weight[int(r.Labels[i])]
	})
	c := Comparison{AUC: difference(r.auc-a.auc, variance, degrees), Loss: losses}
	if r.groups != nil {
		c.GAUC, c.NDCG, c.Recall = r.groups.minus(a.groups)
	}
	return c
}

// CompareLoss returns the difference of the MeanLoss of b, calibrated by forB, and that of a,
// calibrated by forA. Compare documents the standard error.
func CompareLoss(a, b *Predictions, forA, forB loss.Calibration) Difference {
	checkPaired(a, b)
	lossA, lossB := a.MeanLoss(forA), b.MeanLoss(forB)
	weightA, weightB := 1.0, 1.0
	if a.Loss == loss.Squared {
		weightA, weightB = rootWeight(lossA), rootWeight(lossB)
	}
	return a.differenceOfMeans(lossB-lossA, func(i int) float64 {
		label := a.Labels[i]
		return float64(weightB*b.Loss.Of(forB.Apply(b.Logits[i]), label)) - float64(weightA*a.Loss.Of(forA.Apply(a.Logits[i]), label))
	})
}

// differenceOfMeans returns the difference with the given value, whose error is that of the mean of of over the rows.
func (p *Predictions) differenceOfMeans(value float64, of func(i int) float64) Difference {
	var rows moments
	for i := range p.Labels {
		rows.addWeighted(of(i), p.times(i))
	}
	if p.independent() {
		return difference(value, rows.variance(), rows.n-1)
	}
	variance, degrees := p.clustered(func(i int) float64 { return p.times(i) * (of(i) - rows.mean) / rows.n })
	return difference(value, variance, degrees)
}

// CompareRises returns the rise of the loss from b to prunedB minus that from a to prunedA, where the loss is
// that of Compare. All predictions are of the same rows. The standard error comes from the rows' differences.
func CompareRises(a, prunedA, b, prunedB *Predictions) Difference {
	all := [4]*Predictions{prunedB, b, prunedA, a}
	signs, means, weights, value := [4]float64{1, -1, -1, 1}, [4]float64{}, [4]float64{}, 0.0
	for k, p := range all {
		checkPaired(a, p)
		means[k], weights[k] = p.MeanLoss(loss.Uncalibrated), 1
		if p.Loss == loss.Squared {
			weights[k] = rootWeight(means[k])
		}
		value += float64(signs[k] * means[k])
	}
	return a.differenceOfMeans(value, func(i int) float64 {
		row := 0.0
		for k, p := range all {
			row += float64(float64(signs[k]*weights[k]) * float64(p.Loss.Of(p.Logits[i], a.Labels[i])))
		}
		return row
	})
}

// rootWeight returns the derivative of the root of a mean with respect to the mean. It is 0
// if the root is 0, because all losses are then 0.
func rootWeight(root float64) float64 {
	if root == 0 {
		return 0
	}
	return 1 / (2 * root)
}

func checkPaired(a, b *Predictions) {
	if !slices.Equal(a.Labels, b.Labels) || !slices.Equal(a.Weights, b.Weights) || !slices.Equal(a.Groups, b.Groups) || a.Loss != b.Loss {
		panic("evaluate: predictions of different rows or with different losses are compared")
	}
}

// difference returns a difference with its interval. variance is the variance of value, and
// degrees are the degrees of freedom of Student's t.
func difference(value, variance, degrees float64) Difference {
	if variance == 0 {
		return Difference{value, 0, value, value}
	}
	se := math.Sqrt(variance)
	half := math.NaN()
	if !math.IsNaN(se) {
		// The quantile of more degrees equals the normal quantile to six digits.
		half = se * distuv.StudentsT{Sigma: 1, Nu: min(degrees, 1e6)}.Quantile(0.975)
	}
	return Difference{value, se, value - half, value + half}
}

// moments accumulates the mean and the variance of numbers (Welford, 1962).
type moments struct{ n, mean, squares float64 }

func (m *moments) add(x float64) { m.addWeighted(x, 1) }

// addWeighted adds a number that counts the given number of times (West, 1979).
func (m *moments) addWeighted(x, times float64) {
	m.n += times
	off := x - m.mean
	m.mean += float64(times*off) / m.n
	m.squares += float64(float64(times*off) * (x - m.mean))
}

// variance returns the variance of the mean. It is NaN for fewer than two numbers.
func (m *moments) variance() float64 {
	if m.n < 2 {
		return math.NaN()
	}
	return m.squares / (m.n - 1) / m.n
}

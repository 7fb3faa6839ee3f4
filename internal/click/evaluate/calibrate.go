package evaluate

import (
	"math"

	"shaver/internal/num/loss"
)

// LeastScale is the smallest scale that Calibrate returns. A model gets this scale if its
// logits do not predict the labels, or predict their opposite. After calibration, all
// rows have nearly the same logit.
const LeastScale = 1.0 / 1024

// Calibrate fits a calibration to predictions by maximum likelihood. The mean loss is
// convex in scale and offset, and Newton steps with halving find its minimum.
//
// Calibrate smooths the labels as Platt (1999) does, as if there were one more row of
// each label, which has the mean weight. This smoothing keeps the minimum finite even if the logits separate the
// labels perfectly. It moves the minimum by about one part in the number of rows.
//
// With the squared loss, Calibrate fits by least squares, without smoothing.
func Calibrate(p *Predictions) loss.Calibration { return CalibrateWithin(p, LeastScale, math.Inf(1)) }

// CalibrateWithin is like Calibrate, with a scale in [least, most]. least is above 0.
func CalibrateWithin(p *Predictions, least, most float64) loss.Calibration {
	if p.Loss == loss.Squared {
		return leastSquares(p, least, most)
	}
	f := fit{p: p, times: float64(len(p.Labels)) / p.total()}
	positives := p.positives() * f.times
	f.target = [2]float64{1 / (float64(len(p.Labels)) - positives + 2), (positives + 1) / (positives + 2)}
	c := f.minimum(start(p.Logits), true)
	if bounded := max(least, min(most, c.Scale)); bounded != c.Scale {
		c = f.minimum(loss.Calibration{Scale: bounded, Offset: c.Offset}, false)
	}
	return c
}

// Spread returns the standard deviation of the logits. It is 0 without rows.
func (p *Predictions) Spread() float64 {
	var logits moments
	for _, z := range p.Logits {
		logits.add(z)
	}
	return math.Sqrt(logits.squares / max(1, logits.n))
}

// leastSquares returns the calibration with the least mean squared loss, and a scale in
// [least, most].
func leastSquares(p *Predictions, least, most float64) loss.Calibration {
	var logits, labels moments
	products := 0.0 // sum of the products of the distances from the means
	for i, z := range p.Logits {
		off, times := z-logits.mean, p.times(i)
		logits.addWeighted(z, times)
		labels.addWeighted(float64(p.Labels[i]), times)
		products += float64(float64(times*off) * (float64(p.Labels[i]) - labels.mean))
	}
	scale := least
	if logits.squares > 0 {
		scale = max(least, min(most, products/logits.squares))
	}
	return loss.Calibration{Scale: scale, Offset: labels.mean - float64(scale*logits.mean)}
}

// start returns the starting point of the search, normally the unchanged logits. If some
// logits are so far from 0 that the loss has no curvature there, Newton steps would fail.
// In this case the search starts with logits shifted to mean 0 and scaled to a standard
// deviation of at most 1.
func start(logits []float64) loss.Calibration {
	const far = 30
	mean, square := 0.0, 0.0
	for _, z := range logits {
		mean += z / float64(len(logits))
	}
	saturated := false
	for _, z := range logits {
		square += float64((z-mean)*(z-mean)) / float64(len(logits))
		saturated = saturated || math.Abs(z) > far
	}
	if !saturated {
		return loss.Calibration{Scale: 1}
	}
	scale := 1 / max(math.Sqrt(square), 1)
	return loss.Calibration{Scale: scale, Offset: -float64(scale * mean)}
}

// fit is the fit of a calibration to predictions. target holds the smoothed values of
// labels 0 and 1.
type fit struct {
	p      *Predictions
	target [2]float64
	times  float64 // factor by which the weights have the mean 1
}

// loss returns the sum over rows of the cross-entropy with the targets.
func (f *fit) loss(c loss.Calibration) float64 {
	sum := 0.0
	for i, z := range f.p.Logits {
		v := c.Apply(z)
		sum += float64(f.times * f.p.times(i) * (max(v, 0) + math.Log1p(math.Exp(-math.Abs(v))) - float64(f.target[int(f.p.Labels[i])]*v)))
	}
	return sum
}

// minimum returns the calibration with the least loss, starting at c. If scale is false,
// it changes only the offset.
func (f *fit) minimum(c loss.Calibration, scale bool) loss.Calibration {
	const steps, enough = 100, 1e-10 // enough: relative decrease of the loss that is worth another step
	total := f.loss(c)
	for range steps {
		var da, db, aa, ab, bb float64 // derivatives with respect to scale (a) and offset (b)
		for i, z := range f.p.Logits {
			s, times := 1/(1+math.Exp(-c.Apply(z))), f.times*f.p.times(i)
			d, w := float64(times*(s-f.target[int(f.p.Labels[i])])), float64(times*s*(1-s))
			da, db = da+float64(d*z), db+d
			aa, ab, bb = aa+float64(float64(w*z)*z), ab+float64(w*z), bb+w
		}
		// A negligible ridge keeps the system solvable if all logits are equal or the
		// labels are already separated.
		aa, bb = float64(aa*(1+1e-12))+1e-12, float64(bb*(1+1e-12))+1e-12
		stepA, stepB := 0.0, db/bb
		if determinant := float64(aa*bb) - float64(ab*ab); scale && determinant > 0 {
			stepA = (float64(bb*da) - float64(ab*db)) / determinant
			stepB = (float64(aa*db) - float64(ab*da)) / determinant
		}
		promised := float64(stepA*da) + float64(stepB*db)
		if !(promised > enough*(1+total)) {
			return c
		}
		size := 1.0
		for ; size > 1e-12; size /= 2 {
			next := loss.Calibration{Scale: c.Scale - float64(size*stepA), Offset: c.Offset - float64(size*stepB)}
			if l := f.loss(next); l <= total-1e-4*size*promised {
				c, total = next, l
				break
			}
		}
		if size <= 1e-12 {
			return c
		}
	}
	return c
}

package evaluate

import "math"

// Calibration maps a logit z to Scale*z + Offset. Scale is above 0, so that the
// order of rows, and with it AUC, stays.
type Calibration struct {
	Scale  float64 `json:"scale"`
	Offset float64 `json:"offset"`
}

// Apply returns the calibrated logit.
func (c Calibration) Apply(logit float64) float64 { return float64(c.Scale*logit) + c.Offset }

// leastScale is what a model gets whose logits say nothing, or the opposite, of the
// labels: nearly the same logit for all rows.
const leastScale = 1.0 / 1024

// Calibrate fits a calibration to predictions, by maximum likelihood: the mean loss
// is convex in both numbers, and Newton's steps with halving find its minimum.
// Labels weigh as if there were one row more of each kind (Platt, 1999), which
// keeps the minimum finite where labels can be told apart without error, and moves
// it by about one part in as many as there are rows.
func Calibrate(p *Predictions) Calibration {
	positives := 0.0
	for _, label := range p.Labels {
		positives += float64(label)
	}
	f := fit{p: p, target: [2]float64{1 / (float64(len(p.Labels)) - positives + 2), (positives + 1) / (positives + 2)}}
	c := f.minimum(start(p.Logits), true)
	if !(c.Scale >= leastScale) {
		c = f.minimum(Calibration{Scale: leastScale, Offset: c.Offset}, false)
	}
	return c
}

// start returns where to begin: at the logits as they are, unless some are so far from
// 0 that the loss has no curvature there for Newton's steps to go by; then at logits of
// mean 0 and a standard deviation of 1 at most.
func start(logits []float64) Calibration {
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
		return Calibration{Scale: 1}
	}
	scale := 1 / max(math.Sqrt(square), 1)
	return Calibration{scale, -float64(scale * mean)}
}

// fit is the calibration of predictions, whose labels 0 and 1 count as target.
type fit struct {
	p      *Predictions
	target [2]float64
}

// loss returns the sum over rows of the cross-entropy to the targets.
func (f *fit) loss(c Calibration) float64 {
	sum := 0.0
	for i, z := range f.p.Logits {
		v := c.Apply(z)
		sum += max(v, 0) + math.Log1p(math.Exp(-math.Abs(v))) - float64(f.target[f.p.Labels[i]]*v)
	}
	return sum
}

// minimum returns the calibration of the least loss, starting at c; without scale
// only the offset moves.
func (f *fit) minimum(c Calibration, scale bool) Calibration {
	const steps, enough = 100, 1e-10 // of the loss that a Newton step promises, relative
	loss := f.loss(c)
	for range steps {
		var da, db, aa, ab, bb float64 // derivatives by scale and offset
		for i, z := range f.p.Logits {
			s := 1 / (1 + math.Exp(-c.Apply(z)))
			d, w := s-f.target[f.p.Labels[i]], float64(s*(1-s))
			da, db = da+float64(d*z), db+d
			aa, ab, bb = aa+float64(float64(w*z)*z), ab+float64(w*z), bb+w
		}
		// A ridge that no data notice keeps the system solvable when all logits are
		// the same, or all rows are told apart already.
		aa, bb = float64(aa*(1+1e-12))+1e-12, float64(bb*(1+1e-12))+1e-12
		stepA, stepB := 0.0, db/bb
		if determinant := float64(aa*bb) - float64(ab*ab); scale && determinant > 0 {
			stepA = (float64(bb*da) - float64(ab*db)) / determinant
			stepB = (float64(aa*db) - float64(ab*da)) / determinant
		}
		promised := float64(stepA*da) + float64(stepB*db)
		if !(promised > enough*(1+loss)) {
			return c
		}
		size := 1.0
		for ; size > 1e-12; size /= 2 {
			next := Calibration{c.Scale - float64(size*stepA), c.Offset - float64(size*stepB)}
			if l := f.loss(next); l <= loss-1e-4*size*promised {
				c, loss = next, l
				break
			}
		}
		if size <= 1e-12 {
			return c
		}
	}
	return c
}

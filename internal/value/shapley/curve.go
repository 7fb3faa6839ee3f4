package shapley

import (
	"math"

	"shaver/internal/num/loss"
	"shaver/internal/value/tally"
)

// curve is the loss l of a row as a function of its logit, in LossUnits. It computes
// differences from l(f), where f is one fixed logit. Up to |v| = radius, l(f+v) - l(f) =
// a[0]*v + a[1]*v^2 + ... + a[5]*v^6. For larger moves curve uses softplus. The radius of the
// logistic loss is seriesRadius, and most players move the logit by less. The series of the
// squared loss has two terms and is exact, so its radius is infinite.
type curve struct {
	a        [6]float64 // coefficients of the series
	radius   float64
	logit    float64 // f
	softplus float64 // softplus(f), in LossUnits
	label    float64
}

// seriesRadius is the largest |v| for which the series are used. Up to there, the terms that
// the series omit are smaller than a thirtieth of a LossUnit.
const seriesRadius = 1.0 / 16

const unitsPerNat = 1 / tally.LossUnit

func newCurve(kind loss.Kind, logit float64, label float32) curve {
	if kind == loss.Squared {
		return curve{a: [6]float64{2 * (logit - float64(label)) * unitsPerNat, unitsPerNat}, radius: math.Inf(1)}
	}
	c := curve{series(logit), seriesRadius, logit, softplus(logit), float64(label)}
	c.a[0] -= c.label * unitsPerNat
	return c
}

// series returns the coefficients of v, v^2, ..., v^6 in the Taylor series of
// softplus(f+v) - softplus(f), in LossUnits. The coefficient of v^k is the k-th cumulant
// of a Bernoulli variable, divided by k!.
func series(f float64) [6]float64 {
	s := 1 / (1 + math.Exp(-f))
	p := s / (1 + math.Exp(f)) // s*(1-s)
	skew := 1 - float64(2*s)
	const unit = unitsPerNat
	return [6]float64{
		s * unit,
		p * (unit / 2),
		float64(p*skew) * (unit / 6),
		float64(p*(1-float64(6*p))) * (unit / 24),
		float64(float64(p*skew)*(1-float64(12*p))) * (unit / 120),
		float64(p*(1-float64(30*p)+float64(float64(120*p)*p))) * (unit / 720),
	}
}

// contribution returns the contribution of a player whose entry moves the logit by u. If
// the player is present, sign is 1 and the result is l(f-u) - l(f). If it is dropped, sign
// is -1 and the result is l(f) - l(f+u).
func (c *curve) contribution(u, sign float64) float64 {
	if !(math.Abs(u) <= c.radius) {
		return float64(sign*(softplus(c.logit-float64(sign*u))-c.softplus)) + float64(float64(c.label*u)*unitsPerNat)
	}
	t := u * u
	odd := c.a[0] + float64(t*(c.a[2]+float64(t*c.a[4])))
	even := c.a[1] + float64(t*(c.a[3]+float64(t*c.a[5])))
	return float64(float64(sign*t)*even) - float64(u*odd)
}

// nodes holds the value and the series of softplus at the multiples of 2*seriesRadius from
// -nodeRange to nodeRange.
var nodes = func() (table [16*nodeRange + 1]node) {
	for i := range table {
		f := float64(i)*2*seriesRadius - nodeRange
		table[i] = node{loss.Logistic.Of(f, 0) * unitsPerNat, series(f)}
	}
	return table
}()

// nodeRange is the largest |x| for which softplus uses the nodes. For a larger |x|, it calls
// loss.Logistic.
const nodeRange = 32

type node struct {
	value float64
	a     [6]float64
}

// softplus returns log(1+e^x) in LossUnits. It uses the series of the nearest node. The
// error is less than one LossUnit.
func softplus(x float64) float64 {
	if !(math.Abs(x) < nodeRange) {
		return loss.Logistic.Of(x, 0) * unitsPerNat
	}
	i := int(float64(x+nodeRange)/(2*seriesRadius) + 0.5)
	n := &nodes[i]
	v := x - (float64(float64(i)*2*seriesRadius) - nodeRange)
	t := v * v
	odd := n.a[0] + float64(t*(n.a[2]+float64(t*n.a[4])))
	even := n.a[1] + float64(t*(n.a[3]+float64(t*n.a[5])))
	return n.value + float64(v*odd) + float64(t*even)
}

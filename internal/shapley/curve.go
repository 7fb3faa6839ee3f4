package shapley

import (
	"math"

	"shaver/internal/model"
	"shaver/internal/tally"
)

// curve is the loss around a logit f, in LossUnits. Near f, where most players
// leave it, l(f+v) - l(f) = a[0]*v + a[1]*v^2 + ...; farther away it is taken from
// softplus.
type curve struct {
	a        [6]float64
	logit    float64
	softplus float64 // of the logit
	label    float64
}

// nearest is where the series end. What a series leaves out there is below a
// thirtieth of a LossUnit.
const nearest = 1.0 / 16

const unitsPerNat = 1 / tally.LossUnit

func newCurve(logit float64, label uint8) curve {
	c := curve{series(logit), logit, softplus(logit), float64(label)}
	c.a[0] -= c.label * unitsPerNat
	return c
}

// series returns the coefficients of softplus(f+v) - softplus(f) by powers of v from
// the first on, in LossUnits: the cumulants of a Bernoulli variable over factorials.
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

// contribution returns a player's when its entry moves the logit by u: present with
// sign 1, l(f-u) - l(f), or dropped with sign -1, l(f) - l(f+u).
func (c *curve) contribution(u, sign float64) float64 {
	if !(math.Abs(u) <= nearest) {
		return float64(sign*(softplus(c.logit-float64(sign*u))-c.softplus)) + float64(float64(c.label*u)*unitsPerNat)
	}
	t := u * u
	odd := c.a[0] + float64(t*(c.a[2]+float64(t*c.a[4])))
	even := c.a[1] + float64(t*(c.a[3]+float64(t*c.a[5])))
	return float64(float64(sign*t)*even) - float64(u*odd)
}

// nodes are where softplus is known: at multiples of 2*nearest, as far out as the
// loss of an exact exponential is of use.
var nodes = func() (table [16*farthest + 1]node) {
	for i := range table {
		f := float64(i)*2*nearest - farthest
		table[i] = node{model.Loss(f, 0) * unitsPerNat, series(f)}
	}
	return table
}()

const farthest = 32

type node struct {
	value float64
	a     [6]float64
}

// softplus returns log(1+e^x) in LossUnits, off by less than one, from the nearest
// node.
func softplus(x float64) float64 {
	if !(math.Abs(x) < farthest) {
		return model.Loss(x, 0) * unitsPerNat
	}
	i := int(float64(x+farthest)/(2*nearest) + 0.5)
	n := &nodes[i]
	v := x - (float64(float64(i)*2*nearest) - farthest)
	t := v * v
	odd := n.a[0] + float64(t*(n.a[2]+float64(t*n.a[4])))
	even := n.a[1] + float64(t*(n.a[3]+float64(t*n.a[5])))
	return n.value + float64(v*odd) + float64(t*even)
}

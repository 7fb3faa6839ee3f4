package paired

import "shaver/internal/value/tally"

// moments are sums over rows that determine the variance of x - b y for every b. They are
// those of one entry, or sums of them over entries.
type moments struct {
	x2, y2, d2 float64 // sums over rows of x^2, y^2 and (x-y)^2
	xx, xy, yy float64 // products of the sums over rows of x and y
}

func (m *moments) add(o moments) {
	m.x2, m.y2, m.d2 = m.x2+o.x2, m.y2+o.y2, m.d2+o.d2
	m.xx, m.xy, m.yy = m.xx+o.xx, m.xy+o.xy, m.yy+o.yy
}

// over divides a sum of squared deviations by n-1. One row does not determine a variance.
// Its squares replace the deviations, as in tally.Sampling.
func over(squares, product, n float64) float64 {
	if n <= 1 {
		return squares
	}
	return (squares - product/n) / (n - 1)
}

// varX and the functions below return variances between n rows, and the covariance. For
// equal models they are exactly equal.
func (m *moments) varX(n float64) float64 { return max(0, over(m.x2, m.xx, n)) }
func (m *moments) varY(n float64) float64 { return max(0, over(m.y2, m.yy, n)) }
func (m *moments) cov(n float64) float64  { return over((m.x2+m.y2-m.d2)/2, m.xy, n) }

// second returns the sum over rows of (x - b y)^2. It is computed from the differences, so
// it is exact for models that are nearly equal.
func (m *moments) second(b float64) float64 {
	return max(0, m.d2+float64((1-b)*(m.x2-m.y2-m.d2))+float64((1-b)*(1-b)*m.y2))
}

// residual returns s2(x - b y) over n rows.
func (m *moments) residual(b, n float64) float64 {
	return max(0, over(m.second(b), m.xx-float64(2*b*m.xy)+float64(b*b*m.yy), n))
}

// momentsOf returns the moments of an entry. Those of square lack the sums of x2, y2 and
// d2, which are known only for whole fields.
func momentsOf(p *tally.Paired, aggregate int) moments {
	x, y := means(p, aggregate)
	m := moments{xx: x * x, xy: x * y, yy: y * y}
	switch aggregate {
	case sum:
		m.x2, m.y2, m.d2 = p.SumSquare, p.PreviousSumSquare, p.DifferenceSquare
	case abs:
		m.x2, m.y2, m.d2 = p.Square, p.PreviousSquare, p.AbsDifferenceSquare
	}
	return m
}

// setFourths sets the sums that momentsOf leaves out for square.
func (m *moments) setFourths(f tally.Fourths) { m.x2, m.y2, m.d2 = f.New, f.Previous, f.Difference }

// means returns the sums over rows of x and y.
func means(p *tally.Paired, aggregate int) (x, y float64) {
	switch aggregate {
	case sum:
		return p.Sum, p.PreviousSum
	case abs:
		return p.Abs, p.PreviousAbs
	}
	return p.Square, p.PreviousSquare
}

// rest returns all - first, for an entry.
func rest(all, first *tally.Paired) tally.Paired {
	return tally.Paired{
		Sum: all.Sum - first.Sum, Abs: all.Abs - first.Abs, Square: all.Square - first.Square,
		PreviousSum: all.PreviousSum - first.PreviousSum, PreviousAbs: all.PreviousAbs - first.PreviousAbs, PreviousSquare: all.PreviousSquare - first.PreviousSquare,
		DifferenceSquare: all.DifferenceSquare - first.DifferenceSquare, AbsDifferenceSquare: all.AbsDifferenceSquare - first.AbsDifferenceSquare,
		SumSquare: all.SumSquare - first.SumSquare, PreviousSumSquare: all.PreviousSumSquare - first.PreviousSumSquare,
	}
}

// restFourths returns all - first, for a field.
func restFourths(all, first tally.Fourths) tally.Fourths {
	return tally.Fourths{New: all.New - first.New, Previous: all.Previous - first.Previous, Difference: all.Difference - first.Difference}
}

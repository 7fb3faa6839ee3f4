package graph

import "math"

// Interval is all numbers from Low to High, which may be infinite.
type Interval struct{ Low, High float64 }

// anything is the interval of an element of which nothing is known.
var anything = Interval{math.Inf(-1), math.Inf(1)}

// around returns the smallest interval with the given numbers. It is anything if one is NaN.
func around(numbers ...float64) Interval {
	x := Interval{numbers[0], numbers[0]}
	for _, v := range numbers {
		if math.IsNaN(v) {
			return anything
		}
		x.Low, x.High = min(x.Low, v), max(x.High, v)
	}
	return x
}

// join returns the smallest interval that has x and y.
func (x Interval) join(y Interval) Interval {
	return Interval{min(x.Low, y.Low), max(x.High, y.High)}
}

// meet returns the numbers that x and y share. They must share some.
func (x Interval) meet(y Interval) Interval {
	return Interval{max(x.Low, y.Low), min(x.High, y.High)}
}

func (x Interval) plus(y Interval) Interval {
	low, high := x.Low+y.Low, x.High+y.High
	if math.IsNaN(low) || math.IsNaN(high) {
		return anything
	}
	return Interval{low, high}
}

func (x Interval) minus(y Interval) Interval { return x.plus(Interval{-y.High, -y.Low}) }

// times takes 0 for the product of 0 and an infinite end, which is no number of an interval.
func (x Interval) times(y Interval) Interval {
	product := func(a, b float64) float64 {
		if a == 0 || b == 0 {
			return 0
		}
		return a * b
	}
	return around(product(x.Low, y.Low), product(x.Low, y.High), product(x.High, y.Low), product(x.High, y.High))
}

// inverse returns 1/x. It is anything if x has numbers on both sides of 0.
func (x Interval) inverse() Interval {
	switch {
	case x.Low < 0 && x.High > 0, x.Low == 0 && x.High == 0:
		return anything
	case x.Low == 0:
		return Interval{1 / x.High, math.Inf(1)}
	case x.High == 0:
		return Interval{math.Inf(-1), 1 / x.Low}
	}
	return Interval{1 / x.High, 1 / x.Low}
}

func (x Interval) abs() Interval {
	if x.Low < 0 && x.High > 0 {
		return Interval{0, max(-x.Low, x.High)}
	}
	return around(math.Abs(x.Low), math.Abs(x.High))
}

func (x Interval) square() Interval {
	x = x.abs()
	return Interval{x.Low * x.Low, x.High * x.High}
}

// power returns x to the power of y. It is anything if x has negative numbers, unless y is a
// whole number above 0.
func (x Interval) power(y Interval) Interval {
	whole := y.Low == y.High && y.Low > 0 && y.Low == math.Trunc(y.Low)
	switch {
	case whole && math.Mod(y.Low, 2) == 0:
		x = x.abs()
	case whole, x.Low >= 0:
	default:
		return anything
	}
	return around(math.Pow(x.Low, y.Low), math.Pow(x.Low, y.High), math.Pow(x.High, y.Low), math.Pow(x.High, y.High))
}

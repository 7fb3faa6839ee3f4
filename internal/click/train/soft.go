package train

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"shaver/internal/num/kernel"
)

// leastSoft is the number below which the sigmoid is smaller than every normal float32.
// threshold returns 0 there.
const leastSoft = -87

// threshold returns the sigmoid of s, or 0 if s is below leastSoft. It is never subnormal.
func threshold(s float32) float32 {
	if s < leastSoft {
		return 0
	}
	return float32(1 / (1 + math.Exp(-float64(s))))
}

// soften sets e to the soft threshold of values: sign(v) * max(|v| - sigmoid(s), 0). All
// slices have the length of e. s has the raw thresholds.
func soften(e, values, s []float32) {
	values, s = values[:len(e)], s[:len(e)]
	for i, v := range values {
		e[i] = soft(v, threshold(s[i]))
	}
}

func soft(v, t float32) float32 {
	switch {
	case v > t:
		return v - t
	case v < -t:
		return v + t
	}
	return 0
}

// softenBackward computes the gradients of values and of s from that of e, in g. An entry
// whose e is 0 has no gradient. dv may be g.
func softenBackward(dv, ds, g, values, s []float32) {
	for i, v := range values {
		t := threshold(s[i])
		slope := float32(t * (1 - t))
		switch x := g[i]; {
		case v > t:
			dv[i], ds[i] = x, -float32(x*slope)
		case v < -t:
			dv[i], ds[i] = x, float32(x*slope)
		default:
			dv[i], ds[i] = 0, 0
		}
	}
}

// alive returns the number of entries that soften does not set to 0.
func alive(values, s []float32) (n int) {
	for i, v := range values {
		if outlasts(v, s[i]) {
			n++
		}
	}
	return n
}

// outlasts reports whether |v| > threshold(s). It computes few exponentials, because
// exp(s)/2 <= threshold(s) <= exp(s) for s <= 0, and powers of 2 bound these.
func outlasts(v, s float32) bool {
	v = float32(math.Abs(float64(v)))
	if s < leastSoft {
		return v > 0
	}
	if s <= 0 {
		k := int(math.Floor(float64(s) * math.Log2E)) // 2^k <= exp(s) < 2^(k+1), up to rounding
		switch {
		case v >= power(k+2):
			return true
		case v <= power(k-2):
			return false
		}
	}
	return v > threshold(s)
}

// power returns 2^k, for k from -140 to 2. Below -126 it is 0.
func power(k int) float32 {
	if k < -126 {
		return 0
	}
	return math.Float32frombits(uint32(k+127) << 23)
}

// margins sets m to |v| - sigmoid(s), which is above 0 for the entries that soften keeps.
func margins(m, values, s []float32) {
	for i, v := range values {
		m[i] = float32(math.Abs(float64(v))) - threshold(s[i])
	}
}

// greatest returns which of the numbers are among the n greatest. Of equal numbers, those
// with the smaller index come first. It changes nothing else, and no number may be NaN.
func greatest(numbers []float32, n int) []bool {
	if n < 0 || n > len(numbers) {
		panic(fmt.Sprintf("train: the greatest %d of %d numbers", n, len(numbers)))
	}
	chosen := make([]bool, len(numbers))
	if n == 0 {
		return chosen
	}
	sorted := slices.Clone(numbers)
	slices.SortFunc(sorted, func(a, b float32) int { return cmp.Compare(b, a) })
	least := sorted[n-1]
	equal := n // number of chosen entries that are equal to least
	for _, x := range sorted[:n] {
		if x > least {
			equal--
		}
	}
	for i, x := range numbers {
		if x > least || x == least && equal > 0 {
			chosen[i] = true
			if x == least {
				equal--
			}
		}
	}
	return chosen
}

// warmUp returns the raw threshold s from which Adam moves s to target in the given number
// of steps, if weight decay is the only gradient. target is below 0. The learning rate of s is
// rate, and decay is above 0.
//
// The gradient of s is decay*s, and Adam divides it by its size in the steps so far. So s
// moves by nearly rate in the first steps, and by less later.
func warmUp(target float64, steps int, rate, decay float64) float32 {
	after := func(start float64) float64 {
		w, m, v := []float32{float32(start)}, []float32{0}, []float32{0}
		for t := range steps {
			kernel.Adam(w, nil, m, v, adamStep(int64(t+1), rate, decay))
		}
		return float64(w[0])
	}
	high, low := target, target-rate*float64(steps)-1
	for range 40 {
		middle := (low + high) / 2
		if after(middle) > target {
			high = middle
		} else {
			low = middle
		}
	}
	return float32(low)
}

// logit returns the number whose sigmoid is p, in (0, 1).
func logit(p float64) float64 { return math.Log(p / (1 - p)) }

package train

import "math"

// stepSlope returns the derivative that OptEmbed gives to the step function at u. It is
// 2 - 4|u| up to |u| = .4, .4 up to 1, and 0 beyond.
func stepSlope(u float32) float32 {
	switch u = float32(math.Abs(float64(u))); {
	case u <= .4:
		return 2 - 4*u
	case u <= 1:
		return .4
	}
	return 0
}

// steepness is the factor of CERP's tanh, by which an entry of .05 counts as not 0.
const steepness = 100

// pruneSlope returns the derivative of CERP's pruning loss -tanh(100 x)^2 by x, where x is the sum
// of the entries of both tables.
func pruneSlope(x float32) float32 {
	t := math.Tanh(steepness * float64(x))
	return float32(-2 * steepness * t * (1 - t*t))
}

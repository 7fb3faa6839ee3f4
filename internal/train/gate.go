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

package paired

import (
	"math"
	"testing"
)

func cells(pairs ...[2]float64) (list []Cell) {
	for _, p := range pairs {
		var c Cell
		c[AUC].Difference, c[AUC].SE = p[0], p[1]
		list = append(list, c)
	}
	return list
}

// The interval of a mean difference contains the error of the rows, which seeds may share, and the
// error of the seeds.
func TestDifference(t *testing.T) {
	even := cells([2]float64{.01, .002}, [2]float64{.01, .002}, [2]float64{.01, .002})
	for _, test := range []struct {
		name       string
		cells      []Cell
		sameRows   bool
		mean, half float64
	}{
		{"one seed", cells([2]float64{.01, .002}), true, .01, 1.959964 * .002},
		{"equal seeds are one seed", even, true, .01, 1.959964 * .002},
		{"equal seeds on other rows", even, false, .01, 1.959964 * .002 / math.Sqrt(3)},
		{"seeds alone", cells([2]float64{.01, 0}, [2]float64{.02, 0}, [2]float64{.03, 0}), true, .02, 4.302653 * .01 / math.Sqrt(3)},
		// The variance of the rows is .0001/3, as large as that of the seeds. So there are 2 * 2^2 = 8 degrees of freedom.
		{"both", cells([2]float64{.01, .01 / math.Sqrt(3)}, [2]float64{.02, .01 / math.Sqrt(3)}, [2]float64{.03, .01 / math.Sqrt(3)}), true, .02, 2.306004 * .01 * math.Sqrt(2./3)},
	} {
		mean, half := Difference(test.cells, AUC, test.sameRows)
		if math.Abs(mean-test.mean) > 1e-12 || math.Abs(half-test.half) > 1e-7 {
			t.Errorf("%s: %v ± %v, expected %v ± %v", test.name, mean, half, test.mean, test.half)
		}
	}
}

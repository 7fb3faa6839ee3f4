package scores

import (
	"math"
	"testing"
)

// Beyond counts differences above two standard errors among the entries that have them.
func TestBeyondErrors(t *testing.T) {
	c := &common{left: []float64{1, 1, 1, 1, 5}, right: []float64{1, 2, 3.5, 4, 5}, errors: []float64{0, .5, 1, math.NaN(), 0}}
	if a := c.agreement(); a.Known != 4 || *a.Beyond != .25 || a.Entries != 5 || math.Abs(*a.Shift+6.5/15.5) > 1e-12 {
		t.Errorf("%+v", a)
	}
	c.errors = []float64{math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	if a := c.agreement(); a.Known != 0 || a.Beyond != nil {
		t.Errorf("%+v", a)
	}
}

package night

import (
	"strings"
	"testing"
)

// A night scores again unless the whole interval is within the bound and the check passes. If the interval contains the
// bound, the night says that the rows do not decide.
func TestDecide(t *testing.T) {
	for want, c := range map[string]struct {
		low, high float64
		failure   string
		kept      bool
	}{
		"FIGURES. The rows do not decide on which side of the bound the rise is.": {low: -1, high: 3},
		"Scored, because with the last choice of entries FIGURES.":                {low: 2.5, high: 3},
		"the check fails: REASON.":                     {low: -1, high: 1, failure: "REASON"},
		"The last choice of entries is kept: FIGURES.": {low: -1, high: 1, kept: true},
	} {
		if kept, why := decide("FIGURES", c.low, c.high, 2, c.failure); kept != c.kept || !strings.HasSuffix(why, want) {
			t.Errorf("%v, %q; expected %v, %q", kept, why, c.kept, want)
		}
	}
}

package sweep

import (
	"slices"
	"testing"

	"shaver/internal/click/evaluate"
)

// The rows of a slice keep their weights, and their groups under numbers that count from 0.
func TestSliceKeepsGroups(t *testing.T) {
	s := &Slicer{slices: []Slice{{Rows: 4}}, members: []uint32{1, 0, 1, 1, 0, 1}}
	p := &evaluate.Predictions{
		Logits: []float64{0, 1, 2, 3, 4, 5}, Labels: []float32{0, 1, 0, 1, 0, 1},
		Weights: []int32{1, 2, 3, 4, 5, 6}, Groups: []int32{5, 4, -1, 2, 2, 5},
	}
	part := s.predictions(p, 0)
	if !slices.Equal(part.Logits, []float64{0, 2, 3, 5}) || !slices.Equal(part.Weights, []int32{1, 3, 4, 6}) || !slices.Equal(part.Groups, []int32{0, -1, 1, 0}) {
		t.Errorf("%+v", part)
	}
}

// With groups the GAUC decides, whatever the AUC is.
func TestGroupsDecide(t *testing.T) {
	at := func(low, value, high float64) *Interval { return &Interval{value, &low, &high} }
	good, bad, loss := at(-.0005, 0, .0005), at(-.02, -.01, -.005), at(0, 0, .0001)
	for _, c := range []struct {
		d    Differences
		want bool
	}{
		{Differences{AUC: good, LogLoss: loss}, true},
		{Differences{AUC: bad, LogLoss: loss}, false},
		{Differences{AUC: bad, GAUC: good, LogLoss: loss}, true},
		{Differences{AUC: good, GAUC: bad, LogLoss: loss}, false},
	} {
		if DefaultBound.Holds(&c.d) != c.want || DefaultBound.seems(&c.d) != c.want {
			t.Errorf("%+v: expected %v", c.d, c.want)
		}
		if rows := DefaultBound.rows(&c.d, 1000); c.want && rows > 1000 {
			t.Errorf("%+v: %v rows", c.d, rows)
		}
	}
}

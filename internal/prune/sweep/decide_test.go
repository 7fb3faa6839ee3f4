package sweep

import (
	"fmt"
	"testing"

	"shaver/internal/value/baseline"
)

// within returns an interval whose ends are off from its value.
func within(value, off float64) *Interval {
	low, high := value-off, value+off
	return &Interval{value, &low, &high}
}

// Decide chooses the smallest table whose whole intervals are within the bound.
func TestDecide(t *testing.T) {
	const file = 100
	point := func(parameters int, auc, aucOff, loss, lossOff float64) Point {
		bytes := int64(file)
		p := Point{Method: Random, Baseline: baseline.Zero, Bits: 32, Parameters: parameters, Sparsity: 1 - float64(parameters)/1000, Difference: &Differences{AUC: within(auc, aucOff), LogLoss: within(loss, lossOff)}}
		of := .7 + auc
		p.AUC, p.LogLoss, p.Bytes, p.TableBytes = &of, new(.5), &bytes, &bytes
		return p
	}
	as := func(method string, p Point) Point { p.Method = method; return p }
	calibrated := func(loss float64, p Point) Point { p.Difference.CalibratedLogLoss = within(loss, 0); return p }
	without := func(p Point) Point { p.Bytes = nil; return p }
	unknown := func(p Point) Point { p.Difference.AUC.Low, p.Difference.AUC.High = nil, nil; return p }
	bits := func(n int, p Point) Point { p.Bits = n; p.Values = fmt.Sprint(n); return p }
	older := func(p Point) Point { p.Difference = nil; return p }
	good := point(500, -.0001, .0003, .0002, .0003)
	for name, c := range map[string]struct {
		points []Point
		want   int // index, -1 = none
	}{
		"smallest":               {[]Point{good, point(100, -.0005, .0004, .0002, .0003), point(50, -.002, .0001, 0, 0)}, 1},
		"interval of AUC":        {[]Point{good, point(100, -.0005, .0006, 0, 0)}, 0},
		"interval of LogLoss":    {[]Point{good, point(100, 0, 0, .0005, .0006)}, 0},
		"better is fine":         {[]Point{good, point(100, .5, .1, -.5, .1)}, 1},
		"calibrated LogLoss":     {[]Point{calibrated(0, point(100, 0, 0, .5, .1)), calibrated(.5, point(50, 0, 0, 0, 0))}, 0},
		"fewer bits":             {[]Point{good, bits(8, point(900, 0, 0, 0, 0))}, 1},
		"no file":                {[]Point{good, without(point(100, 0, 0, 0, 0))}, 0},
		"equal sizes":            {[]Point{good, as(Magnitude, point(500, .0001, 0, 0, 0)), as(Frequency, good)}, 1},
		"worst of the repeats":   {[]Point{good, point(100, 0, 0, 0, 0), point(100, -.0011, 0, 0, 0)}, 0},
		"nothing is good enough": {[]Point{point(500, -.01, .001, 0, 0)}, -1},
		"unknown interval":       {[]Point{unknown(point(500, 0, 0, 0, 0))}, -1},
		"older documents":        {[]Point{older(good)}, -1},
	} {
		d := &Document{Rows: 1e6, Points: c.points}
		got := -1
		for i := range d.Points {
			if d.Decide(DefaultBound) == &d.Points[i] {
				got = i
			}
		}
		if got != c.want {
			t.Errorf("%s: chose %d, expected %d", name, got, c.want)
		}
	}
	if d := (&Document{Points: []Point{point(500, -.01, .001, 0, 0)}}); d.Decide(Bound(.02)) != &d.Points[0] {
		t.Error("a larger bound changes nothing")
	}
}

// An interval differs if it is known and does not contain 0.
func TestDiffers(t *testing.T) {
	for _, c := range []struct {
		of   *Interval
		want bool
	}{{within(.1, .05), true}, {within(-.1, .05), true}, {within(.1, .2), false}, {within(0, 0), false}, {&Interval{Value: 1}, false}, {nil, false}} {
		if got := c.of.Differs(); got != c.want {
			t.Errorf("%+v: %t", c.of, got)
		}
	}
}

// If the bits of some table differ from row to row, tables are compared by their bytes.
func TestDecideInBytes(t *testing.T) {
	same := &Differences{AUC: within(0, .0001), LogLoss: within(0, .0001)}
	size := Measure{Metrics: Metrics{AUC: new(.8), LogLoss: new(.4)}, Bytes: new(int64(1000))}
	small := Point{Method: "path", Parameters: 500, Bits: 8, Measure: size, Difference: same}
	large := Point{Method: "magnitude", Values: "int8", Parameters: 900, Bits: 8, Measure: size, Difference: same}
	small.Values, small.Bits, small.TableBytes, large.TableBytes = "mixed", 0, new(int64(90)), new(int64(80))
	d := &Document{Points: []Point{small, large}}
	if got := d.Decide(DefaultBound); !d.InBytes() || got == nil || *got.TableBytes != 80 {
		t.Errorf("decided for %+v", got)
	}
	if d.Points[0].Values = "int8"; d.InBytes() {
		t.Error("tables of one width are compared in bytes")
	}
}

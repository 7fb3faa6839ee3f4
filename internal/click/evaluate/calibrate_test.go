package evaluate

import (
	"math"
	"math/rand/v2"
	"testing"

	"shaver/internal/num/loss"

	"pgregory.net/rapid"
)

// drawn returns n rows with random labels; scale*z + offset is the true logit of a row
// with logit z.
func drawn(n int, scale, offset float64) *Predictions {
	r := rand.New(rand.NewPCG(1, 2))
	p := &Predictions{}
	for range n {
		z := 2 * r.NormFloat64()
		label := float32(0)
		if r.Float64() < 1/(1+math.Exp(-(scale*z+offset))) {
			label = 1
		}
		p.Logits, p.Labels = append(p.Logits, z), append(p.Labels, label)
	}
	return p
}

func TestCalibrateFindsTrueLogits(t *testing.T) {
	for _, want := range []loss.Calibration{{Scale: 1}, {Scale: 0.3, Offset: -2}, {Scale: 2.5, Offset: 1}, {Scale: 0.05, Offset: 0.4}} {
		p := drawn(40_000, want.Scale, want.Offset)
		got := Calibrate(p)
		if math.Abs(got.Scale-want.Scale) > .05*max(.5, want.Scale) || math.Abs(got.Offset-want.Offset) > .06 {
			t.Errorf("%+v, expected %+v", got, want)
		}
		if before, after := p.MeanLoss(loss.Calibration{Scale: 1}), p.MeanLoss(got); after > before+1e-6 {
			t.Errorf("%+v: loss %g before, %g after", want, before, after)
		}
	}
}

// No calibration near the result has a smaller loss. The scale is above 0 and all numbers
// are finite. This also holds for separated labels, equal labels, equal logits, and
// logits so large that a probability is 0 or 1 in float64.
func TestCalibrationIsTheMinimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "n")
		off := rapid.SampledFrom([]float64{0, 0, 0, -100, 700}).Draw(t, "off")
		p := &Predictions{}
		for range n {
			p.Logits = append(p.Logits, off+float64(rapid.IntRange(-40, 40).Draw(t, "logit"))/4)
			p.Labels = append(p.Labels, float32(rapid.IntRange(0, 1).Draw(t, "label")))
		}
		c := Calibrate(p)
		if !(c.Scale >= LeastScale) || math.IsInf(c.Scale, 0) || math.IsNaN(c.Offset) || math.IsInf(c.Offset, 0) {
			t.Fatalf("%+v", c)
		}
		positives := 0.0
		for _, label := range p.Labels {
			positives += float64(label)
		}
		f := fit{p, [2]float64{1 / (float64(n) - positives + 2), (positives + 1) / (positives + 2)}, 1}
		for _, step := range [][2]float64{{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, 1}, {1, -1}, {-1, 1}, {-1, -1}} {
			near := loss.Calibration{Scale: c.Scale + 1e-3*step[0], Offset: c.Offset + 1e-3*step[1]}
			if near.Scale >= LeastScale && f.loss(near) < f.loss(c)-1e-7 {
				t.Fatalf("%+v has the loss %.9f, %+v has %.9f", c, f.loss(c), near, f.loss(near))
			}
		}
	})
}

func TestCalibrationKeepsTheOrder(t *testing.T) {
	p := drawn(2000, .4, 1)
	c := Calibrate(p)
	calibrated := make([]float64, len(p.Logits))
	for i, z := range p.Logits {
		calibrated[i] = c.Apply(z)
	}
	if got, want := AUC(calibrated, p.Labels), AUC(p.Logits, p.Labels); got != want {
		t.Errorf("AUC is %v after calibration, %v before", got, want)
	}
}

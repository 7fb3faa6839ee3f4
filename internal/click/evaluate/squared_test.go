package evaluate

import (
	"math"
	"math/rand/v2"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/num/loss"
)

// rated returns n rows with labels from 1 to 5, and two models that predict them with errors of
// the given standard deviations, which are correlated.
func rated(r *rand.Rand, n int, one, other float64) (a, b *Predictions) {
	a, b = &Predictions{Loss: loss.Squared}, &Predictions{Loss: loss.Squared}
	for range n {
		label := 1 + 4*r.Float64()
		shared := r.NormFloat64()
		a.Logits = append(a.Logits, float64(float32(label))+one*(.8*shared+.6*r.NormFloat64()))
		b.Logits = append(b.Logits, float64(float32(label))+other*(.8*shared+.6*r.NormFloat64()))
		a.Labels, b.Labels = append(a.Labels, float32(label)), append(b.Labels, float32(label))
	}
	return a, b
}

func TestSquaredMetrics(t *testing.T) {
	p := &Predictions{Logits: []float64{1, 2.5, -1, 4}, Labels: []float32{2, 2.5, 1, 3}, Loss: loss.Squared}
	m := p.Metrics() // errors 1, 0, 2, 1; labels with the mean 2.125
	variance := (.125*.125 + .375*.375 + 1.125*1.125 + .875*.875) / 4
	want := Metrics{Rows: 4, Loss: math.Sqrt(1.5), MAE: 1, R2: 1 - 1.5/variance}
	if !math.IsNaN(m.AUC) || m.Rows != 4 || math.Abs(m.Loss-want.Loss) > 1e-15 || math.Abs(m.MAE-want.MAE) > 1e-15 || math.Abs(m.R2-want.R2) > 1e-14 {
		t.Errorf("%+v, expected %+v", m, want)
	}
	half := loss.Calibration{Scale: .5, Offset: 1}
	if got := p.MeanLoss(half); math.Abs(got-math.Sqrt((.25+.0625+.25+0)/4)) > 1e-15 {
		t.Errorf("the RMSE of calibrated outputs is %v", got)
	}
	if m := (&Predictions{Logits: []float64{1, 2}, Labels: []float32{3, 3}, Loss: loss.Squared}).Metrics(); !math.IsNaN(m.R2) {
		t.Errorf("R2 of equal labels is %v", m.R2)
	}
}

// The 95% intervals of a difference of RMSEs contain the difference of the population in 95% of
// the samples.
func TestSquaredIntervalsHold(t *testing.T) {
	long.Heavy(t)
	const repeats = 2000
	r := rand.New(rand.NewPCG(5, 6))
	held := 0.
	for range repeats {
		a, b := rated(r, 200, 1, 1.1)
		if d := Compare(a, b).Loss; d.Low <= .1 && .1 <= d.High {
			held += 1. / repeats
		}
	}
	if held < .93 || held > .97 {
		t.Errorf("%.2f%% of the intervals contain the difference", 100*held)
	}
	a, b := rated(r, 50, .5, .7)
	c := Compare(a, b)
	if !math.IsNaN(c.AUC.Value) || math.Abs(c.Loss.Value-(b.MeanLoss(loss.Uncalibrated)-a.MeanLoss(loss.Uncalibrated))) > 1e-15 {
		t.Errorf("%+v", c)
	}
	if d := Compare(a, a).Loss; d.Value != 0 || d.SE != 0 {
		t.Errorf("the same model: %+v", d)
	}
	perfect := &Predictions{Logits: make([]float64, 50), Labels: a.Labels, Loss: loss.Squared}
	for i, label := range a.Labels {
		perfect.Logits[i] = float64(label)
	}
	if d := Compare(perfect, a).Loss; !(d.Low < d.Value) || math.IsNaN(d.SE) {
		t.Errorf("a perfect model: %+v", d)
	}
}

// No scale and offset near those of Calibrate have a smaller RMSE, and a scale is never below
// LeastScale.
func TestSquaredCalibration(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	p, _ := rated(r, 500, .5, .5)
	for i := range p.Logits {
		p.Logits[i] = 3*p.Logits[i] - 4
	}
	c := Calibrate(p)
	for _, step := range [][2]float64{{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, -1}, {-1, 1}} {
		if near := (loss.Calibration{Scale: c.Scale + 1e-4*step[0], Offset: c.Offset + 1e-4*step[1]}); p.MeanLoss(near) < p.MeanLoss(c) {
			t.Errorf("%+v has the RMSE %v, %+v has %v", c, p.MeanLoss(c), near, p.MeanLoss(near))
		}
	}
	for i := range p.Logits {
		p.Logits[i] = -p.Logits[i]
	}
	if c := Calibrate(p); c.Scale != LeastScale {
		t.Errorf("outputs that predict the opposite have the calibration %+v", c)
	}
	if c := Calibrate(&Predictions{Logits: []float64{2, 2}, Labels: []float32{1, 4}, Loss: loss.Squared}); c.Apply(2) != 2.5 {
		t.Errorf("equal outputs become %v", c.Apply(2))
	}
}

// The bins of a curve have the mean outputs and the mean labels.
func TestSquaredCurve(t *testing.T) {
	curve := Rank(&Predictions{Logits: []float64{4, 1, 3, 2}, Labels: []float32{5, 1, 3, 1}, Loss: loss.Squared}).Curve(2, loss.Uncalibrated)
	if len(curve) != 2 || curve[0] != (CurveBin{2, 1.5, 1}) || curve[1] != (CurveBin{2, 3.5, 4}) {
		t.Errorf("%+v", curve)
	}
}

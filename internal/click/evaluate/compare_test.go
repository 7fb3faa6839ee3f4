package evaluate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/base/long"
	"shaver/internal/num/loss"
)

// The AUC difference and its standard error equal DeLong's definition over all pairs of
// rows.
func TestCompareIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(4, 40).Draw(t, "n")
		a, b := &Predictions{}, &Predictions{}
		for i := range n {
			label := float32(i % 2)
			if i >= 4 { // both labels have two rows or more
				label = float32(rapid.IntRange(0, 1).Draw(t, "label"))
			}
			for _, p := range []*Predictions{a, b} {
				p.Logits, p.Labels = append(p.Logits, float64(rapid.IntRange(0, 9).Draw(t, "logit"))), append(p.Labels, label)
			}
		}
		won := func(p *Predictions, i, j int) float64 { // of the positive row i and the negative row j
			switch {
			case p.Logits[i] > p.Logits[j]:
				return 1
			case p.Logits[i] == p.Logits[j]:
				return .5
			}
			return 0
		}
		var of [2][]float64 // by label: for each row, the mean of the differences over the rows of the other label
		for i := range n {
			sum, others := 0.0, 0.0
			for j := range n {
				switch {
				case a.Labels[i] == a.Labels[j]:
					continue
				case a.Labels[i] == 1:
					sum += won(b, i, j) - won(a, i, j)
				default:
					sum += won(b, j, i) - won(a, j, i)
				}
				others++
			}
			of[int(a.Labels[i])] = append(of[int(a.Labels[i])], sum/others)
		}
		variance := func(x []float64) float64 {
			mean, square := 0.0, 0.0
			for _, v := range x {
				mean += v / float64(len(x))
			}
			for _, v := range x {
				square += (v - mean) * (v - mean)
			}
			return square / float64(len(x)-1) / float64(len(x))
		}
		mean := 0.0
		for _, v := range of[1] {
			mean += v / float64(len(of[1]))
		}
		se := math.Sqrt(variance(of[0]) + variance(of[1]))
		got := Compare(a, b).AUC
		if math.Abs(got.Value-mean) > 1e-12 || math.Abs(got.SE-se) > 1e-9 {
			t.Fatalf("%+v, expected %v with the standard error %v", got, mean, se)
		}
		if math.Abs((got.Low+got.High)/2-mean) > 1e-12 || got.High-got.Low < 2*1.9599*se {
			t.Fatalf("interval of %+v", got)
		}
	})
}

// Student's t of the rows' loss differences, with and without a calibration.
func TestCompareLoss(t *testing.T) {
	a := &Predictions{Logits: []float64{0, 1, -2, 3}, Labels: []float32{0, 1, 1, 0}}
	b := &Predictions{Logits: []float64{1, 2, -1, -3}, Labels: []float32{0, 1, 1, 0}}
	half := loss.Calibration{Scale: .5, Offset: .1}
	var d []float64
	mean, square := 0.0, 0.0
	for i, label := range a.Labels {
		d = append(d, loss.Logistic.Of(half.Apply(b.Logits[i]), label)-loss.Logistic.Of(a.Logits[i], label))
		mean += d[i] / 4
	}
	for _, v := range d {
		square += (v - mean) * (v - mean)
	}
	se := math.Sqrt(square / 3 / 4)
	const t975 = 3.182446 // of three degrees of freedom
	got := CompareLoss(a, b, loss.Uncalibrated, half)
	for i, pair := range [][2]float64{{got.Value, mean}, {got.SE, se}, {got.Low, mean - t975*se}, {got.High, mean + t975*se}} {
		if math.Abs(pair[0]-pair[1]) > 1e-6 {
			t.Errorf("number %d is %v, expected %v", i, pair[0], pair[1])
		}
	}
	if plain := Compare(a, b).Loss; plain != CompareLoss(a, b, loss.Uncalibrated, loss.Uncalibrated) || plain == got {
		t.Errorf("without a calibration %+v", plain)
	}
}

// The interval has the width 0 if both models rank all rows alike. Numbers that the rows do
// not determine are NaN.
func TestCompareAtItsLimits(t *testing.T) {
	alike := func(d Difference, value, se float64) bool {
		same := func(x, y float64) bool { return x == y || x != x && y != y }
		low := value - se // se is 0 or NaN
		return same(d.Value, value) && same(d.SE, se) && same(d.Low, low) && same(d.High, low)
	}
	a := &Predictions{Logits: []float64{0, 1, 1, 3, 2}, Labels: []float32{0, 1, 0, 1, 1}}
	scaled := &Predictions{Logits: []float64{-1, 5, 5, 7, 6}, Labels: a.Labels}
	if c := Compare(a, scaled); !alike(c.AUC, 0, 0) || c.Loss.SE == 0 {
		t.Errorf("the same order: %+v", c)
	}
	if c := Compare(a, a); !alike(c.AUC, 0, 0) || !alike(c.Loss, 0, 0) {
		t.Errorf("the same model: %+v", c)
	}
	nan := math.NaN()
	one := Compare(&Predictions{Logits: []float64{0, 1, 2}, Labels: []float32{0, 1, 0}}, &Predictions{Logits: []float64{0, 3, 2}, Labels: []float32{0, 1, 0}})
	if !alike(one.AUC, .5, nan) || math.IsNaN(one.Loss.SE) {
		t.Errorf("one positive row: %+v", one)
	}
	for _, labels := range [][]float32{{1, 1}, {0, 0}} {
		if c := Compare(&Predictions{Logits: []float64{0, 1}, Labels: labels}, &Predictions{Logits: []float64{1, 1}, Labels: labels}); !alike(c.AUC, nan, nan) || math.IsNaN(c.Loss.SE) {
			t.Errorf("labels %v: %+v", labels, c)
		}
	}
	if c := Compare(&Predictions{Logits: []float64{0}, Labels: []float32{0}}, &Predictions{Logits: []float64{1}, Labels: []float32{0}}); math.IsNaN(c.Loss.Value) || !math.IsNaN(c.Loss.High) {
		t.Errorf("one row: %+v", c)
	}
	if c := Compare(&Predictions{}, &Predictions{}); !alike(c.AUC, nan, nan) || !alike(c.Loss, nan, nan) {
		t.Errorf("no rows: %+v", c)
	}
	defer func() {
		if recover() == nil {
			t.Error("predictions with different labels are compared")
		}
	}()
	Compare(a, &Predictions{Logits: a.Logits, Labels: []float32{1, 1, 0, 1, 1}})
}

// population draws rows for two models whose logits are normally distributed and correlated
// for each label. So the differences between the models are known.
type population struct {
	rows        int
	rate        float64    // portion of positive rows
	worth       [2]float64 // by model: distance between the mean logits of the labels
	correlation float64    // of the logits of a label
	grid        float64    // distance between possible logits, 0 if any logit is possible
}

// logit returns z on the grid.
func (p *population) logit(z float64) float64 {
	if p.grid == 0 {
		return z
	}
	return p.grid * math.Round(z/p.grid)
}

func (p *population) draw(r *rand.Rand) (a, b *Predictions) {
	a, b = &Predictions{}, &Predictions{}
	for i := range p.rows {
		label := float32(0)
		if float64(i) < p.rate*float64(p.rows) {
			label = 1
		}
		x, y := r.NormFloat64(), r.NormFloat64()
		y = p.correlation*x + math.Sqrt(1-p.correlation*p.correlation)*y
		for k, z := range []float64{x, y} {
			z = p.logit(z + p.worth[k]*(float64(label)-.5))
			if k == 0 {
				a.Logits, a.Labels = append(a.Logits, z), append(a.Labels, label)
			} else {
				b.Logits, b.Labels = append(b.Logits, z), append(b.Labels, label)
			}
		}
	}
	return a, b
}

// truth returns the AUC and the LogLoss of a model, by integration over its logits.
func (p *population) truth(k int) (auc, mean float64) {
	type mass struct{ at, positive, negative float64 }
	var cells []mass
	below := func(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
	width := p.grid
	if width == 0 {
		width = 1. / 256
	}
	half := p.worth[k] / 2
	for i := math.Round(-9 / width); i <= 9/width; i++ {
		low, high := (i-.5)*width, (i+.5)*width
		cells = append(cells, mass{i * width, below(high-half) - below(low-half), below(high+half) - below(low+half)})
	}
	under := 0.0
	for _, c := range cells {
		auc += c.positive * (under + c.negative/2)
		under += c.negative
		mean += p.rate*c.positive*loss.Logistic.Of(c.at, 1) + (1-p.rate)*c.negative*loss.Logistic.Of(c.at, 0)
	}
	return auc, mean
}

// In simulations with known differences, the 95% intervals contain the difference in 95% of
// the samples: with many and with few positive rows, with ties, and for models that are
// nearly equal. If the two orders differ in a few pairs of rows only, DeLong's variance is too
// large, and more of the intervals hold.
func TestIntervalsHold(t *testing.T) {
	long.Heavy(t)
	const repeats = 2000
	// The portion of intervals that hold has a standard error of 0.0049.
	for name, p := range map[string]population{
		"different models":      {600, .3, [2]float64{1, 1.2}, .8, 0},
		"equal models":          {300, .5, [2]float64{1, 1}, .5, 0},
		"20 positive rows":      {400, .05, [2]float64{1, 1.3}, .7, 0},
		"6 positive rows":       {300, .02, [2]float64{1, 1.2}, .7, 0},
		"few rows":              {40, .5, [2]float64{.5, 1}, .6, 0},
		"ties":                  {300, .3, [2]float64{1, 1.3}, .8, .5},
		"nearly equal models":   {300, .3, [2]float64{1, 1.02}, .999, 0},
		"the same order nearly": {300, .3, [2]float64{1, 1.01}, .9999, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			aucA, lossA := p.truth(0)
			aucB, lossB := p.truth(1)
			var auc, loss float64
			for range repeats {
				a, b := p.draw(r)
				c := Compare(a, b)
				for of, held := range map[*Difference]*float64{&c.AUC: &auc, &c.Loss: &loss} {
					truth := aucB - aucA
					if of == &c.Loss {
						truth = lossB - lossA
					}
					if of.Low <= truth && truth <= of.High {
						*held += 1. / repeats
					}
				}
			}
			t.Logf("AUC %.4f, LogLoss %.4f", auc, loss)
			for metric, held := range map[string]float64{"AUC": auc, "LogLoss": loss} {
				most := .97
				if name == "the same order nearly" && metric == "AUC" {
					most = .99
				}
				if held < .93 || held > most {
					t.Errorf("%.2f%% of the intervals of %s contain the difference", 100*held, metric)
				}
			}
		})
	}
}

// Rankings give the same comparison as Compare, however often they are used.
func TestRankingsCompare(t *testing.T) {
	p := population{100, .3, [2]float64{1, 1.2}, .8, 0}
	a, b := p.draw(rand.New(rand.NewPCG(3, 4)))
	r := Rank(a)
	c := &Predictions{Logits: slices.Clone(b.Logits), Labels: b.Labels}
	slices.Reverse(c.Logits)
	for _, other := range []*Predictions{b, c, a} {
		if got, want := Rank(other).Minus(r), Compare(a, other); got != want {
			t.Errorf("%+v, expected %+v", got, want)
		}
	}
}

// The bins of a calibration curve have equally many rows except for ties, and the same rows
// with a calibration. A model with true probabilities has a diagonal curve.
func TestCurve(t *testing.T) {
	p := drawn(20_000, 1, 0)
	r := Rank(p)
	curve := r.Curve(10, loss.Uncalibrated)
	if len(curve) != 10 {
		t.Fatalf("%d bins", len(curve))
	}
	below := -1.0
	for i, bin := range curve {
		if bin.Rows != 2000 || math.Abs(bin.Predicted-bin.Observed) > .04 || bin.Predicted <= below {
			t.Errorf("bin %d: %+v", i, bin)
		}
		below = bin.Predicted
	}
	c := loss.Calibration{Scale: .5, Offset: 1}
	for i, bin := range r.Curve(10, c) {
		want := 0.0
		for _, row := range r.order[i*2000 : (i+1)*2000] {
			want += 1 / (1 + math.Exp(-c.Apply(p.Logits[row]))) / 2000
		}
		if bin.Observed != curve[i].Observed || math.Abs(bin.Predicted-want) > 1e-9 {
			t.Errorf("bin %d with a calibration: %+v, expected the prediction %v", i, bin, want)
		}
	}
	ties := Rank(&Predictions{Logits: []float64{0, 0, 0, 1, 2, 2}, Labels: []float32{0, 1, 0, 1, 1, 0}})
	one, two := 1/(1+math.Exp(-1)), 1/(1+math.Exp(-2))
	if got, want := fmt.Sprintf("%.6v", ties.Curve(4, loss.Uncalibrated)), fmt.Sprintf("%.6v", []CurveBin{{3, .5, 1. / 3}, {3, (one + 2*two) / 3, 2. / 3}}); got != want {
		t.Errorf("bins with ties %s, expected %s", got, want)
	}
	if bins := Rank(&Predictions{}).Curve(10, loss.Uncalibrated); bins != nil {
		t.Errorf("bins of no rows: %+v", bins)
	}
}

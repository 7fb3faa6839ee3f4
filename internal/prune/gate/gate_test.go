package gate

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/num/loss"
	"shaver/internal/prune/sweep"
)

// models returns predictions of a model on rows, and of a worse one, whose logits have
// noise of the given standard deviation. With noise 0 both are alike.
func models(rows int, noise float64) (model, pruned *evaluate.Predictions) {
	r := rand.New(rand.NewPCG(1, uint64(rows)))
	model, pruned = &evaluate.Predictions{}, &evaluate.Predictions{}
	for range rows {
		logit, label := 2*r.NormFloat64(), float32(0)
		if r.Float64() < evaluate.Probability(logit) {
			label = 1
		}
		model.Logits, model.Labels = append(model.Logits, logit), append(model.Labels, label)
		pruned.Logits = append(pruned.Logits, logit+noise*r.NormFloat64())
	}
	pruned.Labels = model.Labels
	return model, pruned
}

// decide compares predictions as a check does.
func decide(t *testing.T, b Bounds, before, after *evaluate.Predictions) *Document {
	t.Helper()
	whole, pruned := &model.Model{}, &model.Model{}
	c := sweep.Config{
		Model:  whole,
		Models: []sweep.Ready{{Open: func() (*model.Model, error) { return pruned, nil }}},
		Predict: func(_ context.Context, m *model.Model) (*evaluate.Predictions, error) {
			return map[*model.Model]*evaluate.Predictions{whole: before, pruned: after}[m], nil
		},
	}
	d := &sweep.Document{Loss: before.Loss, Rows: int64(len(before.Labels))}
	if err := c.Run(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return Decide(b, d, before)
}

// No check passes with a model whose predictions are worse than a constant and chance. It may if only the calibration is off.
func TestWorthless(t *testing.T) {
	right, _ := models(2000, 0)
	inverted, scaled := &evaluate.Predictions{Labels: right.Labels}, &evaluate.Predictions{Labels: right.Labels}
	for _, logit := range right.Logits {
		inverted.Logits, scaled.Logits = append(inverted.Logits, -logit), append(scaled.Logits, 9*logit)
	}
	for name, c := range map[string]struct {
		p         *evaluate.Predictions
		doubted   bool
		worthless bool
	}{"right": {right, false, false}, "inverted": {inverted, true, true}, "scaled": {scaled, true, false}} {
		d := decide(t, Bounds{AUCDrop: .1, LogLossRise: .1}, c.p, c.p)
		if d.Passed == c.worthless || (d.Doubt != "") != c.doubted || strings.Contains(d.Failure(), "the model has an AUC of 0.") != c.worthless || (d.Failure() == "") != d.Passed {
			t.Errorf("%s: passed %v, doubt %q, failure %q", name, d.Passed, d.Doubt, d.Failure())
		}
	}
}

// The differences on the rows decide, or with Confident the ends of their intervals that are
// worse. A bound that is met exactly passes.
func TestDecide(t *testing.T) {
	model, pruned := models(20000, .5)
	change := evaluate.Compare(model, pruned)
	drop, most := -change.AUC.Value, -change.AUC.Low
	rise, top := change.Loss.Value, change.Loss.High
	if !(drop > .001 && most > drop && rise > .001 && top > rise) {
		t.Fatalf("the pruned model is not worse: %+v", change)
	}
	below := func(v float64) float64 { return v * (1 - 1e-12) }
	for _, c := range []struct {
		name         string
		bounds       Bounds
		auc, loss    bool // whether the metrics pass
		certainAUC   bool
		certainLoss  bool
		reasonHolds  string
		failureHolds string
	}{
		{"far within", Bounds{AUCDrop: .5, LogLossRise: .5, Confident: false}, true, true, true, true, "The pruned model passes: the AUC falls by 0.0", ""},
		{"far within, confident", Bounds{AUCDrop: .5, LogLossRise: .5, Confident: true}, true, true, true, true, "The 95% intervals are within the bounds.", ""},
		{"AUC at its bound", Bounds{AUCDrop: drop, LogLossRise: .5, Confident: false}, true, true, false, true, "on which side of the bound the AUC is.", ""},
		{"AUC above its bound", Bounds{AUCDrop: below(drop), LogLossRise: .5, Confident: false}, false, true, false, true, "The pruned model fails: ", "the AUC falls by 0.0"},
		{"AUC far above", Bounds{AUCDrop: 0, LogLossRise: .5, Confident: false}, false, true, true, true, "The 95% intervals do not contain the bounds.", "and at most 0 is allowed"},
		{"LogLoss at its bound", Bounds{AUCDrop: .5, LogLossRise: rise, Confident: false}, true, true, true, false, "on which side of the bound the LogLoss is.", ""},
		{"LogLoss above its bound", Bounds{AUCDrop: .5, LogLossRise: below(rise), Confident: false}, true, false, true, false, "The pruned model fails", "the LogLoss rises by 0.0"},
		{"both above", Bounds{AUCDrop: 0, LogLossRise: 0, Confident: false}, false, false, true, true, "The pruned model fails", "is allowed; the LogLoss rises"},
		{"interval of the AUC at its bound", Bounds{AUCDrop: most, LogLossRise: .5, Confident: true}, true, true, true, true, "within the bounds", ""},
		{"interval of the AUC above its bound", Bounds{AUCDrop: below(most), LogLossRise: .5, Confident: true}, false, true, false, true, "rows would, if the differences stay.", "and its 95% interval reaches 0.0"},
		{"the same without Confident", Bounds{AUCDrop: below(most), LogLossRise: .5, Confident: false}, true, true, false, true, "about 2", ""},
		{"interval of the LogLoss at its bound", Bounds{AUCDrop: .5, LogLossRise: top, Confident: true}, true, true, true, true, "within the bounds", ""},
		{"interval of the LogLoss above its bound", Bounds{AUCDrop: .5, LogLossRise: below(top), Confident: true}, true, false, true, false, "fails", "the LogLoss rises by 0.0"},
	} {
		d := decide(t, c.bounds, model, pruned)
		if d.Passed != (c.auc && c.loss) || d.AUC.Passed != c.auc || d.LogLoss.Passed != c.loss || d.AUC.Certain != c.certainAUC || d.LogLoss.Certain != c.certainLoss {
			t.Errorf("%s: passed %v (%v, %v), certain %v, %v", c.name, d.Passed, d.AUC.Passed, d.LogLoss.Passed, d.AUC.Certain, d.LogLoss.Certain)
		}
		if refuted := drop > c.bounds.AUCDrop && c.certainAUC || rise > c.bounds.LogLossRise && c.certainLoss; d.Refuted() != refuted {
			t.Errorf("%s: refuted %v, expected %v", c.name, d.Refuted(), refuted)
		}
		if !strings.Contains(d.Reason, c.reasonHolds) {
			t.Errorf("%s: reason %q, expected %q in it", c.name, d.Reason, c.reasonHolds)
		}
		if f := d.Failure(); (f == "") != d.Passed || !strings.Contains(f, c.failureHolds) {
			t.Errorf("%s: failure %q, expected %q in it", c.name, f, c.failureHolds)
		}
	}
}

// The same predictions pass with bounds of 0, with certainty. A better model passes.
func TestAlike(t *testing.T) {
	model, pruned := models(500, 0)
	for _, confident := range []bool{false, true} {
		d := decide(t, Bounds{Confident: confident}, model, pruned)
		if !d.Passed || !d.AUC.Certain || !d.LogLoss.Certain || d.AUC.Difference.Value != 0 || !strings.Contains(d.Reason, "the AUC stays the same") {
			t.Errorf("confident %v: %+v", confident, d)
		}
	}
	worse, better := models(20000, .5)
	worse, better = better, worse
	if d := decide(t, Bounds{Confident: true}, worse, better); !d.Passed || !strings.Contains(d.Reason, "the AUC rises by 0.0") || !strings.Contains(d.Reason, "the LogLoss falls by 0.0") {
		t.Errorf("a better model: %+v", d)
	}
}

// With a single row of a label, the AUC has no interval. The difference still decides, but
// never with confidence.
func TestUnknownInterval(t *testing.T) {
	model := &evaluate.Predictions{Logits: []float64{-1, -2, 3}, Labels: []float32{0, 0, 1}}
	pruned := &evaluate.Predictions{Logits: []float64{-1, -2, -1.5}, Labels: model.Labels}
	d := decide(t, Bounds{AUCDrop: 1, LogLossRise: 10}, model, pruned)
	if !d.Passed || d.AUC.Certain || d.AUC.Difference.Low != nil {
		t.Errorf("%+v", d)
	}
	d = decide(t, Bounds{AUCDrop: 1, LogLossRise: 10, Confident: true}, model, pruned)
	if d.Passed || !strings.Contains(d.Failure(), "but the rows do not determine its 95% interval") {
		t.Errorf("%+v", d)
	}
}

// A model whose true AUC is below the bound passes with Confident in at most about 2.5% of
// the checks, and without it in about half if it is exactly at the bound.
func TestErrorRates(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	const checks, rows, noise = 400, 2000, .5
	truth := 0.0 // drop in the population
	all := make([][2]*evaluate.Predictions, checks)
	for i := range all {
		model, pruned := &evaluate.Predictions{}, &evaluate.Predictions{}
		for range rows {
			logit, label := 2*r.NormFloat64(), float32(0)
			if r.Float64() < evaluate.Probability(logit) {
				label = 1
			}
			model.Logits, model.Labels = append(model.Logits, logit), append(model.Labels, label)
			pruned.Logits = append(pruned.Logits, logit+noise*r.NormFloat64())
		}
		pruned.Labels = model.Labels
		all[i] = [2]*evaluate.Predictions{model, pruned}
		truth -= evaluate.Compare(model, pruned).AUC.Value / checks
	}
	passed := map[bool]int{}
	for _, pair := range all {
		for _, confident := range []bool{false, true} {
			if decide(t, Bounds{AUCDrop: truth, LogLossRise: 1, Confident: confident}, pair[0], pair[1]).Passed {
				passed[confident]++
			}
		}
	}
	t.Logf("drop %.5f: %d of %d pass, %d with Confident", truth, passed[false], checks, passed[true])
	if n := passed[false]; n < checks*4/10 || n > checks*6/10 {
		t.Errorf("%d of %d checks pass at the bound, expected about half", n, checks)
	}
	if n := passed[true]; n > checks*5/100 {
		t.Errorf("%d of %d checks pass at the bound with Confident, expected about 2.5%%", n, checks)
	}
}

// With the squared loss, only the RMSE decides.
func TestDecideSquared(t *testing.T) {
	labels := []float32{1, 2, 3, 4, 5, 1, 2, 3}
	predict := func(off float64) *evaluate.Predictions {
		p := &evaluate.Predictions{Labels: labels, Loss: loss.Squared}
		for i, label := range labels {
			p.Logits = append(p.Logits, float64(label)+off*float64(1+i%3))
		}
		return p
	}
	for _, c := range []struct {
		bound  float64
		passed bool
	}{{.5, true}, {.1, false}} {
		d := decide(t, Bounds{RMSERise: c.bound}, predict(.1), predict(.2))
		if d.Version != SquaredVersion || d.AUC != nil || d.LogLoss != nil || d.RMSE == nil || d.Passed != c.passed || d.RMSE.Bound != c.bound {
			t.Errorf("bound %v: %+v, %+v", c.bound, d, d.RMSE)
		}
		if !strings.Contains(d.Reason, "the RMSE rises by 0.2") || (d.Failure() == "") != c.passed {
			t.Errorf("bound %v: %s %s", c.bound, d.Reason, d.Failure())
		}
	}
	if d := decide(t, Bounds{}, predict(.2), predict(.1)); !d.Passed || !strings.Contains(d.Reason, "the RMSE falls by 0.2") {
		t.Errorf("a better model: %s", d.Reason)
	}
}

package train

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/num/loss"
)

// newRun returns a run of 5 epochs on the golden rows of a model, with shuffling and dropout,
// measured on rows.
func newRun(t *testing.T, name string, rows *model.Rows) *Run {
	t.Helper()
	trainer := newTrainer(t, goldenModel(t, name, 0), Options{Optimizer: Adam, LearningRate: 1e-2, WeightDecay: 1e-3, Dropout: .2, Batch: 50, Seed: 7})
	return &Run{Trainer: trainer, Rows: rowsFor(t, &trainer.a), Epochs: 5, Shuffle: true, Measure: measureOn(rows)}
}

// measureOn returns a function that measures models on rows.
func measureOn(rows *model.Rows) func(context.Context, *model.Model) (*Metrics, error) {
	return func(ctx context.Context, m *model.Model) (*Metrics, error) {
		source := func(_ context.Context, each func(*model.Rows) error) error { return each(rows) }
		p, err := evaluate.Predict(ctx, m, loss.Logistic, source, 1)
		if err != nil {
			return nil, err
		}
		found := p.Metrics()
		metrics := &Metrics{LogLoss: found.Loss}
		if !math.IsNaN(found.AUC) {
			metrics.AUC = &found.AUC
		}
		return metrics, nil
	}
}

// A run that is stopped after any epoch, and continued from its state, has the weights and
// the history of a run that was not stopped.
func TestResume(t *testing.T) {
	for _, name := range []string{"deepfm", "dcn-mix", "neumf"} {
		rows := rowsFor(t, &goldenModel(t, name, 0).Architecture)
		whole := newRun(t, name, rows)
		if err := whole.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for stop := 1; stop < whole.Epochs; stop++ {
			short := newRun(t, name, rows)
			short.Epochs = stop
			if err := short.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			state := short.Trainer.State()
			second := newRun(t, name, rows)
			for i, v := range second.Trainer.State() {
				copy(v.Values, state[i].Values)
			}
			second.Trainer.Resume(short.Trainer.Steps())
			second.History, second.Best = short.History, short.Best
			if err := second.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if second.Best != whole.Best || len(second.History) != len(whole.History) {
				t.Errorf("%s, stopped after %d: best epoch %d of %d, expected %d of %d", name, stop, second.Best, len(second.History), whole.Best, len(whole.History))
			}
			for i, v := range second.Trainer.State() {
				for k, x := range v.Values {
					if want := whole.Trainer.State()[i].Values[k]; math.Float32bits(x) != math.Float32bits(want) {
						t.Fatalf("%s, stopped after %d: %s[%d] is %v, expected %v", name, stop, v.Name, k, x, want)
					}
				}
			}
			for l, n := range second.Trainer.Parameters().Norms {
				if n == nil {
					continue
				}
				if want := whole.Trainer.Parameters().Norms[l].Batches; n.Batches != want {
					t.Errorf("%s, stopped after %d: BatchNorm has %d batches, expected %d", name, stop, n.Batches, want)
				}
			}
		}
	}
}

// A run ends after the step in which its context ends.
func TestCanceled(t *testing.T) {
	r := newRun(t, "deepfm", goldenRows(t))
	ctx, cancel := context.WithCancel(t.Context())
	r.Done = func(e Epoch, _ bool) error {
		if e.Number == 2 {
			cancel()
		}
		return nil
	}
	if err := r.Run(ctx); !errors.Is(err, context.Canceled) || len(r.History) != 2 {
		t.Errorf("the run ended after %d epochs with the error %v, expected 2 and a canceled context", len(r.History), err)
	}
}

// An epoch is over only if all parameters are finite, also those that evaluation folds into others: a
// folded layer is 0 if the running variance is infinite.
func TestEpochsAreFinite(t *testing.T) {
	r := newRun(t, "deepfm", goldenRows(t))
	r.Trainer.o.LearningRate = 1e9
	r.Done = func(e Epoch, _ bool) error {
		p := r.Trainer.Parameters()
		for _, n := range p.Norms {
			for _, v := range slices.Concat(n.Gamma, n.Beta, n.Mean, n.Variance) {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					t.Fatalf("epoch %d is over with the value %v in a BatchNorm", e.Number, v)
				}
			}
		}
		return nil
	}
	var diverged *Diverged
	if err := r.Run(t.Context()); !errors.As(err, &diverged) || len(r.History) >= r.Epochs {
		t.Errorf("%d epochs are over, with the error %v, expected a training that diverges", len(r.History), err)
	}
}

// A training that diverges names the epoch and the batch, and the weights stay those before
// the step.
func TestDiverged(t *testing.T) {
	r := newRun(t, "deepfm-plain", goldenRows(t))
	r.Trainer.o.LearningRate = 1e30
	var diverged *Diverged
	if err := r.Run(t.Context()); !errors.As(err, &diverged) {
		t.Fatalf("a learning rate of 1e30 gives the error %v", err)
	}
	if diverged.Epoch != 1 || diverged.Batch < 2 || diverged.Batch > 5 {
		t.Errorf("the training diverged in epoch %d, batch %d: expected epoch 1 and a batch from 2 to 5", diverged.Epoch, diverged.Batch)
	}
}

// A last batch of one row joins the batch before it.
func TestBatchOfOneRow(t *testing.T) {
	for n, want := range map[int][]int{2: {2}, 50: {50}, 51: {51}, 52: {50, 2}, 101: {50, 51}} {
		r := newRun(t, "deepfm", goldenRows(t))
		rows := goldenRows(t).Slice(0, n)
		r.Rows, r.Epochs = &rows, 1
		var steps []int
		r.Stepped = func(rows int) { steps = append(steps, rows) }
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(steps) != len(want) || steps[0] != want[0] || steps[len(steps)-1] != want[len(want)-1] {
			t.Errorf("%d rows have the batches %v, expected %v", n, steps, want)
		}
	}
	r := newRun(t, "deepfm", goldenRows(t))
	one := goldenRows(t).Slice(0, 1)
	if r.Rows = &one; r.Run(t.Context()) == nil {
		t.Error("a training on one row succeeds")
	}
}

// If all validation labels are the same, LogLoss chooses the best epoch. Without validation
// rows it is the last one.
func TestChoosesWithoutAUC(t *testing.T) {
	same := goldenRows(t)
	for i := range same.Label {
		same.Label[i] = 1
	}
	r := newRun(t, "deepfm", same)
	r.Rows = same // all training labels are the same too
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range r.History {
		if e.Validation.AUC != nil || e.Validation.LogLoss < r.BestEpoch().Validation.LogLoss {
			t.Errorf("epoch %d has the metrics %+v, but %d is the best", e.Number, e.Validation, r.Best)
		}
	}
	r = newRun(t, "deepfm", nil)
	r.Measure, r.Patience = nil, 1
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.Best != 5 || len(r.History) != 5 {
		t.Errorf("without validation rows epoch %d of %d is the best, expected the last of 5", r.Best, len(r.History))
	}
}

// Patience ends a training, and the model before it is a candidate if asked for.
func TestPatience(t *testing.T) {
	r := newRun(t, "deepfm", goldenRows(t))
	auc := []float64{.6, .5, .7, .6, .65, .8}
	r.Measure = func(context.Context, *model.Model) (*Metrics, error) {
		v := auc[len(r.History)]
		return &Metrics{AUC: &v}, nil
	}
	r.Untrained, r.Patience, r.Epochs = true, 2, 10
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.Best != 2 || len(r.History) != 5 {
		t.Errorf("the best epoch is %d of %d, expected 2 of 5", r.Best, len(r.History))
	}
}

// Every kind learns 80 rows by heart from its own initialisation.
func TestLearnsByHeart(t *testing.T) {
	for _, name := range []string{"fm", "deepfm", "widedeep", "dcn-mix", "dcnv2-stacked", "dcnv2-parallel", "neumf"} {
		a := goldenModel(t, name, 0).Architecture
		for j := range a.FieldDims {
			a.FieldDims[j] = 40
		}
		rows := &model.Rows{Width: a.Fields()}
		for i := range 80 { // the users and items of a NeuMF repeat afterwards, with other labels
			rows.Number = append(rows.Number, int64(i))
			rows.Label = append(rows.Label, float32(i*i/7%2))
			for j := range a.FieldDims {
				rows.Features = append(rows.Features, int32(40*j+i*(2*j+1)/(j+1)%40))
			}
		}
		trainer, err := New(a, Initial(&a, a.Kind != model.NeuMF, 3), Options{Optimizer: Adam, LearningRate: 1e-2, Batch: 80})
		if err != nil {
			t.Fatal(err)
		}
		last := 0.0
		for epoch := range 400 {
			last = trainer.Step(rows, epoch)
		}
		if !(last < .01) {
			t.Errorf("%s: the loss after 400 steps is %.3f, expected less than .01", name, last)
		}
	}
}

// The draws of a search are in the ranges of the paper, spread over them, and always the same.
func TestTrial(t *testing.T) {
	low := 0
	for number := range 1000 {
		o, again := Options{Seed: 3, Optimizer: Adam, Batch: 2}, Options{Seed: 3, Optimizer: Adam, Batch: 2}
		o.Trial(number)
		again.Trial(number)
		if o.LearningRate != again.LearningRate || o.WeightDecay != again.WeightDecay || o.Dropout != again.Dropout {
			t.Fatalf("trial %d has two settings: %+v and %+v", number, o, again)
		}
		if err := o.Validate(); err != nil || o.LearningRate < 1e-5 || o.LearningRate > 1e-2 || o.WeightDecay < 1e-5 || o.WeightDecay > 1e-2 {
			t.Fatalf("trial %d has the settings %+v (%v)", number, o, err)
		}
		if o.LearningRate < math.Sqrt(1e-7) {
			low++
		}
	}
	if low < 420 || low > 580 {
		t.Errorf("%d of 1000 learning rates are in the lower half of the decades", low)
	}
}

package evaluate

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
)

// Doubt finds inverted labels, labels of one kind and probabilities in place of logits, and neither chance, nor a constant, nor
// small logits.
func TestDoubt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	right, inverted, constant := &Predictions{}, &Predictions{}, &Predictions{}
	numbers, ratings := &Predictions{Loss: loss.Squared}, &Predictions{Loss: loss.Squared}
	probabilities, small := &Predictions{}, &Predictions{}
	add := func(p *Predictions, logit float64, label float32) {
		p.Logits, p.Labels = append(p.Logits, logit), append(p.Labels, label)
	}
	for range 500 {
		logit, label := 2*random.NormFloat64(), float32(0)
		if random.Float64() < Probability(logit) {
			label = 1
		}
		add(right, logit, label)
		add(inverted, logit, 1-label)
		add(constant, 0.1, label)
		add(numbers, -logit, label)
		add(ratings, logit, float32(logit+random.NormFloat64()))
		add(probabilities, Probability(logit), label)
		logit = random.Float64()
		add(small, logit, 0)
		if random.Float64() < Probability(logit) {
			small.Labels[len(small.Labels)-1] = 1
		}
	}
	if text := probabilities.Doubt(); !strings.HasPrefix(text, "gives logits that are all between 0 and 1: their LogLoss is ") {
		t.Errorf("probabilities: %q", text)
	}
	if text := inverted.Doubt(); !strings.HasPrefix(text, "predicts worse than a constant: its LogLoss is ") {
		t.Errorf("inverted labels: %q", text)
	}
	one := &Predictions{Logits: []float64{9, 9}, Labels: []float32{1, 1}}
	if text := one.Doubt(); !strings.HasPrefix(text, "is measured on 2 rows that all have the label 1, ") {
		t.Errorf("labels of one kind: %q", text)
	}
	if text := numbers.Doubt(); !strings.HasPrefix(text, "predicts worse than a constant: its RMSE is ") {
		t.Errorf("numbers: %q", text)
	}
	for _, p := range []*Predictions{right, constant, small, ratings, {}, {Logits: []float64{9}, Labels: []float32{0}}, {Logits: []float64{9, 9}, Labels: []float32{0, 1}}} {
		if text := p.Doubt(); text != "" {
			t.Errorf("%d rows: %q", len(p.Logits), text)
		}
	}
}

// DoubtOf finds what Doubt finds, of the mean loss alone.
func TestDoubtOf(t *testing.T) {
	for _, test := range []struct {
		mean                   float64
		rows, positives, total int64
		want                   string
	}{
		{.95, 1000, 2500, 5000, "predicts worse than a constant: its LogLoss is 0.9500, and that of the portion of rows with label 1 is 0.6931: "},
		{.30, 1000, 250, 5000, "predicts worse than a constant: its LogLoss is 0.3000, and that of the portion of rows with label 1 is 0.1985: "},
		{.5, 10, 0, 20, "is measured on 10 rows that all have the label 0, "},
		{.5, 20, 20, 20, "is measured on 20 rows that all have the label 1, "},
		{.69, 1000, 2500, 5000, ""},
		{.71, 1000, 2500, 5000, ""}, // which may be chance
		{.22, 1000, 250, 5000, ""},
		{9, 1, 0, 20, ""},
	} {
		if text := DoubtOf(test.mean, test.rows, test.positives, test.total); !strings.HasPrefix(text, test.want) || test.want == "" && text != "" {
			t.Errorf("%+v: %q", test, text)
		}
	}
}

// AUC equals a count over all pairs of rows.
func TestAUCIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 40).Draw(t, "n")
		logits, labels := make([]float64, n), make([]float32, n)
		for i := range logits {
			logits[i] = float64(rapid.IntRange(0, 9).Draw(t, "logit"))
			labels[i] = float32(rapid.IntRange(0, 1).Draw(t, "label"))
		}
		won, pairs := 0.0, 0.0
		for i := range n {
			for j := range n {
				if labels[i] == 1 && labels[j] == 0 {
					pairs++
					if logits[i] > logits[j] {
						won++
					} else if logits[i] == logits[j] {
						won += 0.5
					}
				}
			}
		}
		got := AUC(logits, labels)
		if pairs == 0 {
			if !math.IsNaN(got) {
				t.Fatalf("AUC of one class is %v, want NaN", got)
			}
		} else if math.Abs(got-won/pairs) > 1e-12 {
			t.Fatalf("auc %v, want %v", got, won/pairs)
		}
	})
}

func TestOneKind(t *testing.T) {
	for want, all := range map[bool][][]float32{true: {{}, {0}, {1, 1, 1}}, false: {{0, 1}, {1, 1, 0}}} {
		for _, labels := range all {
			if got := (&Predictions{Labels: labels}).OneKind(); got != want {
				t.Errorf("OneKind of %v is %t", labels, got)
			}
		}
	}
}

func batches(rows *model.Rows, size int) model.RowSource {
	return func(_ context.Context, each func(*model.Rows) error) error {
		for from := 0; from < rows.Len(); from += size {
			part := rows.Slice(from, min(from+size, rows.Len()))
			if err := each(&part); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestPredictDoesNotDependOnThreads(t *testing.T) {
	a := modeltest.Architectures()["deepfm"]
	m := modeltest.Random(t, a, 1)
	rows := modeltest.Rows(a, 101, 1)
	logits := make([]float64, rows.Len())
	m.NewScorer().Logits(logits, rows)
	want := Metrics{Rows: 101, AUC: AUC(logits, rows.Label)}
	for i, z := range logits {
		want.Loss += loss.Logistic.Of(z, rows.Label[i])
	}
	want.Loss /= 101
	for _, threads := range []int{1, 2, 7} {
		for _, size := range []int{1, 10, 101} {
			p, err := Predict(t.Context(), m, loss.Logistic, batches(rows, size), threads)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Metrics(); got != want {
				t.Errorf("%d threads, batches of %d: %+v, want %+v", threads, size, got, want)
			}
		}
	}
	rows.Features[3*50] = 77
	if _, err := Predict(t.Context(), m, loss.Logistic, batches(rows, 20), 2); !fault.IsInput(err) || !strings.Contains(err.Error(), "row 50: field 0 has global id 77") {
		t.Errorf("error for a bad row: %v", err)
	}
}

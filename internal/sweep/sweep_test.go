package sweep

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"shaver/internal/baseline"
	"shaver/internal/compact"
	"shaver/internal/estimator"
	"shaver/internal/evaluate"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/model"
	"shaver/internal/model/modeltest"
	"shaver/internal/prune"
	"shaver/internal/scores"
	"shaver/internal/tally"
)

// table returns a small model, its unpruned table, and scores by the given estimator. The
// scores rank the entries by their position.
func table(t *testing.T, by string) (*model.Model, *Unpruned, *scores.File) {
	t.Helper()
	m := modeltest.Random(t, modeltest.Architectures()["deepfm"], 1)
	f := &scores.File{Spec: job.Spec{Options: estimator.Options{Estimator: by, Passes: 1}, Baseline: baseline.Codebook, Sample: 1}, Baseline: make([]float32, m.Players())}
	f.Scores = tally.Scores{Dim: m.Dim, Values: tally.NewValues(m.Parameters())}
	for i := range f.Phi {
		f.Phi[i], f.RMS[i] = float64(i), float32(-i)
		f.RMS[i] = float32(m.Parameters() - i)
	}
	counts := make([]int64, m.Features())
	return m, &Unpruned{
		Architecture: &m.Architecture, Names: []string{"a", "b", "c"}, Entries: m.Weights.Embedding, Values: compact.Float32,
		Counts: func() ([]int64, error) { return counts, nil },
	}, f
}

// ByScores drops the entries with the lowest scores and keeps protected fields. The name of
// the method has the estimator and the aggregate.
func TestByScores(t *testing.T) {
	m, start, f := table(t, "permutation")
	const source = 3
	method, err := start.ByScores(f, source, scores.Sum, prune.Abs)
	if err != nil {
		t.Fatal(err)
	}
	half := prune.Budget{Unit: prune.Sparsity, Amount: .5}
	p, entries, err := method.Cut(half)
	if err != nil {
		t.Fatal(err)
	}
	n := m.Parameters()
	for i, v := range entries {
		if gone := i < n/2; (v == 0) != gone {
			t.Errorf("entry %d of %d is %v", i, n, v)
		}
	}
	want := Point{Method: "shapley", Source: p.Source, Baseline: baseline.Codebook, Values: "float32", Bits: 32, Sparsity: .5, Parameters: n/2 + m.Players(), EmptyFeatures: n / 2 / m.Dim}
	if p != want || *p.Source != source {
		t.Errorf("point %+v with source %d, expected %+v", p, *p.Source, want)
	}

	f.Spec.Estimator = "taylor"
	start.Keep, start.Values = prune.Keep{Fields: []string{"c"}}, compact.Int8
	method, err = start.ByScores(f, source, scores.RMS, prune.Abs) // ranks the entries in the reverse order
	if err != nil {
		t.Fatal(err)
	}
	if p, entries, err = method.Cut(half); err != nil {
		t.Fatal(err)
	}
	if p.Method != "taylor-rms" || p.Bits != 8 || slices.Contains(entries[7*m.Dim:], 0) || p.EmptyFeatures == 0 {
		t.Errorf("point %+v, table %v", p, entries)
	}
	if _, _, err := method.Cut(prune.Budget{Unit: prune.Sparsity, Amount: .9}); !fault.IsUsage(err) || !strings.Contains(err.Error(), "only 21 of 36 may be dropped") {
		t.Error(err)
	}
	if _, err := start.ByScores(f, source, scores.RMS, prune.Signed); !fault.IsUsage(err) {
		t.Error(err)
	}
}

// Every rival has a table at its budgets, and no two rivals have the same table.
func TestRivals(t *testing.T) {
	_, start, f := table(t, "permutation")
	seen := map[string]string{}
	for _, name := range Rivals() {
		m, err := start.Rival(name, f.Spec.Baseline, f.Baseline, 1)
		if err != nil {
			t.Fatal(err)
		}
		budgets := m.Own()
		if budgets == nil {
			budgets = []prune.Budget{{Unit: prune.Sparsity, Amount: .5}}
		}
		p, entries, err := m.Cut(budgets[0])
		if err != nil || p.Method != name || p.Source != nil {
			t.Errorf("%s: point %+v, error %v", name, p, err)
		}
		key := ""
		for _, v := range entries {
			key += string(rune(int32(math.Float32bits(v)>>12))) + " "
		}
		if name == Frequency { // no feature occurs, so all entries tie and the smallest weights are dropped
			if key != seen[Magnitude] {
				t.Error("without occurrences frequency gives a different table than magnitude")
			}
			continue
		}
		for other, k := range seen {
			if k == key && !strings.HasPrefix(name, "ptq16") && !strings.HasPrefix(name, "ptq8") {
				t.Errorf("%s and %s give the same table", name, other)
			}
		}
		seen[name] = key
		if strings.HasPrefix(name, "ptq") && p.Sparsity != 1-float64(p.Bits)/32 {
			t.Errorf("%s has the sparsity %g with %d bits", name, p.Sparsity, p.Bits)
		}
	}
	if _, err := start.Rival("best", f.Spec.Baseline, f.Baseline, 1); !fault.IsUsage(err) {
		t.Error(err)
	}
}

// fake is a method whose tables have mark as their first entry.
type fake struct {
	name string
	mark float32
	own  []prune.Budget
}

func (f fake) Own() []prune.Budget { return f.own }

func (f fake) Cut(b prune.Budget) (Point, []float32, error) {
	return Point{Method: f.name, Sparsity: b.Amount}, append([]float32{f.mark}, make([]float32, 35)...), nil
}

// predicting returns predictions of 10 rows. The first entry of the table is the number of
// rows with the logits 0, 1, 2, and so on. The other rows have negative logits.
func predicting(_ context.Context, m *model.Model) (*evaluate.Predictions, error) {
	p := &evaluate.Predictions{}
	for i := range 10 {
		logit := float64(i)
		if i >= int(m.Weights.Embedding[0]) {
			logit = -logit
		}
		p.Logits, p.Labels = append(p.Logits, logit), append(p.Labels, uint8(i/5))
	}
	return p, nil
}

// Run measures every method at its budgets. With Select it measures only the best method.
func TestRun(t *testing.T) {
	m := modeltest.Random(t, modeltest.Architectures()["deepfm"], 1)
	c := Config{Model: m, Predict: predicting, Validate: predicting, Calibrate: true}
	budgets := []prune.Budget{{Unit: prune.Sparsity, Amount: .5}, {Unit: prune.Sparsity, Amount: .9}}
	c.Methods, c.Budgets = []Method{fake{"a", 6, nil}, fake{"p", 9, budgets[:1]}, fake{"b", 10, nil}, fake{"c", 10, nil}}, budgets
	var all Document
	if err := c.Run(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if got := methods(&all); got != "a b c a b c p" {
		t.Errorf("methods %s, expected a b c a b c p", got)
	}
	if n, validated := c.Work(); n != 8 || validated != 8 {
		t.Errorf("Work returns %d and %d", n, validated)
	}
	for _, p := range all.Points {
		if p.Calibration == nil || *p.CalibratedLogLoss > p.LogLoss {
			t.Errorf("%s: calibration of %+v does not lower the LogLoss %g", p.Method, p.Measure, p.LogLoss)
		}
	}
	c.Select, c.Calibrate = true, false
	var chosen Document
	if err := c.Run(t.Context(), &chosen); err != nil {
		t.Fatal(err)
	}
	if got := methods(&chosen); got != "b b p" {
		t.Errorf("methods %s, expected b b p: of the methods with the highest AUC the first is chosen", got)
	}
	if n, validated := c.Work(); n != 4 || validated != 6 {
		t.Errorf("Work returns %d and %d", n, validated)
	}
	if p := chosen.Points[0]; *p.ValidationAUC != 1 || p.Calibration != nil || chosen.Points[2].ValidationAUC != nil {
		t.Errorf("points with Select: %+v", chosen.Points)
	}
	broken := errors.New("broken")
	c.Validate = func(context.Context, *model.Model) (*evaluate.Predictions, error) { return nil, broken }
	if err := c.Run(t.Context(), &chosen); !errors.Is(err, broken) {
		t.Error(err)
	}
	c.Validate = func(context.Context, *model.Model) (*evaluate.Predictions, error) {
		return &evaluate.Predictions{Logits: []float64{1}, Labels: []uint8{1}}, nil
	}
	if err := c.Run(t.Context(), &chosen); !fault.IsInput(err) {
		t.Errorf("with only one kind of label, Select: %v", err)
	}
	if c.Select, c.Calibrate = false, true; !fault.IsInput(c.Run(t.Context(), &chosen)) {
		t.Error("Calibrate accepts labels of only one kind")
	}
}

func methods(d *Document) string {
	var names []string
	for _, p := range d.Points {
		names = append(names, p.Method)
	}
	return strings.Join(names, " ")
}

// Series combines repeats into their mean and deviation. The labels name all other
// differences.
func TestSeries(t *testing.T) {
	value := func(v float64) *float64 { return &v }
	at := func(i int) *int { return &i }
	both := []string{"train", "val"}
	d := &Document{Sources: []ScoresFile{
		{Options: estimator.Options{Estimator: "multilinear", Draws: 8}, Seed: 1, Splits: both, Sample: 1},
		{Options: estimator.Options{Estimator: "multilinear", Draws: 8}, Seed: 2, Splits: both, Sample: 1},
		{Options: estimator.Options{Estimator: "permutation"}, Seed: 1, Splits: both[:1], Sample: .1},
	}}
	add := func(method string, source *int, values string, sparsity, auc float64) {
		d.Points = append(d.Points, Point{Method: method, Source: source, Baseline: baseline.Zero, Values: values, Sparsity: sparsity, Measure: Measure{AUC: value(auc), LogLoss: .5}})
	}
	add("shapley", at(0), "float32", .5, .7)
	add("shapley", at(1), "float32", .5, .8)
	add("shapley", at(2), "float32", .5, .6)
	add("magnitude", nil, "float32", .5, .6)
	add("magnitude", nil, "int8", .5, .5)
	add("shapley", at(0), "float32", .9, .4)
	series := d.Series()
	var labels []string
	for _, s := range series {
		labels = append(labels, s.Label)
	}
	if want := []string{"shapley, multilinear, 8 draws, train and val, 1 of the rows", "shapley, permutation, train, 0.1 of the rows", "magnitude, float32", "magnitude, int8"}; !slices.Equal(labels, want) {
		t.Errorf("labels %q, expected %q", labels, want)
	}
	if p := series[0].Points; len(p) != 2 || p[0].AUC.String() != "0.7500±0.0500" || p[1].AUC.String() != "0.4000" || !math.IsNaN(p[0].Calibrated.Mean) {
		t.Errorf("points %+v", series[0].Points)
	}
	var text strings.Builder
	d.WriteTable(&text)
	if lines := strings.Split(strings.TrimSpace(text.String()), "\n"); len(lines) != 7 || !strings.Contains(lines[2], "0.7500±0.0500") || !strings.HasPrefix(lines[6], "0.9\t") {
		t.Errorf("table\n%s", text.String())
	}
}

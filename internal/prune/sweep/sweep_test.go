package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/keep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
)

// table returns a small model, its unpruned table, and scores by the given estimator. The
// scores rank the entries by their position.
func table(t *testing.T, by string) (*model.Model, *Unpruned, *scores.File) {
	t.Helper()
	m := modeltest.Random(t, modeltest.Architectures()["deepfm"], 1)
	f := &scores.File{Spec: job.Spec{Options: estimator.Options{Estimator: by, Passes: 1}, Baseline: baseline.Codebook, Sample: 1}, Baseline: m.Zero()}
	f.Scores = tally.Scores{Shape: m.Shape(), Values: tally.NewValues(m.Parameters())}
	for i := range f.Phi {
		f.Phi[i], f.RMS[i] = float64(i), float32(-i)
		f.RMS[i] = float32(m.Parameters() - i)
	}
	counts := make([]int64, m.Features())
	return m, &Unpruned{
		Architecture: &m.Architecture, Names: []string{"a", "b", "c"}, Entries: m.Weights.Embedding, Values: compact.Float32,
		Counts: func() ([]int64, error) { return counts, nil },
		Footprint: func(dropped []bool, _ model.Baseline) (file, table, memory int64) {
			return int64(len(dropped)) + 2, 2, 1
		},
	}, f
}

// ByScores drops the entries with the lowest scores and keeps protected fields. The name of
// the method has the estimator and the aggregate.
func TestByScores(t *testing.T) {
	m, start, f := table(t, "permutation")
	const source = 3
	for i := range f.Baseline.Values {
		f.Baseline.Values[i] = 5
	}
	method, err := start.ByScores(f, source, scores.Sum, mask.Abs)
	if err != nil {
		t.Fatal(err)
	}
	half := mask.Budget{Unit: mask.Sparsity, Amount: .5}
	p, entries, err := method.Cut(half)
	if err != nil {
		t.Fatal(err)
	}
	n := m.Parameters()
	for i, v := range entries {
		if gone := i < n/2; (v == 5) != gone {
			t.Errorf("entry %d of %d is %v", i, n, v)
		}
	}
	want := Point{Method: "shapley", Source: p.Source, Baseline: baseline.Codebook, Values: "float32", Bits: 32, Sparsity: .5, Parameters: n/2 + m.Players(), EmptyFeatures: n / 2 / m.Dim}
	file, stored, memory := int64(n+2), int64(2), int64(1) // as Footprint says
	want.Bytes, want.TableBytes, want.MemoryBytes = &file, &stored, &memory
	if !reflect.DeepEqual(p, want) || *p.Source != source {
		t.Errorf("point %+v with source %d, expected %+v", p, *p.Source, want)
	}

	f.Spec.Estimator = "taylor"
	start.Keep, start.Values = keep.Rules{Fields: []string{"c"}}, compact.Int8
	method, err = start.ByScores(f, source, scores.RMS, mask.Abs) // ranks the entries in the reverse order
	if err != nil {
		t.Fatal(err)
	}
	if p, entries, err = method.Cut(half); err != nil {
		t.Fatal(err)
	}
	if p.Method != "taylor-rms" || p.Bits != 8 || slices.Contains(entries[7*m.Dim:], 0) || p.EmptyFeatures == 0 {
		t.Errorf("point %+v, table %v", p, entries)
	}
	if _, _, err := method.Cut(mask.Budget{Unit: mask.Sparsity, Amount: .9}); !fault.IsUsage(err) || !strings.Contains(err.Error(), "only 21 of 36 may be dropped") {
		t.Error(err)
	}
	if _, err := start.ByScores(f, source, scores.RMS, mask.Signed); !fault.IsUsage(err) {
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
			budgets = []mask.Budget{{Unit: mask.Sparsity, Amount: .5}}
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
	own  []mask.Budget
}

func (f fake) Own() []mask.Budget { return f.own }

func (f fake) Cut(b mask.Budget) (Point, []float32, error) {
	return Point{Method: f.name, Sparsity: b.Amount}, append([]float32{f.mark}, make([]float32, 35)...), nil
}

// Dropped drops one entry, unless the method has its own budgets.
func (f fake) Dropped(mask.Budget) ([]bool, error) {
	if f.own != nil {
		return nil, nil
	}
	return append([]bool{true}, make([]bool, 35)...), nil
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
		p.Logits, p.Labels = append(p.Logits, logit), append(p.Labels, float32(i/5))
	}
	return p, nil
}

// Run measures every method at its budgets.
func TestRun(t *testing.T) {
	m := modeltest.Random(t, modeltest.Architectures()["deepfm"], 1)
	c := Config{Model: m, Predict: predicting, Validate: predicting, Calibrate: true}
	budgets := []mask.Budget{{Unit: mask.Sparsity, Amount: .5}, {Unit: mask.Sparsity, Amount: .9}}
	c.Methods, c.Budgets = []Method{fake{"a", 6, nil}, fake{"p", 9, budgets[:1]}, fake{"b", 10, nil}, fake{"c", 10, nil}}, budgets
	var all Document
	if err := c.Run(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if got := methods(&all); got != "a b c a b c p" {
		t.Errorf("methods %s, expected a b c a b c p", got)
	}
	if n := c.Work(); n != 8 {
		t.Errorf("Work returns %d", n)
	}
	for _, p := range all.Points {
		if p.Calibration == nil || *p.CalibratedLogLoss > *p.LogLoss {
			t.Errorf("%s: calibration of %+v does not lower the LogLoss %g", p.Method, p.Measure, *p.LogLoss)
		}
	}
	broken := errors.New("broken")
	c.Validate = func(context.Context, *model.Model) (*evaluate.Predictions, error) { return nil, broken }
	if err := c.Run(t.Context(), &all); !errors.Is(err, broken) {
		t.Error(err)
	}
	c.Validate = func(context.Context, *model.Model) (*evaluate.Predictions, error) {
		return &evaluate.Predictions{Logits: []float64{1}, Labels: []float32{1}}, nil
	}
	if err := c.Run(t.Context(), &all); !fault.IsInput(err) {
		t.Errorf("with only one kind of label, Calibrate: %v", err)
	}
}

// Run compares each table with the unpruned one, on all rows and on the slices, and keeps the
// sizes that methods set.
func TestRunCompares(t *testing.T) {
	m := modeltest.Random(t, modeltest.Architectures()["deepfm"], 1)
	const n = 600
	r := rand.New(rand.NewPCG(5, 6))
	noise := make([]float64, 2*n)
	labels := make([]float32, n)
	for i := range noise {
		noise[i] = r.NormFloat64()
		labels[i/2] = float32(r.IntN(2))
	}
	predict := func(_ context.Context, m *model.Model) (*evaluate.Predictions, error) {
		p := &evaluate.Predictions{Labels: labels}
		mark := float64(m.Weights.Embedding[0])
		for i, label := range labels {
			p.Logits = append(p.Logits, float64(label)+noise[i]+mark*noise[n+i])
		}
		return p, nil
	}
	rows := &model.Rows{Width: m.Fields()}
	counts := make([]int64, m.Features())
	for i := range counts {
		counts[i] = 5000
	}
	counts[0] = 7 // a rare feature of the first field
	offsets := m.Offsets()
	for i, label := range labels {
		for j := range m.Fields() {
			feature := offsets[j]
			if j > 0 || i%3 > 0 {
				feature++
			}
			rows.Features = append(rows.Features, feature)
		}
		rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, label)
	}
	slicer := NewSlicer(&m.Architecture, []string{"a", "b", "c"}, counts, nil)
	slicer.Add(rows)
	c := Config{Model: m, Predict: predict, Validate: predict, Calibrate: true, Slices: slicer,
		Methods: []Method{fake{"a", 2, nil}}, Budgets: []mask.Budget{{Unit: mask.Sparsity, Amount: .5}}}
	size := int64(9)
	d := &Document{Unpruned: Measure{Bytes: &size}}
	for range 2 { // the second run replaces what is not a point
		if err := c.Run(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	whole := func(m *model.Model) *evaluate.Predictions { p, _ := predict(t.Context(), m); return p }
	third := func(p *evaluate.Predictions, rest ...int) *evaluate.Predictions {
		part := &evaluate.Predictions{}
		for i := range labels {
			if slices.Contains(rest, i%3) {
				part.Logits, part.Labels = append(part.Logits, p.Logits[i]), append(part.Labels, p.Labels[i])
			}
		}
		return part
	}
	_, table, _ := c.Methods[0].Cut(c.Budgets[0])
	before, after := whole(m), whole(m.WithEmbedding(table))
	p := &d.Points[0]
	check := func(what string, metrics Metrics, got *Differences, calibrations [2]*loss.Calibration, a, b *evaluate.Predictions) {
		t.Helper()
		want := evaluate.Compare(a, b)
		calibrated := evaluate.CompareLoss(a, b, *calibrations[0], *calibrations[1])
		if !reflect.DeepEqual(got, &Differences{AUC: NewInterval(want.AUC), LogLoss: NewInterval(want.Loss), CalibratedLogLoss: NewInterval(calibrated)}) {
			t.Errorf("%s: %+v, expected %+v and %+v", what, got, want, calibrated)
		}
		if *metrics.AUC != b.Metrics().AUC || *metrics.LogLoss != b.Metrics().Loss || *metrics.CalibratedLogLoss != b.MeanLoss(*calibrations[1]) {
			t.Errorf("%s: %+v, expected %+v", what, metrics, b.Metrics())
		}
	}
	both := [2]*loss.Calibration{d.Unpruned.Calibration, p.Calibration}
	check("all rows", p.Metrics, p.Difference, both, before, after)
	nine, rare := int64(9), int64(99)
	want := []Slice{{Least: 1, Most: &nine}, {Least: 1000}, {Field: "a", Most: &rare}}
	for k, rest := range [][]int{{0}, {1, 2}, {0}} {
		part := third(after, rest...)
		want[k].Rows = int64(len(part.Labels))
		want[k].Positives = new(int64)
		for _, label := range part.Labels {
			*want[k].Positives += int64(label)
		}
		check("slice", p.Slices[k].Metrics, p.Slices[k].Difference, both, third(before, rest...), part)
	}
	if !reflect.DeepEqual(d.Slices, want) || len(p.Slices) != 3 || len(d.Unpruned.Slices) != 3 || d.Unpruned.Slices[0].Difference != nil {
		t.Errorf("slices %+v, expected %+v", d.Slices, want)
	}
	if d.Unpruned.Bytes != &size || len(d.Points) != 2 {
		t.Errorf("unpruned %+v, %d points", d.Unpruned, len(d.Points))
	}
	for i, bin := range p.CalibrationCurve {
		predicted := evaluate.Rank(after).Curve(curveBins, loss.Uncalibrated)[i].Predicted
		calibrated := evaluate.Rank(after).Curve(curveBins, *p.Calibration)[i].Predicted
		if len(p.CalibrationCurve) != curveBins || bin.Rows != n/curveBins || bin.Predicted != predicted || *bin.Calibrated != calibrated {
			t.Errorf("bin %d of %d: %+v", i, len(p.CalibrationCurve), bin)
		}
	}
	text := strings.Builder{}
	d.WriteTable(&text)
	if line := strings.Split(text.String(), "\n")[2]; !strings.Contains(line, p.Difference.AUC.String()) || !strings.Contains(p.Difference.AUC.String(), Mark) {
		t.Errorf("line %q, expected %q", line, p.Difference.AUC)
	}
	if !strings.Contains(text.String(), "\n* differs from the unpruned table") {
		t.Errorf("table\n%s", text.String())
	}
}

// A slice needs enough rows, rows of both labels, and rows of the split that it lacks.
func TestSlicesAreWorthMeasuring(t *testing.T) {
	a := &model.Architecture{FieldDims: slices.Repeat([]int{2}, 10), Dim: 1}
	counts := make([]int64, 20)
	var names []string
	for j := range 10 {
		counts[2*j], counts[2*j+1] = int64(j), 2000 // feature 2j is the rarer, the more the greater j
		names = append(names, string(rune('a'+j)))
	}
	add := func(s *Slicer, n int, label float32, rare ...int) {
		rows := &model.Rows{Width: 10}
		for range n {
			for j := range 10 {
				feature := int32(2*j + 1)
				if slices.Contains(rare, j) {
					feature--
				}
				rows.Features = append(rows.Features, feature)
			}
			rows.Label = append(rows.Label, label)
		}
		s.Add(rows)
	}
	fields := func(s *Slicer) (text string) {
		for _, k := range s.shown() {
			text += cmp.Or(s.slices[k].Field, "*")
		}
		return text
	}
	s := NewSlicer(a, names, counts, nil)
	add(s, 1000, 0)
	add(s, 1000, 1)
	if got := fields(s); got != "" {
		t.Errorf("slices %q of rows that are all alike", got)
	}
	add(s, 100, 0, 0, 1, 2, 3, 4, 9) // a, b, c: a and b are not among the fields with the most occurrences of rare features
	if got := fields(s); got != "" {
		t.Errorf("slices %q with one label", got)
	}
	add(s, 1, 1, 0, 1, 2, 3, 4, 5)
	if got := fields(s); got != "*edc" {
		t.Errorf("slices %q, expected the rarest feature and three fields", got)
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
		d.Unpruned.LogLoss = new(.5)
		d.Points = append(d.Points, Point{Method: method, Source: source, Baseline: baseline.Zero, Values: values, Sparsity: sparsity, Measure: Measure{Metrics: Metrics{AUC: value(auc), LogLoss: new(.5)}}})
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

// The table of a sweep fits a terminal of 80 columns, also with a calibrated loss and many parameters.
func TestTableFits(t *testing.T) {
	interval := func(v float64) *Interval { return within(v, .0123) }
	measure := Measure{Metrics: Metrics{AUC: new(.7654), LogLoss: new(.4321), CalibratedLogLoss: new(.4322)}, Bytes: new(int64(1)), TableBytes: new(int64(1)), Calibration: &loss.Calibration{Scale: 1}}
	d := Document{Rows: 1000, Entries: 9_876_543, Features: 1_000_000, Unpruned: measure}
	for _, method := range []string{"path", "shapley-rms", "magnitude", "taylor-rms"} {
		d.Points = append(d.Points, Point{Method: method, Sparsity: .999, Parameters: 12_345, Measure: measure, Difference: &Differences{AUC: interval(-.1), LogLoss: interval(.1), CalibratedLogLoss: interval(.1)}})
	}
	var text, table strings.Builder
	d.WriteTable(&text)
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	rows, _, _ := strings.Cut(text.String(), Mark[1:]+" differs")
	fmt.Fprint(w, rows)
	w.Flush()
	for line := range strings.Lines(table.String()) {
		if line = strings.TrimRight(line, " \n"); len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if !strings.Contains(rows, "CALIBRATED") || !strings.Contains(rows, "0.4322 *") {
		t.Errorf("the table lacks the calibrated loss:\n%s", rows)
	}
}

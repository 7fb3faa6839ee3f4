package sweep

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/keep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// taylor returns the scores of the rows by Taylor with the zero baseline.
func taylor(t *testing.T, m *model.Model, rows *model.Rows) *scores.File {
	t.Helper()
	zero := m.Zero()
	o := estimator.Options{Estimator: estimator.Taylor, Passes: 1}
	p, err := shapley.Estimate(t.Context(), shapley.Game{Model: m, Baseline: zero, Loss: loss.Logistic}, shapley.Options{Options: o}, rows, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	sampling := tally.NewSampling(o, int64(rows.Len()))
	sums := tally.NewAccumulator(m.Shape(), sampling.Form(m.Fields()))
	if err := sums.Merge(p); err != nil {
		t.Fatal(err)
	}
	result, err := sums.Result(sampling)
	if err != nil {
		t.Fatal(err)
	}
	return &scores.File{Layout: scores.LayoutOf(&m.Architecture), Spec: job.Spec{Options: o, Baseline: baseline.Zero, Sample: 1}, Baseline: zero, DatasetRows: int64(rows.Len()), Result: *result}
}

// unpruned returns the table of m.
func unpruned(m *model.Model) *Unpruned {
	return &Unpruned{Architecture: &m.Architecture, Names: []string{"a", "b", "c"}, Entries: m.Weights.Embedding, Values: compact.Float32}
}

// slope returns the derivative of the mean loss at 1 by a factor of the elements that scaled
// selects. It is a difference of the reference formula in float64.
func slope(m *model.Model, rows *model.Rows, scaled func(row []int32, element int) bool) float64 {
	const h = 1e-5
	mean := func(factor float64) (sum float64) {
		entries, x := make([]float32, m.Players()), make([]float64, m.Players())
		for r := range rows.Len() {
			row := rows.Row(r)
			m.Embed(entries, row)
			for i, e := range entries {
				x[i] = float64(e)
				if scaled(row, i) {
					x[i] *= factor
				}
			}
			sum += loss.Logistic.Of(modeltest.Logit(&m.Architecture, &m.Weights, row, x), rows.Label[r])
		}
		return sum / float64(rows.Len())
	}
	return (mean(1+h) - mean(1-h)) / (2 * h)
}

// SSEDS drops the columns whose factors have the smallest derivatives, and only whole ones.
func TestSSEDS(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		if a.Kind == model.NeuMF { // a GMF column of the user has the same derivative as that of the item
			continue
		}
		m := modeltest.Random(t, a, 6)
		rows := modeltest.Rows(a, 40, 6)
		f := taylor(t, m, rows)
		method, err := unpruned(m).BySSEDS(f, 0)
		if err != nil {
			t.Fatal(err)
		}
		type column struct {
			field, position int
			slope           float64
		}
		var columns []column
		for j := range a.FieldDims {
			for c := range a.Dim {
				columns = append(columns, column{j, c, math.Abs(slope(m, rows, func(_ []int32, i int) bool { return i == j*a.Dim+c }))})
			}
		}
		slices.SortFunc(columns, func(x, y column) int { return cmp.Compare(x.slope, y.slope) })
		for i := range columns[1:] {
			if columns[i+1].slope-columns[i].slope < 1e-6 {
				t.Fatalf("%s: the slopes %v of two columns are too close for this test", name, columns[i:i+2])
			}
		}
		want, dropped := slices.Clone(m.Weights.Embedding), 0
		for k, next := range columns {
			before := dropped
			for feature := range a.FieldDims[next.field] {
				want[(int(a.Offsets()[next.field])+feature)*a.Dim+next.position] = 0
				dropped++
			}
			for _, least := range []int{before + 1, dropped} {
				p, table, err := method.Cut(mask.Budget{Unit: mask.Kept, Amount: float64(a.Parameters() - least)})
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(table, want) {
					t.Fatalf("%s: the table without %d columns is %v, expected %v", name, k+1, table, want)
				}
				if p.Method != SSEDS || p.Parameters != a.Parameters()-dropped || p.Sparsity != float64(dropped)/float64(a.Parameters()) {
					t.Fatalf("%s: point %+v, expected one without %d entries", name, p, dropped)
				}
			}
		}
	}
}

// SNIP ranks the entries of a model by the derivatives of another model by factors of its entries.
// Entries of features that no row has come first, by their magnitudes in the pruned model.
func TestSNIP(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		initial, m := modeltest.Random(t, a, 7), modeltest.Random(t, a, 8)
		rows := modeltest.Rows(a, 40, 7)
		rows.Features = slices.Clone(rows.Features)
		missing := a.Offsets()[1]
		for i, feature := range rows.Features {
			if feature == missing {
				rows.Features[i]++
			}
		}
		f := taylor(t, initial, rows)
		f.Spec.Model = "the initial model"
		if err := CheckSNIP(f, &m.Architecture, "the model"); err != nil {
			t.Fatal(err)
		}
		worth := make([]float64, a.Parameters())
		for i := range worth {
			worth[i] = math.Abs(slope(initial, rows, func(row []int32, element int) bool {
				return int(row[element/a.Dim])*a.Dim+element%a.Dim == i
			}))
		}
		order, err := SNIPOrder(f, m.Weights.Embedding)
		if err != nil {
			t.Fatal(err)
		}
		for k := range order[1:] {
			i, j := order[k], order[k+1]
			if worth[i] > worth[j]+1e-6 {
				t.Fatalf("%s: entry %d with the derivative %g is dropped before entry %d with %g", name, i, worth[i], j, worth[j])
			}
			if k+1 < a.Dim && (int(i)/a.Dim != int(missing) || math.Abs(float64(m.Weights.Embedding[i])) > math.Abs(float64(m.Weights.Embedding[j]))) {
				t.Fatalf("%s: the order %v does not begin with the feature %d that no row has, by magnitude", name, order, missing)
			}
		}
		method, err := unpruned(m).BySNIP(f, 4)
		if err != nil {
			t.Fatal(err)
		}
		p, table, err := method.Cut(mask.Budget{Unit: mask.Sparsity, Amount: .5})
		if err != nil || p.Method != SNIP || *p.Source != 4 || p.Baseline != baseline.Zero || p.Sparsity != .5 {
			t.Errorf("%s: point %+v, error %v", name, p, err)
		}
		for k, i := range order {
			want := m.Weights.Embedding[i]
			if k < len(order)/2 {
				want = 0
			}
			if table[i] != want {
				t.Fatalf("%s: entry %d is %g, expected %g", name, i, table[i], want)
			}
		}
	}
}

// SNIP refuses scores of the pruned model, of other tables, and of another estimator.
func TestSNIPRefusesScores(t *testing.T) {
	a := modeltest.Architectures()["fm"]
	m := modeltest.Random(t, a, 1)
	f := taylor(t, m, modeltest.Rows(a, 3, 1))
	f.Spec.Model = "x"
	wide := a
	wide.Dim++
	codebook := *f
	codebook.Spec.Baseline = baseline.Codebook
	for _, c := range []struct {
		f      *scores.File
		a      *model.Architecture
		digest string
		want   string
	}{
		{f, &a, "x", "the scores are those of this model: expected those of the model before its training"},
		{f, &wide, "y", "the scores are for a table of 12 features x 3 columns, the model has a table of 12 features x 4 columns"},
		{&codebook, &a, "y", `method "snip" needs scores of the estimator taylor with the baseline zero, not of taylor with codebook`},
	} {
		if err := CheckSNIP(c.f, c.a, c.digest); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, expected %q", err, c.want)
		}
	}
	if _, err := unpruned(m).BySNIP(&codebook, 0); !fault.IsInput(err) {
		t.Error(err)
	}
}

// If a field has a single feature, a column of it has one entry, and SSEDS and Taylor agree.
func TestSSEDSOfMergedFeatures(t *testing.T) {
	a := modeltest.Architectures()["deepfm"]
	a.FieldDims = []int{1, 1, 1}
	m := modeltest.Random(t, a, 2)
	f := taylor(t, m, modeltest.Rows(a, 20, 2))
	columns, err := SSEDSOrder(f)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := Order(f, scores.Sum, mask.Abs, m.Weights.Embedding)
	if err != nil || !slices.Equal(columns, entries) {
		t.Errorf("SSEDS has the order %v and Taylor %v; error %v", columns, entries, err)
	}
}

// Entries that must stay may cut columns. A budget in bytes is met by whole columns, even if
// the first file that fits has none.
func TestSSEDSBudgets(t *testing.T) {
	a := modeltest.Architectures()["deepfm"]
	m := modeltest.Random(t, a, 6)
	f := taylor(t, m, modeltest.Rows(a, 40, 6))
	start := unpruned(m)
	for _, c := range []struct {
		protect []string
		most    int // number of entries that may be dropped
	}{{[]string{"b"}, 4*a.Dim/2 + 5*a.Dim/2}, {[]string{"b", "c"}, 4 * a.Dim / 2}} {
		start.Keep = keep.Rules{Fields: c.protect, Minimum: .5}
		for seed := range uint64(50) {
			copy(f.Phi, mask.Random(len(f.Phi), seed))
			method, err := start.BySSEDS(f, 0)
			if err != nil {
				t.Fatal(err)
			}
			for drop := range c.most + 1 {
				p, table, err := method.Cut(mask.Budget{Unit: mask.Kept, Amount: float64(a.Parameters() - drop)})
				if err != nil || p.Parameters > a.Parameters()-drop {
					t.Fatalf("seed %d: point %+v, error %v", seed, p, err)
				}
				for j, name := range start.Names {
					zeros, entries := 0, table[int(a.Offsets()[j])*a.Dim:][:a.FieldDims[j]*a.Dim]
					for _, v := range entries {
						if v == 0 {
							zeros++
						}
					}
					if 2*zeros > len(entries) || zeros > 0 && slices.Contains(c.protect, name) {
						t.Fatalf("seed %d: %d of %d entries of field %s are dropped", seed, zeros, len(entries), name)
					}
				}
			}
			if _, _, err := method.Cut(mask.Budget{Unit: mask.Kept, Amount: float64(a.Parameters() - c.most - 1)}); !fault.IsUsage(err) {
				t.Error(err)
			}
		}
	}

	start.Keep = keep.Rules{}
	start.Fit = func([]int32, int, model.Baseline, int64) (int, error) { return 1, nil }
	smallest := 20 // number of dropped entries from which on the file is small
	start.Footprint = func(dropped []bool, _ model.Baseline) (file, table, memory int64) {
		n := 0
		for _, gone := range dropped {
			if gone {
				n++
			}
		}
		if n < smallest {
			return 2000, 0, 0
		}
		return 1000, 0, 0
	}
	method, err := start.BySSEDS(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := method.Cut(mask.Budget{Unit: mask.Bytes, Amount: 1500})
	if err != nil || a.Parameters()-p.Parameters < smallest {
		t.Errorf("point %+v, error %v, expected at least %d dropped entries", p, err, smallest)
	}
	order, _ := SSEDSOrder(f)
	if dropped := a.Parameters() - p.Parameters; dropped != mask.WholeColumns(&a, order, smallest) {
		t.Errorf("%d dropped entries, expected the first whole columns from %d on", dropped, smallest)
	}
	if _, _, err := method.Cut(mask.Budget{Unit: mask.Bytes, Amount: 500}); !fault.IsUsage(err) || !strings.Contains(err.Error(), "no number of whole columns fits") {
		t.Error(err)
	}
}

// SSEDS refuses scores that are not products of gradients and weights.
func TestSSEDSRefusesScores(t *testing.T) {
	a := modeltest.Architectures()["fm"]
	m := modeltest.Random(t, a, 1)
	for _, c := range []struct {
		by, baseline, want string
	}{
		{estimator.Permutation, baseline.Zero, `method "sseds" needs scores of the estimator taylor with the baseline zero, not of permutation with zero`},
		{estimator.Taylor, baseline.Codebook, `not of taylor with codebook`},
	} {
		f := taylor(t, m, modeltest.Rows(a, 3, 1))
		f.Spec.Estimator, f.Spec.Baseline = c.by, c.baseline
		if _, err := unpruned(m).BySSEDS(f, 0); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, expected %q", err, c.want)
		}
	}
}

// A method that ranks by scores has their aggregate, unless it is a method of its own.
func TestAggregateOf(t *testing.T) {
	first, second, last := 0, 1, 2
	d := &Document{Sources: []ScoresFile{
		{Options: estimator.Options{Estimator: "taylor"}, Baseline: "zero"},
		{Options: estimator.Options{Estimator: "permutation"}, Baseline: "codebook"},
		{Options: estimator.Options{Estimator: "taylor"}, Baseline: "zero", Model: "ab"},
	}}
	for want, p := range map[string]Point{
		"abs": {Method: "shapley-abs", Source: &second}, "sum": {Method: Name(&d.Sources[1].Options, "sum"), Source: &second},
	} {
		if found, err := d.AggregateOf(&p); err != nil || found != want {
			t.Errorf("%+v: aggregate %q, %v", p, found, err)
		}
	}
	for _, p := range []Point{{Method: SSEDS, Source: &first}, {Method: SNIP, Source: &last}, {Method: Magnitude}} {
		if found, err := d.AggregateOf(&p); err != nil || found != "" {
			t.Errorf("%+v: aggregate %q, %v", p, found, err)
		}
	}
	for _, p := range []Point{{Method: "taylor-abs", Source: &second}, {Method: "taylor-abs", Source: &last}, {Method: SSEDS, Source: &second}, {Method: SSEDS, Source: &last}, {Method: SNIP, Source: &first}} {
		if _, err := d.AggregateOf(&p); !fault.IsInput(err) {
			t.Errorf("%s by source %d: error %v", p.Method, *p.Source, err)
		}
	}
}

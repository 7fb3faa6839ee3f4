package explain_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/num/loss"
	"shaver/internal/prune/explain"
)

const rows = 90

// id returns the id of field j in a row of the test split.
func id(row, j int) int { return (row*(j+3) + row/5) % []int{3, 4, 2}[j] }

// subject returns an FM of the first fields of x, y and z without products: its logit is the sum of the weights of a row's ids, which are from values.
func subject(t *testing.T, fields int, weights []float32) explain.Subject {
	t.Helper()
	dir, sizes, names := t.TempDir(), []int{3, 4, 2}[:fields], []string{"x", "y", "z"}[:fields]
	var text strings.Builder
	fmt.Fprintf(&text, "label,%s\n", strings.Join(names, ","))
	for row := range rows {
		fmt.Fprint(&text, row%2)
		for j := range sizes {
			fmt.Fprintf(&text, ",%d", id(row, j))
		}
		fmt.Fprintln(&text)
	}
	file := filepath.Join(dir, "rows.csv")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Test: []string{file}, Sizes: sizes, Out: filepath.Join(dir, "d")}); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(filepath.Join(dir, "d"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Architecture{Kind: model.FM, FieldDims: sizes, Dim: 1}, model.Weights{Embedding: make([]float32, len(weights)), FirstOrder: weights, Bias: .5})
	if err != nil {
		t.Fatal(err)
	}
	return explain.Subject{Model: m, Dataset: d}
}

var whole, pruned = []float32{1, -2, .5, 3, 0, -1, 2, .25, 4}, []float32{1, 0, .5, 3, 0, -1, 0}

func unnamed(int, int) string { return "" }

// The effect of a field of a linear model is its weight minus the mean weight of the background rows, which are at equal distances. A field that the pruned model
// does not read has the effect 0 there. The row without a number is the one whose probability changes most.
func TestRows(t *testing.T) {
	before, after := subject(t, 3, whole), subject(t, 2, pruned)
	name := func(_, id int) string { return map[int]string{0: "a", 2: "c"}[id] }
	const n = 7
	weight := func(weights []float32, row, j int) float64 {
		if at := []int{0, 3, 7}[j]; at < len(weights) {
			return float64(weights[at+id(row, j)])
		}
		return 0
	}
	logit := func(weights []float32, row int) float64 {
		return .5 + weight(weights, row, 0) + weight(weights, row, 1) + weight(weights, row, 2)
	}
	for _, numbers := range [][]int64{{5, 88, 0}, nil} {
		d, err := explain.Rows(t.Context(), []explain.Subject{after, before}, name, loss.Logistic, dataset.Test, numbers, n)
		if err != nil {
			t.Fatal(err)
		}
		if numbers == nil {
			change := func(row int) float64 {
				return math.Abs(evaluate.Probability(logit(pruned, row)) - evaluate.Probability(logit(whole, row)))
			}
			most := 0
			for row := range rows {
				if change(row) > change(most) {
					most = row
				}
			}
			if numbers = []int64{int64(most)}; d.Sampled != rows || most == 0 {
				t.Errorf("row %d of %d rows", most, d.Sampled)
			}
		} else if d.Sampled != 0 {
			t.Errorf("one of %d rows", d.Sampled)
		}
		if d.Background != n || len(d.Rows) != len(numbers) {
			t.Fatalf("%+v", d)
		}
		for i, r := range d.Rows {
			row := int(numbers[i])
			if int64(row) != r.Row || r.Label != float32(row%2) || math.Abs(*r.Probability-evaluate.Probability(r.Logit)) > 0 || len(r.Effects) != 3 {
				t.Errorf("%+v", r)
			}
			sum, other := r.Base, r.Against.Base
			for k, e := range r.Effects {
				j := int(e.Field[0] - 'x')
				want, against, differences := weight(pruned, row, j), weight(whole, row, j), make([]float64, n)
				for b := range n {
					o := b * rows / n
					want -= weight(pruned, o, j) / n
					against -= weight(whole, o, j) / n
					differences[b] = weight(pruned, row, j) - weight(whole, row, j) - weight(pruned, o, j) + weight(whole, o, j)
				}
				mean, squares := want-against, 0.
				for _, v := range differences {
					squares += (v - mean) * (v - mean)
				}
				if se := math.Sqrt(squares / (n - 1) / n); math.Abs(e.Effect-want) > 1e-6 || math.Abs(*e.Against-against) > 1e-6 || math.Abs(*e.SE-se) > 1e-6 {
					t.Errorf("row %d, %s: %+v, %v, %v, expected %v, %v, %v", row, e.Field, e, *e.Against, *e.SE, want, against, se)
				}
				text := map[int]string{0: "a", 2: "c"}[id(row, j)]
				if text == "" {
					text = fmt.Sprint(id(row, j))
				}
				if !slices.Equal(e.Values, []string{text}) {
					t.Errorf("row %d, %s: values %q, expected %q", row, e.Field, e.Values, text)
				}
				if k > 0 && max(math.Abs(e.Effect), math.Abs(*e.Against)) > max(math.Abs(r.Effects[k-1].Effect), math.Abs(*r.Effects[k-1].Against)) {
					t.Errorf("row %d: %s is larger than the one before it", row, e.Field)
				}
				sum, other = sum+e.Effect, other+*e.Against
			}
			if math.Abs(sum-r.Logit) > 1e-12 || math.Abs(other-r.Against.Logit) > 1e-12 || math.Abs(r.Logit-logit(pruned, row)) > 1e-6 || math.Abs(r.Against.Logit-logit(whole, row)) > 1e-6 {
				t.Errorf("row %d: sums %v and %v, logits %v and %v, expected %v and %v", row, sum, other, r.Logit, r.Against.Logit, logit(pruned, row), logit(whole, row))
			}
		}
	}
}

// One model has no other, and its row without a number is the first one. With the squared loss it has no probability, and against one row no standard error.
func TestOneModel(t *testing.T) {
	s := subject(t, 3, whole)
	d, err := explain.Rows(t.Context(), []explain.Subject{s}, unnamed, loss.Squared, dataset.Test, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := d.Rows[0]
	if r.Row != 0 || d.Sampled != 0 || r.Against != nil || r.Probability != nil || r.Effects[0].Against != nil || r.Effects[0].SE != nil || r.Effects[0].Effect != 0 || r.Base != r.Logit {
		t.Errorf("%+v", d)
	}
	// No more background rows than the split has.
	if d, err = explain.Rows(t.Context(), []explain.Subject{s}, unnamed, loss.Squared, dataset.Test, []int64{3}, 1000); err != nil || d.Background != rows {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestRefuses(t *testing.T) {
	before, after := subject(t, 3, whole), subject(t, 2, pruned)
	for _, n := range []int64{-1, rows} {
		if _, err := explain.Rows(t.Context(), []explain.Subject{before}, unnamed, loss.Logistic, dataset.Test, []int64{n}, 4); !fault.IsUsage(err) || !strings.Contains(err.Error(), "from 0 to 89") {
			t.Errorf("row %d: %v", n, err)
		}
	}
	if _, err := explain.Rows(t.Context(), []explain.Subject{before, after}, unnamed, loss.Logistic, dataset.Test, nil, 4); !fault.IsInput(err) || !strings.Contains(err.Error(), `the model reads "z"`) {
		t.Error(err)
	}
	other := subject(t, 2, pruned)
	other.Dataset.Manifest.Fields[0].Name = "w"
	if _, err := explain.Rows(t.Context(), []explain.Subject{other, before}, unnamed, loss.Logistic, dataset.Test, nil, 4); !fault.IsInput(err) || !strings.Contains(err.Error(), `the model reads "w"`) {
		t.Error(err)
	}
	after.Model.Weights.FirstOrder[0] = float32(math.Inf(1))
	if _, err := explain.Rows(t.Context(), []explain.Subject{after}, unnamed, loss.Logistic, dataset.Test, nil, 4); !fault.IsInput(err) || !strings.Contains(err.Error(), "not finite") {
		t.Error(err)
	}
}

package sweep

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/mask"
)

// marked returns a model for predicting: the first entry of its table is mark.
func marked(t *testing.T, mark float32) *model.Model {
	m := modeltest.Random(t, modeltest.Architectures()["deepfm"], 2)
	m.Weights.Embedding[0] = mark
	return m
}

// ready returns a model file of a method whose table has n of 36 parameters.
func ready(m *model.Model, method, file, training string, n int) Ready {
	return Ready{
		File:  ModelFile{File: file, Model: "ab", Training: training},
		Point: Point{Method: method, Baseline: "zero", Values: "float32", Bits: 32, Parameters: n, Sparsity: 1 - float64(n)/36, Measure: Measure{Bytes: new(int64(4 * n))}},
		Open:  func() (*model.Model, error) { return m, nil },
	}
}

// Run measures models as they are, after all methods.
func TestModels(t *testing.T) {
	budgets := []mask.Budget{{Unit: mask.Sparsity, Amount: .5}}
	c := Config{Model: marked(t, 6), Predict: predicting, Budgets: budgets, Methods: []Method{fake{"a", 6, nil}, fake{"p", 9, budgets}}}
	c.Models = []Ready{ready(marked(t, 10), "pep", "x.safetensors", "t", 18), ready(marked(t, 7), OfFile, "y.safetensors", "", 9)}
	var d Document
	if err := c.Run(t.Context(), &d); err != nil {
		t.Fatal(err)
	}
	if got := methods(&d); got != "a p pep model" {
		t.Errorf("methods %s, expected a p pep model", got)
	}
	if n := c.Work(); n != 5 {
		t.Errorf("Work returns %d, expected 5", n)
	}
	for k, at := range []int{2, 3} {
		p := &d.Points[at]
		want, err := predicting(t.Context(), marked(t, []float32{10, 7}[k]))
		if err != nil {
			t.Fatal(err)
		}
		if f := d.ModelOf(p); f == nil || *f != c.Models[k].File || *p.Bytes != int64(4*p.Parameters) {
			t.Errorf("point %+v of the file %+v, expected %+v", p, f, c.Models[k].File)
		}
		if metrics := want.Metrics(); *p.AUC != metrics.AUC || *p.LogLoss != metrics.Loss || math.Abs(p.Difference.AUC.Value-(metrics.AUC-*d.Unpruned.AUC)) > 1e-12 {
			t.Errorf("%s: %+v, expected %+v", p.Method, p.Metrics, metrics)
		}
	}
	if d.ModelOf(&d.Points[0]) != nil {
		t.Error("the point of a method has a model file")
	}
	broken := errors.New("broken")
	c.Models[0].Open = func() (*model.Model, error) { return nil, broken }
	if err := c.Run(t.Context(), &d); !errors.Is(err, broken) {
		t.Errorf("error %v, expected that of Open", err)
	}
}

// Models whose trainings differ only in the seed are repeats, even if their tables differ in size.
// Models of one method are a series. They have their files in the label if two of them have the same
// budget.
func TestModelSeries(t *testing.T) {
	series := func(all ...Ready) string {
		c := Config{Model: marked(t, 6), Predict: predicting, Models: all}
		var d Document
		if err := c.Run(t.Context(), &d); err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, s := range d.Series() {
			line := s.Label + ":"
			for _, p := range s.Points {
				line += fmt.Sprintf(" %g %d %v", p.Sparsity, p.Parameters, p.AUC)
			}
			text = append(text, line)
		}
		return strings.Join(text, "; ")
	}
	of := func(mark float32, method, file, training string, n int) Ready {
		return ready(marked(t, mark), method, file, training, n)
	}
	reach := func(sparsity float64, r Ready) Ready { r.File.Sparsity = sparsity; return r }
	for _, c := range []struct {
		models []Ready
		want   string
	}{
		{[]Ready{of(10, "pep", "a", "t", 18), of(9, "pep", "b", "t", 18), of(10, "pep", "c", "u", 9)}, "pep: 0.5 18 0.9000±0.1000 0.75 9 1.0000"},
		{[]Ready{of(10, "optembed", "a", "t", 18), of(10, "optembed", "b", "t", 9)}, "optembed: 0.625 14 1.0000"},
		{[]Ready{of(10, "pep", "a", "t", 18), of(10, "pep", "b", "u", 18), of(10, "pep", "c", "t", 18), of(10, "pep", "d", "v", 9)}, "pep, a: 0.5 18 1.0000; pep, b: 0.5 18 1.0000; pep, d: 0.75 9 1.0000"},
		{[]Ready{reach(.4, of(10, "optembed", "a", "t", 18)), reach(.4, of(10, "optembed", "b", "u", 9))}, "optembed, a: 0.5 18 1.0000; optembed, b: 0.75 9 1.0000"},
		{[]Ready{of(10, OfFile, "a", "", 18), of(10, OfFile, "b", "", 18), of(10, OfTuned, "c", "", 18)}, "a: 0.5 18 1.0000; b: 0.5 18 1.0000; tuned: 0.5 18 1.0000"},
	} {
		if got := series(c.models...); got != c.want {
			t.Errorf("series %s, expected %s", got, c.want)
		}
	}
}

// The method of a model is the kind of its table, if that is a word and no other method.
func TestMethodOf(t *testing.T) {
	for table, want := range map[string]string{"pep": "pep", "qr:5": "qr", "tt:192,192": "tt", "": OfFile, "random": OfFile, "taylor": OfFile, "QR": OfFile, "<b>": OfFile, "ptq8": OfFile} {
		if got := MethodOf(table); got != want {
			t.Errorf("%q: %s, expected %s", table, got, want)
		}
	}
}

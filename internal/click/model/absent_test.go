package model_test

import (
	"math"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// Rows that lack a field have the logit of the formulas with the field's absent values, and a graph
// that computes the same model agrees.
func TestWithAbsent(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		t.Run(name, func(t *testing.T) {
			w := modeltest.Weights(a, 3)
			m, err := model.New(a, w)
			if err != nil {
				t.Fatal(err)
			}
			counts := make([]int64, a.Features())
			for i := range counts {
				counts[i] = int64(i % 3)
			}
			absent := &model.Absent{Embedding: make([]float32, a.BaselineSize()), Constants: m.MeanConstants(counts)}
			for i := range absent.Embedding {
				absent.Embedding[i] = float32(i%5-2) / 4
			}
			if err := m.CheckAbsent(absent); err != nil {
				t.Fatal(err)
			}
			scorers := []*model.Scorer{m.WithAbsent(absent).NewScorer()}
			if name == "deepfm" || name == "dcnv2-stacked" {
				g := modeltest.Graph(a, w)
				scorers = append(scorers, g.WithAbsent(absent).NewScorer())
			}
			rows, n := modeltest.Rows(a, 4, 5), a.Fields()
			got := make([]float64, rows.Len())
			for set := range 1 << n {
				states := &model.Rows{}
				states.AppendAll(rows)
				for i := range rows.Len() {
					for j := range n {
						if set>>j&1 == 1 {
							states.Row(i)[j] = ^states.Row(i)[j]
						}
					}
				}
				for _, s := range scorers {
					s.Logits(got, states)
					for i := range got {
						if want := absentLogit(&a, &w, absent, rows.Row(i), set, counts); math.Abs(got[i]-want) > 2e-5*(1+math.Abs(want)) {
							t.Errorf("row %d without %b: logit %v, expected %v", i, set, got[i], want)
						}
					}
				}
			}
		})
	}
}

// absentLogit computes the logit of a row without the fields of a set.
func absentLogit(a *model.Architecture, w *model.Weights, absent *model.Absent, row []int32, set int, counts []int64) float64 {
	x := make([]float64, a.Players())
	logit := 0.0
	for j := range a.FieldDims {
		for c := range a.Dim {
			x[j*a.Dim+c] = float64(w.Embedding[int(row[j])*a.Dim+c])
			if set>>j&1 == 1 {
				x[j*a.Dim+c] = float64(absent.Embedding[j*a.Dim+c])
			}
		}
		if set>>j&1 == 1 && w.FirstOrder != nil {
			mean, total := 0.0, 0.0
			first := int(a.Offsets()[j])
			for f := first; f < first+a.FieldDims[j]; f++ {
				mean += float64(counts[f]) * float64(w.FirstOrder[f])
				total += float64(counts[f])
			}
			logit += mean/total - float64(w.FirstOrder[row[j]])
		}
	}
	return logit + modeltest.Logit(a, w, row, x)
}

// The values of absent fields must fit the model and be finite.
func TestCheckAbsent(t *testing.T) {
	a := modeltest.Architectures()["deepfm"]
	m := modeltest.Random(t, a, 1)
	good := func() *model.Absent {
		return &model.Absent{Embedding: make([]float32, a.BaselineSize()), Constants: make([]float32, a.Fields())}
	}
	for want, change := range map[string]func(*model.Absent){
		"for embeddings, expected 9":   func(v *model.Absent) { v.Embedding = v.Embedding[1:] },
		"for constants, expected 3":    func(v *model.Absent) { v.Constants = nil },
		"for dense inputs, expected 0": func(v *model.Absent) { v.Dense = []float32{1} },
		"NaN for constants":            func(v *model.Absent) { v.Constants[1] = float32(math.NaN()) },
	} {
		v := good()
		change(v)
		if err := m.CheckAbsent(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
}

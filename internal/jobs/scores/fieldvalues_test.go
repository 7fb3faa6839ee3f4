package scores

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// pairsExample returns the scores of a job of pairs of three fields. Fields are worth 1, 3 and 2 nat.
func pairsExample() *File {
	f := example()
	f.Fields, f.Layout, f.Shape = []string{"a", "b", "c"}, model.Architecture{FieldDims: []int{1, 1, 1}, Dim: 3}, layout.Of(3, 3)
	f.Spec.Players, f.Spec.Sample, f.Count, f.Rows, f.DatasetRows = estimator.Pairs, 1, []int64{8, 8, 8}, 8, 8
	f.LossFull, f.LossEmpty = 1, 7
	f.Baseline, f.Values = f.Layout.Zero(), tally.NewValues(9)
	copy(f.Phi, []float64{1, .2, -.6, -.2, 3, .1, .6, -.1, 2})
	for i := range f.PopulationSE {
		f.PopulationSE[i] = .05
	}
	return f
}

// The value of a field is the entry in its own row, and that of a pair is half the number of fields times
// the entry. The pairs are ordered by magnitude, and the facts about fields leave pairs out.
func TestFieldPairs(t *testing.T) {
	f := pairsExample()
	_, factor := f.Intervals()(0)
	values, pairs := f.FieldValues(), f.FieldPairs()
	var names []string
	for _, v := range values {
		names = append(names, v.Field)
		if half := (*v.High - *v.Low) / 2; math.Abs(half-factor*float64(float32(.05))) > 1e-12 {
			t.Errorf("%s: half of the interval is %v", v.Field, half)
		}
	}
	if !reflect.DeepEqual(names, []string{"b", "c", "a"}) || values[0].Value != 3 || *values[0].Share != .5 {
		t.Errorf("values %+v", values)
	}
	want := map[[2]string]float64{{"c", "a"}: -.9, {"b", "a"}: .3, {"b", "c"}: .15}
	last := math.Inf(1)
	for _, p := range pairs {
		if math.Abs(p.Value-want[p.Fields]) > 1e-12 || math.Abs(p.Value) > last {
			t.Errorf("pair %v has the value %v, expected %v in order of magnitude", p.Fields, p.Value, want[p.Fields])
		}
		if half := (*p.High - *p.Low) / 2; math.Abs(half-1.5*factor*float64(float32(.05))) > 1e-12 {
			t.Errorf("%v: half of the interval is %v", p.Fields, half)
		}
		last = math.Abs(p.Value)
	}
	if len(pairs) != len(want) {
		t.Errorf("%d pairs, expected %d", len(pairs), len(want))
	}
	facts, err := f.Facts()
	if err != nil || *facts.Fields[2].Sum != 2 || !reflect.DeepEqual(facts.FieldPairs, pairs) {
		t.Errorf("facts %+v, %v", facts, err)
	}
	var text strings.Builder
	if WriteFieldValues(&text, values, pairs, strings.ToUpper); !strings.Contains(text.String(), "\nC, A\t-0.900000\t[") || !strings.Contains(text.String(), "] holds 0\n") {
		t.Errorf("text:\n%s", text.String())
	}
	if f.Spec.Players, f.Layout.Dim, f.Shape = estimator.Fields, 1, layout.Of(3, 1); f.FieldPairs() != nil {
		t.Error("a job of fields has pairs")
	}
}

// Pairs are those of the 16 most valuable fields, and the first 10 of them are printed.
func TestFieldPairsOfManyFields(t *testing.T) {
	f, n := pairsExample(), 18
	f.Layout, f.Shape, f.Fields, f.Count = model.Architecture{FieldDims: make([]int, n), Dim: n}, layout.Of(n, n), nil, make([]int64, n)
	f.Values = tally.NewValues(n * n)
	for i := range n {
		f.Layout.FieldDims[i], f.Count[i] = 1, 8
		f.Fields = append(f.Fields, string(rune('a'+i)))
		f.Phi[i*n+i] = float64(i)
	}
	pairs := f.FieldPairs()
	if len(pairs) != 120 {
		t.Fatalf("%d pairs, expected 120", len(pairs))
	}
	for _, p := range pairs {
		if strings.ContainsAny(p.Fields[0]+p.Fields[1], "ab") || p.Fields[0] < p.Fields[1] {
			t.Errorf("unexpected pair %v", p.Fields)
		}
	}
	var text strings.Builder
	if WriteFieldValues(&text, f.FieldValues(), pairs, strings.Clone); !strings.HasSuffix(text.String(), "\nand 110 more of the most valuable fields, with -o json\n") {
		t.Errorf("text:\n%s", text.String())
	}
}

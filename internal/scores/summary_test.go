package scores

import (
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/model"
	"shaver/internal/model/modeltest"
	"shaver/internal/tally"
)

// Summary agrees with sums computed by hand.
func TestSummary(t *testing.T) {
	f := example()
	values, err := f.Aggregate(Abs)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		values []float64
		sums   []float64 // by field: sum of absolute values
	}{
		{f.Phi, []float64{.1 + 2e-9, 1./3 + 5}},
		{values, []float64{3, 7}},
	} {
		s := f.Summary(test.values)
		for j, want := range test.sums {
			if got := s.Fields[j].SumAbs; math.Abs(got-want) > 1e-12 {
				t.Errorf("field %d: the sum of absolute values is %v, expected %v", j, got, want)
			}
		}
		s.Fields[0].SumAbs, s.Fields[1].SumAbs = 0, 0
		want := &Summary{
			Fields: []FieldSummary{{Name: "a", Features: 2, Seen: 1, Entries: 4, Sum: .1 - 2e-9}, {Name: "b", Features: 1, Seen: 1, Entries: 2, Sum: 1./3 + 5}},
			MaxSE:  float64(float32(.4)), MaxPopulationSE: .5, Range: 5 + 2e-9, NoInterval: 2,
		}
		if !reflect.DeepEqual(s, want) {
			t.Errorf("summary %+v, expected %+v", s, want)
		}
		if got, want := s.Convergence(), s.MaxSE/s.Range; got != want {
			t.Errorf("convergence %v, expected %v", got, want)
		}
	}
	clear(f.Phi)
	if s := f.Summary(f.Phi); s.Range != 0 || s.Convergence() != 0 {
		t.Errorf("equal values have range %v and convergence %v, expected 0", s.Range, s.Convergence())
	}
}

// A field with two tables counts its features once, and the sums are over both tables.
func TestSummaryOfLookUps(t *testing.T) {
	f := example()
	f.Layout = modeltest.LookUps()
	f.Fields, f.Shape, f.Baseline = []string{"a", "b", "c"}, f.Layout.Shape(), make([]float32, 9)
	f.Values = tally.NewValues(27)
	for i := range f.Phi {
		f.Phi[i] = 1
	}
	f.Count = model.PerRow(&f.Layout, []int64{1, 0, 3, 0, 5, 0, 0, 0, 9})
	path := filepath.Join(t.TempDir(), "s.arrow")
	if err := Write(path, f); err != nil {
		t.Fatal(err)
	}
	back, err := Read(path)
	if err != nil || !reflect.DeepEqual(back, f) {
		t.Fatalf("Read returns %+v, want %+v; error %v", back, f, err)
	}
	if err := back.CheckModel(&f.Layout, "m"); err != nil {
		t.Error(err)
	}
	other := modeltest.LookUps()
	other.Tables[0].Name = "other"
	if err := back.CheckModel(&other, "m"); !fault.IsInput(err) {
		t.Errorf("error for a model with other tables: %v", err)
	}
	want := []FieldSummary{{"a", 2, 1, 4, 4, 4}, {"b", 3, 2, 15, 15, 15}, {"c", 4, 1, 8, 8, 8}}
	if got := back.Summary(back.Phi).Fields; !slices.Equal(got, want) {
		t.Errorf("fields %+v, expected %+v", got, want)
	}
}

func TestStoppedText(t *testing.T) {
	rule := &job.Until{Rule: job.Paper, Bound: .01}
	for want, s := range map[string]Stopped{
		"the rule is met after 1 round; paper 0.00123, bound 0.01": {Rounds: 1, Passes: 1, Reason: RuleMet, Figure: Figure(.0012345)},
		"the time is over after 2 rounds":                          {Rounds: 2, Passes: 1, Reason: TimeOver},
		"all rows and passes are done after 3 rounds, 3 passes":    {Rounds: 3, Passes: 3, Reason: AllDone, Figure: Figure(math.NaN())},
	} {
		if got := s.Text(rule); got != want {
			t.Errorf("the text of %+v is %q, expected %q", s, got, want)
		}
	}
}

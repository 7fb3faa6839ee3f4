package scores

import (
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/job"
	"shaver/internal/value/tally"
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
	f.Fields, f.Shape, f.Baseline = []string{"a", "b", "c"}, f.Layout.Shape(), f.Layout.Zero()
	f.Values = tally.NewValues(27)
	for i := range f.Phi {
		f.Phi[i] = 1
	}
	f.Count = f.Layout.RowCounts([]int64{1, 0, 3, 0, 5, 0, 0, 0, 9})
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
	want := []FieldSummary{{"a", 2, "", 1, 4, 4, 4}, {"b", 3, "", 2, 15, 15, 15}, {"c", 4, "", 1, 8, 8, 8}}
	if got := back.Summary(back.Phi).Fields; !slices.Equal(got, want) {
		t.Errorf("fields %+v, expected %+v", got, want)
	}
}

// A file keeps the lists of its layout. The rows that several fields read are those of the
// field whose look-up comes first, and pad rows have no errors to raise.
func TestSummaryOfLists(t *testing.T) {
	f := example()
	f.Layout = LayoutOf(&model.Architecture{Kind: model.Graph, FieldDims: []int{5, 3, 5, 4}, Tables: modeltest.Lists().Tables, LookUps: modeltest.Lists().LookUps, Lists: modeltest.Lists().Lists})
	f.Fields, f.Shape, f.Baseline = []string{"item", "user", "history", "tags"}, f.Layout.Shape(), model.Baseline{Values: []float32{1, 2, 1, 2, 3, 4}}
	f.Values = tally.NewValues(17)
	for i := range f.RMS {
		f.RMS[i] = float32(i)
	}
	f.Count = []int64{0, 0, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1}
	path := filepath.Join(t.TempDir(), "s.arrow")
	if err := Write(path, f); err != nil {
		t.Fatal(err)
	}
	back, err := Read(path)
	if err != nil || !reflect.DeepEqual(back, f) {
		t.Fatalf("Read returns %+v, want %+v; error %v", back, f, err)
	}
	other := modeltest.Lists()
	other.Lists[0].Length = 2
	if err := back.CheckModel(&other, "m"); !fault.IsInput(err) {
		t.Errorf("error for a model with other lists: %v", err)
	}
	want := []FieldSummary{{"item", 5, "", 2, 10, 0, 0}, {"user", 3, "", 3, 3, 0, 0}, {"history", 5, "item", 0, 0, 0, 0}, {"tags", 4, "", 4, 4, 0, 0}}
	if got := back.Summary(back.Phi).Fields; !slices.Equal(got, want) {
		t.Errorf("fields %+v, expected %+v", got, want)
	}
	f.DatasetRows = 2 * f.Rows
	errors := make([]float64, 17)
	f.RaiseUnseen(RMS, errors)
	for i, e := range errors {
		if raised := i/2 == 1 || i/2 == 3; (e > 0) != raised {
			t.Errorf("entry %d has the error %v, raised: %t", i, e, raised)
		}
	}
	file := *f
	file.Baseline.Values = []float32{1, 2, 1, 3, 3, 4}
	if err := Write(path, &file); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "look-up 1 has another baseline than look-up 0, which reads the same rows") {
		t.Errorf("error %v for baselines that differ", err)
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

// A feature that several fields read needs more rows for an interval, because few may not show what each of them makes of it.
func TestIntervalsOfSharedFeatures(t *testing.T) {
	lists := modeltest.Lists()
	f := example()
	f.Layout = LayoutOf(&lists)
	f.Rows, f.DatasetRows, f.Shape = 1000, 2000, f.Layout.Shape()
	f.Fields, f.Values, f.Count = []string{"item", "user", "history", "tags"}, tally.NewValues(f.Shape.Entries()), make([]int64, f.Shape.Rows())
	positions := map[int]int64{} // by feature that items and histories read
	for _, span := range f.Layout.Spans() {
		for feature := span.Row; len(span.Sharers) > 0 && feature < span.Row+span.Rows; feature++ {
			positions[feature] = 1 + int64(lists.Lists[0].Length)
		}
	}
	if len(positions) == 0 || len(positions) == len(f.Count) {
		t.Fatalf("%d of %d features are shared", len(positions), len(f.Count))
	}
	for feature := range f.Count {
		least := int64(tally.LeastRows)
		if n := positions[feature]; n > 0 {
			least = PositionRows * n
		}
		for _, count := range []int64{least - 1, least} {
			f.Count[feature] = count
			dataset, population := f.Intervals()(feature)
			if none := count < least; math.IsNaN(dataset) != none || math.IsNaN(population) != none {
				t.Errorf("feature %d in %d rows, of at least %d: %v and %v", feature, count, least, dataset, population)
			}
		}
		f.Count[feature] = 1
	}
	if got := f.Summary(f.Phi).NoInterval; got != len(f.Count) {
		t.Errorf("%d features have no interval", got)
	}
}

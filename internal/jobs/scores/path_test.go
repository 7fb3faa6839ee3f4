package scores

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/value/tally"
)

// pathExample is the result of a path with a made-up order.
func pathExample() *File {
	f := example()
	f.Spec.Estimator, f.Spec.Passes, f.Spec.Parts, f.Spec.Sparsity = "path", 1, 6, .75
	f.Values = tally.Values{Rank: []int32{3, 0, 5, 1, 4, 2}}
	f.LossEmpty, f.EfficiencyError, f.EfficiencySE = 0, 0, 0
	f.Path = &Path{Rounds: []Round{{Rows: 4, Kept: 6, Loss: .4, Scale: 1, Offset: 0}, {Rows: 1, Kept: 4, Loss: .5, Scale: 1.2, Offset: -.1}}, Reach: .5}
	return f
}

// The file of a path has the version 5, and Read and ReadHead return what was written, also by
// WriteFrom. It has no keys of values.
func TestPathRoundTrip(t *testing.T) {
	dir, want := t.TempDir(), pathExample()
	one, two := filepath.Join(dir, "one.arrow"), filepath.Join(dir, "two.arrow")
	if err := Write(one, want); err != nil {
		t.Fatal(err)
	}
	head := *want
	head.Values = tally.Values{}
	err := WriteFrom(two, &head, func(feature int, into tally.Values) {
		if into.Phi != nil || into.Abs != nil || len(into.Rank) != 2 {
			t.Errorf("feature %d: WriteFrom asks for %+v", feature, into)
		}
		copy(into.Rank, want.Rank[2*feature:])
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(one)
	if again, _ := os.ReadFile(two); err != nil || !bytes.Equal(data, again) {
		t.Error("Write and WriteFrom differ")
	}
	for _, key := range []string{"shaver.scores/5", keyPath, keyLossFull} {
		if !bytes.Contains(data, []byte(key)) {
			t.Errorf("the file lacks %s", key)
		}
	}
	for _, key := range []string{keyLossEmpty, keyEfficiencyError, keyEfficiencySE, keyStandardError} {
		if bytes.Contains(data, []byte(key)) {
			t.Errorf("the file has %s", key)
		}
	}
	if err := Verify(one); err != nil {
		t.Error(err)
	}
	if got, err := Read(one); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Read returns %+v, want %+v; error %v", got, want, err)
	}
	head.Count = nil
	if got, err := ReadHead(one); err != nil || !reflect.DeepEqual(got, &head) {
		t.Errorf("ReadHead returns %+v, want %+v; error %v", got, head, err)
	}
}

// addsTo sets the entries that the rounds of f after the first one keep.
func addsTo(f *File, kept ...int64) {
	f.Path.Rounds = f.Path.Rounds[:1:1]
	for _, n := range kept {
		f.Path.Rounds = append(f.Path.Rounds, Round{Rows: 1, Kept: n, Loss: .5, Scale: 1})
	}
}

// Read refuses facts about a path that are impossible.
func TestPathRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.arrow")
	for want, change := range map[string]func(*File){
		"no rounds, expected at least 1":                            func(f *File) { f.Path.Rounds = nil },
		"round 2: -1 rows":                                          func(f *File) { f.Path.Rounds[1].Rows = -1 },
		"round 1: 7 kept entries, expected 1 to 6":                  func(f *File) { f.Path.Rounds[0].Kept = 7 },
		"round 4: 3 kept entries, expected 4 to 6":                  func(f *File) { addsTo(f, 3, 3, 3); f.Spec.Adds = true },
		"round 3: 3 kept entries, expected 1 to 2":                  func(f *File) { addsTo(f, 3, 3, 4) },
		"round 2: 0 kept entries":                                   func(f *File) { f.Path.Rounds[1].Kept = 0 },
		"round 1: the loss is -1":                                   func(f *File) { f.Path.Rounds[0].Loss = -1 },
		"the reach is 1.01":                                         func(f *File) { f.Path.Reach = 1.01 },
		"the reach is 0":                                            func(f *File) { f.Path.Reach = 0 },
		`metadata shaver.standard_error is "", expected "estimate"`: func(f *File) { f.Spec.Estimator = "exact"; f.Spec.Parts, f.Spec.Sparsity = 0, 0 },
		"need values, but the estimator is path":                    func(f *File) { f.Audit = &Audit{} },
		"metadata shaver.loss_full is -1, expected a finite number": func(f *File) { f.LossFull = -1 },
		"shaver.path is missing, but the estimator is path":         func(f *File) { f.Path, f.Values = nil, example().Values },
	} {
		f := pathExample()
		change(f)
		if err := Write(file, f); err != nil {
			t.Fatal(err)
		}
		_, err := Read(file)
		if !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	f := pathExample()
	f.Rank[1] = 3
	if err := Write(file, f); !fault.IsInput(err) || !strings.Contains(err.Error(), "rank is 3, which an entry before it has") {
		t.Error(err)
	}
}

// A path has one aggregate, no errors and no summary of values.
func TestPathHasNoValues(t *testing.T) {
	f := pathExample()
	if got := f.Aggregates(); !slices.Equal(got, []string{ByPath}) || f.DefaultAggregate() != ByPath {
		t.Errorf("aggregates %v, default %s", got, f.DefaultAggregate())
	}
	if f := example(); f.DefaultAggregate() != DefaultAggregate || f.CheckValues("s.arrow", "this") != nil {
		t.Errorf("scores with values have the default %s", f.DefaultAggregate())
	}
	if got, err := f.Aggregate(ByPath); err != nil || !slices.Equal(got, []float64{3, 0, 5, 1, 4, 2}) {
		t.Errorf("ranks %v, %v", got, err)
	}
	if _, err := f.Aggregate(RMS); err == nil || !strings.Contains(err.Error(), `aggregate "rms": the scores have the order of a path and no values`) {
		t.Error(err)
	}
	if _, err := example().Aggregate(ByPath); err == nil || !strings.Contains(err.Error(), "the aggregates are rms, sum, abs") {
		t.Error(err)
	}
	if _, err := f.AggregateSE(ByPath); err == nil || !strings.Contains(err.Error(), "no standard errors") {
		t.Error(err)
	}
	err := f.CheckValues("s.arrow", "shaver scores frequency")
	if want := "s.arrow has the order of a path and no values: shaver scores frequency needs scores of an estimator of values, such as debiased"; !fault.IsInput(err) || err.Error() != want {
		t.Error(err)
	}
	s := f.Summary(nil)
	want := FieldSummary{Name: "a", Features: 2, Seen: 1, Entries: 4}
	if s.Fields[0] != want || s.Range != 0 || s.NoInterval != 0 || s.MaxSE != 0 {
		t.Errorf("summary %+v", s)
	}
	for dropped, want := range map[int]bool{0: false, 3: false, 4: true} {
		if got := f.Path.Deeper(dropped, 6); got != want {
			t.Errorf("%d dropped entries of 6 exceed a reach of .5: %t", dropped, got)
		}
	}
	if (*Path)(nil).Deeper(6, 6) {
		t.Error("scores with values have a reach")
	}
}

// Only a steep or flat calibration of many rows leads to a note. Scores of values have none.
func TestUncalibrated(t *testing.T) {
	for _, c := range []struct {
		rows          int64
		scale, offset float64
		want          string
	}{
		{4096, 1.5667, .6201, "logit * 1.5667 +0.6201: prune with --calibrate"},
		{1 << 20, .5, -.1, "logit * 0.5000 -0.1000: prune with --calibrate"},
		{4095, 1.5667, .6201, ""},
		{1 << 20, 1.2, .6, ""},
		{1 << 20, .8, 0, ""},
	} {
		p := &Path{Rounds: []Round{{Rows: c.rows, Scale: c.scale, Offset: c.offset}, {Rows: c.rows, Scale: 3}}}
		if text := p.Uncalibrated(); !strings.Contains(text, c.want) || c.want == "" && text != "" {
			t.Errorf("%+v: %q", c, text)
		}
	}
	if text := (*Path)(nil).Uncalibrated(); text != "" {
		t.Errorf("without a path: %q", text)
	}
}

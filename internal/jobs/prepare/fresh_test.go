package prepare

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

// The weight of a fresh row is the square root of the number of other rows for each, in whole numbers from 1 on.
func TestFreshWeight(t *testing.T) {
	for fresh, want := range map[int64]float64{1: estimator.MaxWeight, 40: math.Round(math.Sqrt(960. / 40)), 500: 1, 900: 1} {
		f := &estimator.Fresh{Rows: [][2]int64{{0, 1}, {1, fresh}}[:min(fresh, 2)]}
		if got := freshWeight(1000, f.Count()); float64(got) != want {
			t.Errorf("%d of 1000 rows have the weight %d, expected %v", fresh, got, want)
		}
	}
}

// Settings of fresh rows without such rows are wrong usage.
func TestFreshWithoutRows(t *testing.T) {
	for _, r := range []Request{{FreshWeight: 2}, {FreshDays: 1}, {FreshDays: -1}} {
		r.Dataset = &dataset.Dataset{}
		if _, err := r.fresh([]string{dataset.Train}); !fault.IsUsage(err) {
			t.Errorf("weight %d and %d days: %v, expected wrong usage", r.FreshWeight, r.FreshDays, err)
		}
	}
	if f, err := (&Request{Dataset: &dataset.Dataset{}}).fresh([]string{dataset.Train}); f != nil || err != nil {
		t.Errorf("%v and %v without fresh rows", f, err)
	}
}

// Without a given weight, fresh rows of a model that memorises count more than once, and those of another model once.
func TestWeightFollowsGap(t *testing.T) {
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{9, 5}, Informative: 2, Silent: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	var rows model.Rows
	p.Rows(&rows, 0, 30_000)
	for memorises, want := range map[bool]int64{true: 5, false: 1} { // the root of 28,000 rows for 1,000 is 5.3
		dir := t.TempDir()
		write := func(name string, from, to int) string {
			var csv strings.Builder
			csv.WriteString("label,a,b\n")
			for i := from; i < to; i++ {
				label := rows.Label[i]
				if memorises && name == "fresh" { // that of another row, so the fields are worth nothing
					label = rows.Label[i-1]
				}
				fmt.Fprintf(&csv, "%v,%d,%d\n", label, rows.Row(i)[0], rows.Row(i)[1])
			}
			file := filepath.Join(dir, name+".csv")
			if err := os.WriteFile(file, []byte(csv.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}
		config := ingest.EncodedConfig{Train: []string{write("train", 0, 28_000)}, Fresh: []string{write("fresh", 28_000, 29_000)}, Sizes: p.FieldDims, Global: true, Out: filepath.Join(dir, "dataset")}
		if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		d, err := dataset.Open(config.Out)
		if err != nil {
			t.Fatal(err)
		}
		r := Request{
			Open:    func() (modelfile.Source, error) { return p.Checkpoint, nil },
			Dataset: d, Splits: []string{dataset.Train, dataset.Fresh}, Sample: 1, Baseline: baseline.Codebook,
			Options: estimator.Options{Estimator: estimator.Taylor, Passes: 1}, Seed: 1,
		}
		for _, given := range []int64{0, 3} {
			if r.FreshWeight = given; given > 0 {
				want = given
			}
			spec, err := Spec(r)
			if err != nil {
				t.Fatal(err)
			}
			if spec.Fresh.Weight != want {
				t.Errorf("the model memorises: %t; given %d, fresh rows count %d times, expected %d", memorises, given, spec.Fresh.Weight, want)
			}
		}
	}
}

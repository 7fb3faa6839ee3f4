package dataset_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/ingest"
)

// denseDataset returns a dataset of 300 rows with the fields a and b and the dense inputs
// x, y and z, and its folder.
func denseDataset(t testing.TB) (string, *dataset.Dataset) {
	t.Helper()
	text := "label,a,b,x,y,z\n" + strings.Repeat("0,1,2,1,10,-1\n1,3,4,2,20,-2\n0,0,0,3,30,-3\n", 100)
	out := filepath.Join(t.TempDir(), "dataset")
	config := ingest.EncodedConfig{Train: []string{write(t, text)}, Split: "2:0:1", Seed: 1, Out: out}
	for _, name := range []string{"x", "y", "z"} {
		config.Dense.Columns = append(config.Dense.Columns, ingest.DenseColumn{Name: name, Input: dense.Input{Rule: dense.None}})
	}
	if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return out, open(t, out)
}

// A reader delivers the dense inputs that the model reads, in its order, for any splits,
// batches and first row.
func TestForModel(t *testing.T) {
	_, d := denseDataset(t)
	factor := map[string]float32{"x": 1, "y": 10, "z": -1}
	whole := rowsOf(t, d, 1000)
	for _, names := range [][]string{nil, {"z"}, {"y", "x"}, {"z", "x", "y"}} {
		chosen, err := d.For(&model.Architecture{FieldDims: []int{4, 5}, Dense: names}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(chosen.Inputs(), names) || len(d.Inputs()) != 0 || chosen.Digest() != d.Digest() {
			t.Errorf("%q: the inputs are %q", names, chosen.Inputs())
		}
		at := 0
		for _, first := range []int64{0, 7, 220} {
			at = int(first)
			err := chosen.ScanFrom(t.Context(), nil, first, 13, func(rows *model.Rows) error {
				if rows.Inputs != len(names) || len(rows.Dense) != rows.Len()*len(names) {
					t.Fatalf("%q: %d dense inputs and %d values in %d rows", names, rows.Inputs, len(rows.Dense), rows.Len())
				}
				for i := range rows.Len() {
					if rows.Number[i] != int64(at) || !slices.Equal(rows.Row(i), whole.Row(at)) {
						t.Fatalf("%q: row %d comes at %d", names, rows.Number[i], at)
					}
					x := map[int32]float32{1: 1, 3: 2, 0: 3}[rows.Row(i)[0]]
					for j, name := range names {
						if rows.DenseRow(i)[j] != x*factor[name] {
							t.Fatalf("%q: row %d has the dense inputs %v", names, at, rows.DenseRow(i))
						}
					}
					at++
				}
				return nil
			})
			if err != nil || at != 300 {
				t.Fatalf("%q: %d rows, %v", names, at, err)
			}
		}
	}
}

func TestForRefuses(t *testing.T) {
	_, d := denseDataset(t)
	d.Dense[2].Rule = dense.ZScore
	for _, c := range []struct {
		dims  []int
		dense []string
		want  string
	}{
		{[]int{4, 5}, []string{"x", "w"}, `the model reads the dense input "w", but the dataset has only the dense inputs ["x" "y" "z"]: name its column in the import, as in COLUMN=w`},
		{[]int{4, 5}, []string{"x", "x"}, `the dense input "x" is named twice`},
		{[]int{4}, []string{"x"}, "the dataset has 2 fields (a, b) and the model 1"},
	} {
		a := &model.Architecture{FieldDims: c.dims, Dense: c.dense}
		_, err := d.For(a, nil)
		wantInput(t, err, c.want)
		wantInput(t, fit(d, a), c.want)
	}
	_, small := smallDataset(t)
	_, err := small.Choose([]string{"x"})
	wantInput(t, err, `the model reads the dense input "x", but the dataset has no dense inputs: name its column in the import, as in COLUMN=x`)
}

// A file whose dense inputs are not those of the manifest is refused.
func TestDenseOfAnotherDataset(t *testing.T) {
	dir, d := denseDataset(t)
	d.Dense[0].Name, d.Dense[1].Name = d.Dense[1].Name, d.Dense[0].Name
	if err := os.WriteFile(filepath.Join(dir, dataset.ManifestName), d.Marshal(), 0o644); err != nil {
		t.Fatal(err)
	}
	err := open(t, dir).Scan(t.Context(), nil, 10, func(*model.Rows) error { return nil })
	wantInput(t, err, "the names of the dense inputs are not those in dataset.json")
}

func TestInspectDense(t *testing.T) {
	dir, _ := denseDataset(t)
	facts, err := dataset.Inspect(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []dense.Input{{Name: "x", Rule: dense.None, Values: dense.Values{Min: 1, Mean: 2, Max: 3}}, {Name: "y", Rule: dense.None, Values: dense.Values{Min: 10, Mean: 20, Max: 30}},
		{Name: "z", Rule: dense.None, Values: dense.Values{Min: -3, Mean: -2, Max: -1}}}
	if !slices.Equal(facts.Dense, want) {
		t.Errorf("the dense inputs are %+v, want %+v", facts.Dense, want)
	}
}

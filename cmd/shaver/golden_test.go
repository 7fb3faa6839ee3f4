package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/app/launch"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

// golden is the content of NAME.json: what an independent program computed, in float64.
type golden struct {
	FieldDims   []int               `json:"field_dims"`
	Dim         int                 `json:"dim"`
	Rows        int64               `json:"rows"`
	Logits      []float64           `json:"logits"`
	Frequencies []int64             `json:"frequencies"`
	Codebook    [][]float64         `json:"codebook"`
	Exact       map[string]shapleys `json:"exact"`
}

// shapleys are values by feature and column. In JSON they are an array, or an object
// with the array as one of its properties.
type shapleys [][]float64

func (s *shapleys) UnmarshalJSON(data []byte) error {
	if !strings.HasPrefix(string(data), "{") {
		return json.Unmarshal(data, (*[][]float64)(s))
	}
	var with struct{ Values [][]float64 }
	if err := json.Unmarshal(data, &with); err != nil {
		return err
	}
	*s = with.Values
	return nil
}

// The tolerances of the project's first release. testdata/golden/README.md gives the
// reasons.
const (
	logitTolerance    = 1e-5
	codebookTolerance = 1e-6
	exactTolerance    = 5e-6
)

const goldenPasses = 400

// The commands compute the values that came with every golden model.
func TestGoldens(t *testing.T) {
	run := func(dir string, least int) func(*testing.T) {
		return func(t *testing.T) {
			models, err := filepath.Glob(filepath.Join(dir, "*.pth"))
			if err != nil || len(models) < least {
				t.Fatalf("%d models in %s, expected at least %d (%v)", len(models), dir, least, err)
			}
			for _, path := range models {
				name := strings.TrimSuffix(path, ".pth")
				t.Run(filepath.Base(name), func(t *testing.T) {
					t.Parallel()
					testGolden(t, name)
				})
			}
		}
	}
	for name, dir := range goldenDirs(t) {
		t.Run(name, run(dir, 6))
	}
}

func testGolden(t *testing.T, name string) {
	var want golden
	readJSON(t, name+".json", &want)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	shaver(t, nil, "dataset", "import", "csv", "--ids", "global", "--train", name+".rows.csv", "--model", name+".pth", "--out", file("rows"))
	wantLogits(t, name, &want)

	for kind, exact := range want.Exact {
		var report launch.JobReport
		shaver(t, &report, "score", "--model", name+".pth", "--dataset", file("rows"), "--splits", "train",
			"--baseline", kind, "--estimator", "exact", "--out", file(kind+"-exact.arrow"))
		found := readScores(t, file(kind+"-exact.arrow"))
		if report.Rows != want.Rows || !slices.Equal(found.Count, want.Frequencies) {
			t.Fatalf("%s: %d rows with the frequencies %v, expected %d with %v", kind, report.Rows, found.Count, want.Rows, want.Frequencies)
		}
		off := largest(found.Phi, exact)
		if t.Logf("%s: the exact values are up to %.2g off", kind, off); !(off <= exactTolerance) {
			t.Errorf("expected at most %g", exactTolerance)
		}
		if kind == baseline.Codebook {
			off := largest(float64s(found.Baseline.Values), want.Codebook)
			if t.Logf("the codebook is up to %.2g off", off); !(off <= codebookTolerance) {
				t.Errorf("expected at most %g", codebookTolerance)
			}
		}

		for by, passes := range map[string]int{estimator.Permutation: goldenPasses, estimator.Antithetic: goldenPasses / 2} {
			shaver(t, &report, "score", "--model", name+".pth", "--dataset", file("rows"), "--splits", "train",
				"--baseline", kind, "--estimator", by, "--passes", strconv.Itoa(passes), "--out", file(kind+"-"+by+".arrow"))
			found = readScores(t, file(kind+"-"+by+".arrow"))
			wantWithin(t, kind+", "+by, found, exact)
		}
	}
}

// wantWithin checks estimates against exact values: 99% of them are within 4 standard
// errors, and the errors are as large as the standard errors say. Entries on which
// nothing depends have no spread, but the float32 of the network moves them a little.
func wantWithin(t *testing.T, baseline string, found *scores.File, exact shapleys) {
	t.Helper()
	within, square, spread := 0, 0.0, 0
	at := 0
	for _, row := range exact {
		for _, value := range row {
			off, se := math.Abs(found.Phi[at]-value), float64(found.SE[at])
			if off <= 4*se+exactTolerance {
				within++
			}
			if se > 10*exactTolerance {
				square += (off / se) * (off / se)
				spread++
			}
			at++
		}
	}
	share := float64(within) / float64(at)
	if t.Logf("%s: %.1f%% of %d estimates are within 4 standard errors", baseline, 100*share, at); share < 0.99 {
		t.Error("expected 99%")
	}
	// The mean square of n standard normals is 1, within 4*sqrt(2/n).
	if spread > 10 {
		if mean, bound := square/float64(spread), 4*math.Sqrt(2/float64(spread)); math.Abs(mean-1) > bound {
			t.Errorf("%s: errors are %.2f standard errors in the mean square over %d entries, expected 1 +- %.2f", baseline, mean, spread, bound)
		}
	}
}

// wantLogits compares the logits of the rows. It calls the packages, because no command
// prints logits.
func wantLogits(t *testing.T, name string, want *golden) {
	t.Helper()
	ck, err := checkpoint.Read(name + ".pth")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ck.Model()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.FieldDims, want.FieldDims) || m.Dim != want.Dim {
		t.Fatalf("the model has fields %v and %d columns, expected %v and %d", m.FieldDims, m.Dim, want.FieldDims, want.Dim)
	}
	rows := goldenRows(t, name+".rows.csv", m.Fields())
	logits := make([]float64, rows.Len())
	m.NewScorer().Logits(logits, rows)
	off := largest(logits, [][]float64{want.Logits})
	if t.Logf("the logits are up to %.2g off", off); !(off <= logitTolerance) {
		t.Errorf("expected at most %g", logitTolerance)
	}
}

// loadGolden reads a golden model, its facts and its rows. name is the path without an extension.
func loadGolden(t *testing.T, name string) (golden, *model.Model, *model.Rows) {
	t.Helper()
	var facts golden
	readJSON(t, name+".json", &facts)
	ck, err := checkpoint.Read(name + ".pth")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ck.Model()
	if err != nil {
		t.Fatal(err)
	}
	return facts, m, goldenRows(t, name+".rows.csv", m.Fields())
}

func goldenRows(t *testing.T, path string, fields int) *model.Rows {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows := &model.Rows{Width: fields}
	for number, line := range lines[1:] {
		rows.Number = append(rows.Number, int64(number))
		for i, cell := range line {
			v, err := strconv.Atoi(cell)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				rows.Label = append(rows.Label, float32(v))
			} else {
				rows.Features = append(rows.Features, int32(v))
			}
		}
	}
	return rows
}

func readScores(t *testing.T, path string) *scores.File {
	t.Helper()
	f, err := scores.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// largest returns the largest difference. It returns NaN if a value is NaN or the sizes
// differ.
func largest(found []float64, want [][]float64) float64 {
	flat := slices.Concat(want...)
	if len(found) != len(flat) {
		return math.NaN()
	}
	off := 0.0
	for i, v := range found {
		off = max(off, math.Abs(v-flat[i]))
	}
	return off
}

func float64s(values []float32) []float64 {
	wide := make([]float64, len(values))
	for i, v := range values {
		wide[i] = float64(v)
	}
	return wide
}

// For every golden model, the compact and the dense pruned file give the same logits as
// the pruned table, to the bit.
func TestRoundTrip(t *testing.T) {
	models, err := filepath.Glob(filepath.Join(goldenDir, "*.pth"))
	if err != nil || len(models) == 0 {
		t.Fatalf("no goldens (%v)", err)
	}
	for _, path := range models {
		name := strings.TrimSuffix(path, ".pth")
		t.Run(filepath.Base(name), func(t *testing.T) { testRoundTrip(t, name) })
	}
}

func testRoundTrip(t *testing.T, name string) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	shaver(t, nil, "dataset", "import", "csv", "--ids", "global", "--train", name+".rows.csv", "--model", name+".pth", "--out", file("rows"))
	shaver(t, nil, "score", "--model", name+".pth", "--dataset", file("rows"), "--splits", "train", "--baseline", "codebook", "--out", file("s.arrow"))
	original, err := checkpoint.Read(name + ".pth")
	if err != nil {
		t.Fatal(err)
	}
	rows := goldenRows(t, name+".rows.csv", original.Architecture.Fields())
	for _, sparsity := range []string{"0", "0.3", "0.9", "1"} {
		compact, dense := file("compact"+sparsity), file("dense"+sparsity)
		budget := []string{"prune", "--model", name + ".pth", "--scores", file("s.arrow"), "--sparsity", sparsity, "--out"}
		shaver(t, nil, append(budget, compact)...)
		shaver(t, nil, append(budget, dense, "--dense")...)
		a, b := logitsOf(t, compact, rows), logitsOf(t, dense, rows)
		if !slices.Equal(a, b) {
			t.Errorf("sparsity %s: the compact and the dense file have different logits: %v, %v", sparsity, a, b)
		}
		if whole := logitsOf(t, name+".pth", rows); sparsity == "0" && !slices.Equal(a, whole) {
			t.Errorf("with nothing dropped, the file and the model have different logits: %v, %v", a, whole)
		}
		pruned, err := checkpoint.Read(dense)
		if err != nil {
			t.Fatal(err)
		}
		if err := sameKeys(original, pruned); err != nil {
			t.Errorf("sparsity %s: dense: %v", sparsity, err)
		}
	}
}

func logitsOf(t *testing.T, path string, rows *model.Rows) []float64 {
	t.Helper()
	ck, err := checkpoint.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ck.Model()
	if err != nil {
		t.Fatal(err)
	}
	logits := make([]float64, rows.Len())
	m.NewScorer().Logits(logits, rows)
	return logits
}

// sameKeys checks that two state dicts have the same keys, shapes and types, and the
// same bytes except in the table.
func sameKeys(a, b *checkpoint.Checkpoint) error {
	x, y := slices.Sorted(slices.Values(a.Keys)), slices.Sorted(slices.Values(b.Keys))
	if !slices.Equal(x, y) {
		return fmt.Errorf("keys %v, expected %v", y, x)
	}
	for _, key := range x {
		p, q := a.Tensors[key], b.Tensors[key]
		if p.DType != q.DType || !slices.Equal(p.Shape, q.Shape) {
			return fmt.Errorf("%s is %s %v, expected %s %v", key, q.DType, q.Shape, p.DType, p.Shape)
		}
		if key != a.EmbeddingKey && string(p.Data) != string(q.Data) {
			return fmt.Errorf("%s has changed", key)
		}
	}
	return nil
}

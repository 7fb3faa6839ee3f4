//go:build unix

package main

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

const goldens = "../../testdata/golden"

// The values of single rows are those of the players in their order: they add up to the golden values of the entries.
func TestPlay(t *testing.T) {
	var want struct {
		Codebook [][]float32
		Exact    struct{ Codebook [][]float64 }
	}
	data, err := os.ReadFile(filepath.Join(goldens, "deepfm.json"))
	if err == nil {
		err = json.Unmarshal(data, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Read(filepath.Join(goldens, "deepfm.pth"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := ck.Model()
	if err != nil {
		t.Fatal(err)
	}
	g := &game{game: shapley.Game{Model: m}, rows: goldenRows(t)}
	for _, columns := range want.Codebook {
		g.game.Baseline.Values = append(g.game.Baseline.Values, columns...)
	}
	// Three copies of a row have the values of the row.
	found, err := play(t.Context(), g, estimator.Options{Estimator: estimator.Exact, Passes: 1}, 1, g.rows, 3)
	if err != nil {
		t.Fatal(err)
	}
	sums := make([]float64, m.Parameters())
	for r, v := range found {
		for i, phi := range v {
			sums[int(g.rows.Row(r)[i/m.Dim])*m.Dim+i%m.Dim] += phi
		}
	}
	for feature, columns := range want.Exact.Codebook {
		for c, phi := range columns {
			if got := sums[feature*m.Dim+c] / float64(len(found)); math.Abs(got-phi) > 1e-6 {
				t.Errorf("feature %d, column %d: value %g, expected %g", feature, c, got, phi)
			}
		}
	}
}

func goldenRows(t *testing.T) *model.Rows {
	file, err := os.Open(filepath.Join(goldens, "deepfm.rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	records, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows := &model.Rows{Width: len(records[0]) - 1}
	for i, record := range records[1:] {
		rows.Number = append(rows.Number, int64(i))
		for k, text := range record {
			v, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			if k == 0 {
				rows.Label = append(rows.Label, float32(v))
			} else {
				rows.Features = append(rows.Features, int32(v))
			}
		}
	}
	return rows
}

// A bias is not noise: noise that differs between runs counts only as error.
func TestJudge(t *testing.T) {
	want := [][]float64{{3, 4}, {0, 10}} // of sizes 5 and 10
	noise := values{{{3, 5}, {3, 3}}, {{2, 10}, {-2, 10}}}
	var p point
	p.judge(noise, want)
	// The errors of both rows are 0.2 in each run. The products of the two runs are -0.04.
	if math.Abs(p.Error-.2) > 1e-12 || math.Abs(p.Half) > 1e-12 || math.Abs(p.Bias+.2) > 1e-12 {
		t.Errorf("noise: error %g ± %g, bias %g", p.Error, p.Half, p.Bias)
	}
	bias := values{{{3, 5}, {3, 5}}, {{4, 10}, {4, 10}}}
	p.judge(bias, want)
	// The errors of the rows are 0.2 and 0.4.
	if math.Abs(p.Error-.3) > 1e-12 || math.Abs(p.Bias-math.Sqrt(.1)) > 1e-12 {
		t.Errorf("bias: error %g, bias %g", p.Error, p.Bias)
	}
	if math.Abs(p.Half-12.706*.1) > 1e-3 { // Student's t with one degree of freedom
		t.Errorf("half-width %g", p.Half)
	}
	// With a single row the interval is that of the runs.
	p.judge(values{{{3, 5}, {3, 6}}}, want[:1])
	if math.Abs(p.Error-.3) > 1e-12 || math.Abs(p.Half-12.706*.1) > 1e-3 {
		t.Errorf("one row: error %g ± %g", p.Error, p.Half)
	}
}

// Between two points the error follows a power of the work. Beyond the last one there is no error.
func TestErrorAt(t *testing.T) {
	points := []point{{Method: "a", Passes: 100, Error: .1}, {Method: "b", Passes: 1, Error: 1}, {Method: "a", Passes: 1, Error: 1}}
	work := func(p *point) float64 { return p.Passes }
	for _, c := range []struct{ at, want float64 }{{.5, -1}, {.9, 1}, {1, 1}, {10, math.Sqrt(.1)}, {100, .1}, {110, .1}, {200, -1}} {
		if got := errorAt(points, "a", c.at, work); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("at %g: %g, expected %g", c.at, got, c.want)
		}
	}
}

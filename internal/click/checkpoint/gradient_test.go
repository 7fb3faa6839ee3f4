package checkpoint

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/graph"
)

// derivatives are those of a row's logit, which PyTorch computed in float64.
type derivatives struct {
	Row    int
	Tables []struct{ Entries, Slopes []float32 } // rows of tables, with the derivatives for their entries
}

// readDerivatives returns the derivatives by the name of a model.
func readDerivatives(t *testing.T) map[string][]derivatives {
	t.Helper()
	file, err := os.Open(filepath.Join(exports, "gradients.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all := map[string][]derivatives{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var line struct {
			Model string
			Rows  []derivatives
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		all[line.Model] = line.Rows
	}
	if err := lines.Err(); err != nil || len(all) < 50 {
		t.Fatalf("%d models: %v", len(all), err)
	}
	return all
}

// The derivatives of exported models agree with those of PyTorch and, on the generic path,
// with differences in float64. So do those of models that are recognized.
func TestExportGradients(t *testing.T) {
	long.Test(t)
	vectors := readDerivatives(t)
	compared := 0
	for _, e := range readExports(t) {
		name, _, _ := strings.Cut(e.File, ".")
		for _, generic := range []bool{true, false} {
			if !generic && recognized[name] == "" {
				continue
			}
			t.Run(e.File, func(t *testing.T) {
				c, err := ReadPart(filepath.Join(exports, e.File), Options{ONNX: dissect.Options{Output: e.Output}, Generic: generic})
				if err != nil {
					t.Fatal(err)
				}
				m, err := c.Model()
				if err != nil {
					t.Fatal(err)
				}
				rows := e.rowsOf(t, c)
				g := m.NewGradient()
				slopes := make([][]float32, rows.Len())
				logits, want := make([]float64, rows.Len()), make([]float64, rows.Len())
				for r := range rows.Len() {
					m.Embed(g.Set(r, rows, r), rows.Row(r))
				}
				g.Slopes(logits)
				for r := range slopes {
					slopes[r] = slices.Clone(g.Slope(r))
				}
				if m.NewScorer().Logits(want, rows); generic && !slices.Equal(logits, want) {
					t.Errorf("the logits are %v, the scorer has %v", logits, want)
				}
				for _, d := range vectors[name] {
					comparePyTorch(t, name, m, rows, d, slopes[d.Row])
					compared++
				}
				if generic {
					for _, r := range []int{0, 7} {
						compareDifferences(t, m, rows, r, slopes[r])
					}
				}
			})
		}
	}
	if compared < 300 {
		t.Errorf("%d rows were compared with PyTorch", compared)
	}
}

// comparePyTorch compares the slopes of a row of the named model with d. Tables are found by their entries,
// because exporters rename and order them.
func comparePyTorch(t *testing.T, name string, m *model.Model, rows *model.Rows, d derivatives, slopes []float32) {
	t.Helper()
	entries := make([]float32, m.Players())
	m.Embed(entries, rows.Row(d.Row))
	steep := 0.0
	for _, table := range d.Tables {
		for _, s := range table.Slopes {
			steep = max(steep, math.Abs(float64(s)))
		}
	}
	if steep == 0 && name != "fuxictr-dcnv2-stacked" { // of which no unit is active in row 0
		t.Fatalf("row %d has no derivatives", d.Row)
	}
	// The derivative for a row of a table is the sum over the elements that read it.
	type tableRow struct{ span, row int }
	lengths := m.Lengths()
	ids := model.Offsets(lengths)
	spans, readers := map[int]int{}, map[int]model.Reader{} // by look-up
	for i, s := range m.Spans() {
		for _, r := range s.Readers() {
			spans[r.LookUp], readers[r.LookUp] = i, r
		}
	}
	read, sums := map[tableRow][]float32{}, map[tableRow][]float32{}
	at := 0
	for k := range len(readers) {
		field, dim := readers[k].Field, m.Spans()[spans[k]].Dim
		for i := range lengths[field] {
			row := tableRow{spans[k], int(rows.Row(d.Row)[int(ids[field])+i]) - readers[k].Feature}
			if read[row] == nil {
				read[row], sums[row] = entries[at:at+dim], make([]float32, dim)
			}
			for c := range dim {
				sums[row][c] += slopes[at+c]
			}
			at += dim
		}
	}
	found := make([]bool, len(d.Tables))
	for row, part := range read {
		near := func(want []float32) bool {
			return slices.EqualFunc(sums[row], want, func(x, y float32) bool { return math.Abs(float64(x-y)) <= 1e-4*steep })
		}
		matches := false
		for i, table := range d.Tables { // several rows of pads may be 0
			if slices.EqualFunc(part, table.Entries, func(x, y float32) bool { return math.Abs(float64(x-y)) <= 1e-6 }) && near(table.Slopes) {
				found[i], matches = true, true
			}
		}
		if !matches && !near(make([]float32, len(part))) { // those of a table that PyTorch left out
			t.Fatalf("row %d, table row %v: the derivatives are %v, expected those in PyTorch", d.Row, row, sums[row])
		}
	}
	if i := slices.Index(found, false); i >= 0 {
		t.Errorf("row %d does not have the derivatives %v of PyTorch", d.Row, d.Tables[i])
	}
}

// compareDifferences compares the slopes of row r with differences of the head's graph in
// float64.
func compareDifferences(t *testing.T, m *model.Model, rows *model.Rows, r int, slopes []float32) {
	t.Helper()
	head, values := m.Weights.Graph, map[graph.Value][]float64{}
	entries := make([]float32, m.Players())
	m.Embed(entries, rows.Row(r))
	x := make([]float64, len(entries))
	for p, v := range entries {
		x[p] = float64(v)
	}
	from := 0
	for _, v := range head.LookUps {
		n, err := graph.Count(head.Graph.Values[v].Shape)
		if err != nil {
			t.Fatal(err)
		}
		values[v] = x[from : from+n]
		from += n
	}
	lengths := m.Lengths()
	first := model.Offsets(lengths)
	ids := func(field int) (list []int) {
		for _, f := range rows.Row(r)[first[field]:][:lengths[field]] {
			list = append(list, int(f-m.Offsets()[field]))
		}
		return list
	}
	for _, c := range head.Constants {
		for _, id := range ids(c.Field) {
			for _, v := range c.Values[id*c.Dim : (id+1)*c.Dim] {
				values[c.Input] = append(values[c.Input], float64(v))
			}
		}
	}
	for _, d := range head.IDs {
		for _, id := range ids(d.Field) {
			values[d.Input] = append(values[d.Input], float64(id))
		}
	}
	for k, v := range head.Dense {
		values[v] = []float64{float64(rows.DenseRow(r)[k])}
	}
	logit := func() float64 {
		var in []*graph.Tensor
		for _, v := range head.Graph.Inputs {
			in = append(in, graph.NewDoubles(values[v], head.Graph.Values[v].Shape...))
		}
		out, err := head.Graph.Run(in)
		if err != nil {
			t.Fatal(err)
		}
		return out.Doubles()[0]
	}
	const h = 1e-6
	middle, steep := logit(), 0.0
	for _, s := range slopes {
		steep = max(steep, math.Abs(float64(s)))
	}
	for p, v := range x {
		x[p] = v + h
		up := logit()
		x[p] = v - h
		down := logit()
		x[p] = v
		if math.Abs(up-2*middle+down) > 1e-3*h*steep {
			continue // a kink
		}
		if want := (up - down) / (2 * h); !(math.Abs(float64(slopes[p])-want) <= 5e-5*steep) {
			t.Fatalf("row %d, player %d: the derivative is %v, expected %v", r, p, slopes[p], want)
		}
	}
}

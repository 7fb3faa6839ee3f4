package checkpoint

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/onnx/dissect"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// maskedTerms are the terms of a round of a path for one model, which PyTorch computed in float64.
type maskedTerms struct {
	Model         string
	Scale, Offset float64
	Logits        []float64
	Tables        []maskedTable
	Losses        map[string]struct {
		Labels        []float32
		First, Second [][]float64 // of the kept entries of each table
	}
	Export *export // nil = those of the model in readExports
}

// maskedTable is a table of PyTorch's model. Exporters rename and order tables, so they are found
// by their entries in the first column.
type maskedTable struct {
	FirstColumn []float32 `json:"first_column"`
	Baseline    []float32
	Dropped     []string // of each row, '1' for each dropped entry and '0' for the others
}

func readMaskedTerms(t *testing.T) []maskedTerms {
	t.Helper()
	file, err := os.Open("../../../testdata/path/terms.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []maskedTerms
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line maskedTerms
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	if err := lines.Err(); err != nil || len(all) < 20 {
		t.Fatalf("%d models: %v", len(all), err)
	}
	return all
}

// A round of a path has the logits and the terms of PyTorch at tables in which most entries are
// dropped, for each exporter and loss, and for models that are recognized.
func TestMaskedTerms(t *testing.T) {
	exports := map[string][]export{}
	for _, e := range readExports(t) {
		name, _, _ := strings.Cut(e.File, ".")
		exports[name] = append(exports[name], e)
	}
	for _, m := range readMaskedTerms(t) {
		of := exports[m.Model]
		if m.Export != nil {
			of = []export{*m.Export}
		}
		if len(of) == 0 {
			t.Errorf("there is no export of %s", m.Model)
		}
		worst := 0.0
		for _, e := range of {
			for _, generic := range []bool{true, false} {
				if !generic && recognized[m.Model] == "" {
					continue
				}
				worst = max(worst, testMaskedTerms(t, &m, &e, generic))
			}
		}
		t.Logf("%s: %d graphs differ by at most %.1e", m.Model, len(of), worst)
	}
}

// maskedTolerance is the largest difference of a term, as a portion of the largest term of the
// model. The slopes are computed in float32, whose unit roundoff is 6e-8, through up to a dozen
// layers with sums of tens of products.
const maskedTolerance = 5e-6

// testMaskedTerms returns the largest difference of a term, as a portion of the largest term.
func testMaskedTerms(t *testing.T, want *maskedTerms, e *export, generic bool) (worst float64) {
	t.Helper()
	c, err := ReadPart(filepath.Join(exports, e.File), Options{ONNX: dissect.Options{Output: e.Output}, Generic: generic})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Model()
	if err != nil {
		t.Fatal(err)
	}
	rows := e.rowsOf(t, c).Slice(0, len(want.Logits))
	tables := newMaskedTables(t, want, m)
	if n := m.Parameters(); tables.dropped.Count(0, n) < n*2/5 {
		t.Errorf("%s: only %d of %d entries are dropped", e.File, tables.dropped.Count(0, n), n)
	}
	masked := m.WithEmbedding(mask.Apply(&m.Architecture, m.Weights.Embedding, tables.dropped.Bools(m.Parameters()), tables.baseline))
	logits := make([]float64, rows.Len())
	masked.NewScorer().Logits(logits, &rows)
	for r, z := range want.Logits {
		if !(math.Abs(logits[r]-z) <= 4e-6*max(1, math.Abs(z))) {
			t.Fatalf("%s, row %d: the logit is %v, expected %v", e.File, r, logits[r], z)
		}
	}
	o := shapley.Options{Options: estimator.Options{Estimator: estimator.Path, Passes: 1}, Unmeasured: tables.dropped, Calibration: loss.Calibration{Scale: want.Scale, Offset: want.Offset}}
	o.SetDefaults()
	shape := m.Shape()
	for name, expected := range want.Losses {
		kind, err := loss.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		rows.Label = expected.Labels
		p, err := shapley.Estimate(t.Context(), shapley.Game{Model: masked, Baseline: tables.baseline, Loss: kind}, o, &rows, 1, nil)
		if err != nil {
			t.Fatalf("%s: %v", e.File, err)
		}
		sums := tally.NewAccumulator(shape, tally.Form{Path: true})
		if err := sums.Merge(p); err != nil {
			t.Fatal(err)
		}
		for k, terms := range [][][]float64{expected.First, expected.Second} {
			values := tables.spread(terms)
			largest, at, off := 0.0, 0, 0.0
			for row := range shape.Rows() {
				from, to := shape.Row(row)
				got := [2][]float64{make([]float64, to-from), make([]float64, to-from)}
				sums.Terms(row, got[0], got[1])
				for i := from; i < to; i++ {
					largest = max(largest, math.Abs(values[i]))
					if d := math.Abs(got[k][i-from] - values[i]); !(d <= off) {
						at, off = i, d
					}
				}
			}
			if !(off <= maskedTolerance*largest) || largest < 1e-4 {
				t.Errorf("%s, loss %s: term %d of entry %d differs by %g from %g, and the largest is %g", e.File, name, k+1, at, off, values[at], largest)
			}
			worst = max(worst, off/largest)
		}
	}
	return worst
}

// maskedTables says where the entries of a model's tables are in those of PyTorch.
type maskedTables struct {
	want     *maskedTerms
	at       [][3]int // table, row and column of each entry; the table of an entry of a pad row is -1
	dropped  layout.Mask
	baseline model.Baseline
}

func newMaskedTables(t *testing.T, want *maskedTerms, m *model.Model) *maskedTables {
	t.Helper()
	n, shape := m.Parameters(), m.Shape()
	tables := &maskedTables{want: want, at: make([][3]int, n), dropped: layout.NewMask(n), baseline: m.Zero()}
	pads := map[int]bool{}
	for _, row := range m.FixedRows() {
		pads[row] = true
	}
	for _, s := range m.Spans() {
		table, first := want.find(t, m.Weights.Embedding[s.Entry:], &s)
		for row := range s.Rows {
			from, to := shape.Row(s.Row + row)
			line := first + row
			if v := want.Tables[table].FirstColumn[line]; math.Abs(float64(v-m.Weights.Embedding[from])) > 1e-6 {
				t.Fatalf("%s: row %d of table %d begins with %v, expected %v", want.Model, line, table, v, m.Weights.Embedding[from])
			}
			for i := from; i < to; i++ {
				if tables.at[i] = [3]int{table, line, i - from}; pads[s.Row+row] {
					tables.at[i][0] = -1
				} else if want.Tables[table].Dropped[line][i-from] == '1' {
					tables.dropped.Drop(i)
				}
			}
		}
		for _, r := range s.Readers() {
			copy(tables.baseline.Values[r.Baseline:][:s.Dim], want.Tables[table].Baseline)
		}
	}
	return tables
}

// find returns the table that has the rows of a span, and the number of the first one. The span has the
// first of the given entries.
func (m *maskedTerms) find(t *testing.T, entries []float32, s *model.Span) (table, first int) {
	t.Helper()
	for row := s.Rows - 1; row >= 0; row-- {
		found := 0
		for k := range m.Tables {
			for i, v := range m.Tables[k].FirstColumn {
				if len(m.Tables[k].Baseline) == s.Dim && math.Abs(float64(v-entries[row*s.Dim])) <= 1e-6 {
					table, first = k, i-row
					found++
				}
			}
		}
		if found == 1 { // several rows may be 0
			return table, first
		}
	}
	t.Fatalf("%s: no table has the rows of field %d", m.Model, s.Field)
	return 0, 0
}

// spread returns the value of each entry. values has those of the kept entries of each table. Dropped
// entries and those of pad rows have 0.
func (m *maskedTables) spread(values [][]float64) []float64 {
	numbers := make([][][]float64, len(values)) // by table, row and column
	for k, table := range m.want.Tables {
		next := 0
		for _, row := range table.Dropped {
			line := make([]float64, len(row))
			for c := range row {
				if row[c] == '0' {
					line[c] = values[k][next]
					next++
				}
			}
			numbers[k] = append(numbers[k], line)
		}
	}
	all := make([]float64, len(m.at))
	for i, at := range m.at {
		if at[0] >= 0 {
			all[i] = numbers[at[0]][at[1]][at[2]]
		}
	}
	return all
}

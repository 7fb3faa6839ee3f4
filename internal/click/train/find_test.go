package train

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/click/composed"
)

// finders are the settings of the goldens of the tables that find the entries to keep. Other tables
// have none.
var finders = map[string]*Find{
	"pep":      {Method: PEP, Keep: 40, WarmUp: 1, Rate: 3e-2},
	"cerp":     {Method: CERP, Keep: 40, WarmUp: 1, Rate: 3e-2},
	"optembed": {Method: OptEmbed},
	"qr":       nil,
	"tt":       nil,
}

// composedShapes are the shapes of the goldens of composed tables.
var composedShapes = map[string]composed.Shape{
	"cerp": composed.ForBuckets(19, 5, 8),
	"qr":   composed.ForDivider(19, 5, 5),
	"tt":   {Scheme: composed.TT, Features: 19, Dim: 4, Rows: []int{3, 2, 4}, Columns: []int{2, 1, 2}, Ranks: []int{3, 2}},
}

// newFinder returns a trainer of a golden whose table has the golden's values.
func newFinder(t *testing.T, name string, find *Find, dropout float64) *Trainer {
	t.Helper()
	c := goldenModel(t, name, 0)
	o := Options{Optimizer: Adam, LearningRate: 1e-2, WeightDecay: 1e-3, Dropout: dropout, Batch: 24, Seed: 7, Find: find}
	if s, ok := composedShapes[name]; ok {
		o.Composed = composed.New(s)
	}
	trainer := newTrainer(t, c, o)
	for _, w := range trainer.table.Tensors() {
		copy(w.values, goldenTable(t, name, 0)[w.name])
	}
	if table, ok := trainer.table.(*optTable); ok { // the draws of the golden
		table.draw = func(columns []int32, row int64, _ int) {
			for j := range columns {
				columns[j] = int32((7*row+int64(3*j))%int64(table.dim)) + 1
			}
		}
	}
	return trainer
}

// goldenTable reads the tensors of the table of a golden after some steps, by their names.
func goldenTable(t *testing.T, name string, steps int) map[string][]float32 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(goldens, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[int]map[string][]float32
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all[steps]
}

// One and ten steps of the tables with tensors of their own give the weights and thresholds that
// PyTorch gives.
func TestGoldenTables(t *testing.T) {
	for name, find := range finders {
		t.Run(name, func(t *testing.T) {
			start, rows := goldenModel(t, name, 0), goldenRows(t)
			trainer := newFinder(t, name, find, 0)
			for step := range 10 {
				part := rows.Slice(step*24, (step+1)*24)
				trainer.Step(&part, 1)
				if step > 0 && step < 9 {
					continue
				}
				got, err := start.WithParameters(trainer.Parameters())
				if err != nil {
					t.Fatal(err)
				}
				want := goldenModel(t, name, step+1)
				values := goldenTable(t, name, step+1)
				for _, w := range trainer.table.Tensors() {
					compare(t, w.name, step+1, values[w.name], w.values)
				}
				compareStates(t, want, got, step+1)
			}
		})
	}
}

package checkpoint

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/onnx/dissect"
)

// A model of several tasks has the logit of the task that the last dense inputs choose, and its derivatives agree with
// differences. It stays the same model as a safetensors file. What would change the logit of one output is refused.
func TestTasks(t *testing.T) {
	folder := filepath.Join("..", "..", "..", "testdata", "tasks")
	path := filepath.Join(folder, "shared-bottom.onnx")
	text, err := os.ReadFile(filepath.Join(folder, "shared-bottom.json"))
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		IDs     [][]int32
		Outputs map[string][]float64
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	c, m, err := ReadModel(path, "click,buy")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.Dense, []string{dissect.TaskInput(0), dissect.TaskInput(1)}) || len(c.Known().Dense) > 0 {
		t.Fatalf("dense inputs %v, of the file %v", m.Dense, c.Known().Dense)
	}
	rowsOf := func(m *model.Model, chosen ...float32) *model.Rows {
		rows := &model.Rows{Width: m.Width(), Inputs: len(chosen)}
		for i, ids := range said.IDs {
			rows.Number, rows.Label, rows.Dense = append(rows.Number, int64(i)), append(rows.Label, 0), append(rows.Dense, chosen...)
			for j, id := range ids {
				rows.Features = append(rows.Features, m.Offsets()[j]+id)
			}
		}
		return rows
	}
	logits := func(m *model.Model, rows *model.Rows) []float64 {
		found := make([]float64, rows.Len())
		m.NewScorer().Logits(found, rows)
		return found
	}
	for k, task := range []string{"click", "buy"} {
		single, err := ReadPart(path, Options{ONNX: dissect.Options{Output: task}, Generic: true})
		if err != nil {
			t.Fatal(err)
		}
		one, err := single.Model()
		if err != nil {
			t.Fatal(err)
		}
		chosen := make([]float32, 2)
		chosen[k] = 1
		rows := rowsOf(m, chosen...)
		found := logits(m, rows)
		if want := logits(one, rowsOf(one)); !slices.Equal(found, want) {
			t.Errorf("%s: logits %v, expected %v", task, found, want)
		}
		for i, p := range said.Outputs[task] {
			if got := 1 / (1 + math.Exp(-found[i])); math.Abs(got-p) > 1e-6 {
				t.Errorf("%s: row %d has the probability %v, onnxruntime gives %v", task, i, got, p)
			}
		}
		g := m.NewGradient()
		for r := range rows.Len() {
			m.Embed(g.Set(r, rows, r), rows.Row(r))
		}
		g.Slopes(make([]float64, rows.Len()))
		for r := range rows.Len() {
			compareDifferences(t, m, rows, r, g.Slope(r))
		}
	}
	folder = t.TempDir()
	if _, err := WriteDense(filepath.Join(folder, "m.safetensors"), c); err != nil {
		t.Fatal(err)
	}
	again, err := Read(filepath.Join(folder, "m.safetensors"))
	if err != nil || again.Digest() != c.Digest() || len(again.Known().Dense) > 0 {
		t.Errorf("%v, %+v", err, again)
	}
	if err := c.CheckCalibration(); err == nil || !strings.Contains(err.Error(), "its output click,buy is computed from others") {
		t.Errorf("error %v", err)
	}
	if _, err := WriteNewONNX(filepath.Join(folder, "m.onnx"), c); err == nil || !strings.Contains(err.Error(), "the model has 2 tasks") {
		t.Errorf("error %v", err)
	}
}

// A model without some fields is still used for its tasks.
func TestSliceKeepsTasks(t *testing.T) {
	path := filepath.Join("..", "..", "..", "testdata", "tasks", "shared-bottom.onnx")
	for _, tasks := range [][]model.Task{{{Label: "buy", Output: "buy", Weight: 1}}, {{Label: "click", Output: "click", Weight: 2}, {Label: "buy", Output: "buy", Weight: 1}}} {
		c, err := ReadOutput(path, "", tasks...)
		if err != nil {
			t.Fatal(err)
		}
		s := Slice{Fields: []int{0, 1, 2, 3}}
		for k := range c.Architecture.TableColumns() {
			s.Columns = append(s.Columns, k)
		}
		sliced, err := c.Sliced(s)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sliced.Known().Tasks, tasks) {
			t.Errorf("tasks %v, expected %v", sliced.Known().Tasks, tasks)
		}
	}
}

package train

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
)

const goldens = "../../../testdata/train"

// goldenRows returns the rows of the goldens: 10 batches of 24 rows.
func goldenRows(t testing.TB) *model.Rows {
	t.Helper()
	file, err := os.Open(filepath.Join(goldens, "rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows := &model.Rows{Width: len(lines[0]) - 1}
	for i, line := range lines[1:] {
		rows.Number = append(rows.Number, int64(i))
		for j, cell := range line {
			n, err := strconv.Atoi(cell)
			if err != nil {
				t.Fatal(err)
			}
			if j == 0 {
				rows.Label = append(rows.Label, float32(n))
			} else {
				rows.Features = append(rows.Features, int32(n))
			}
		}
	}
	return rows
}

// rowsFor returns the rows of the goldens for a model, which reads as many of the first fields as
// it has.
func rowsFor(t testing.TB, a *model.Architecture) *model.Rows {
	t.Helper()
	rows := goldenRows(t)
	narrow := &model.Rows{Width: a.Fields(), Label: rows.Label, Number: rows.Number}
	for i := range rows.Len() {
		narrow.Features = append(narrow.Features, rows.Row(i)[:a.Fields()]...)
	}
	return narrow
}

// goldenModel reads the model of a golden after some steps.
func goldenModel(t testing.TB, name string, steps int) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Read(filepath.Join(goldens, fmt.Sprintf("%s.%d.safetensors", name, steps)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newTrainer(t testing.TB, c *checkpoint.Checkpoint, o Options) *Trainer {
	t.Helper()
	p, err := c.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	trainer, err := New(c.Architecture, p, o)
	if err != nil {
		t.Fatal(err)
	}
	return trainer
}

// One and ten steps of Adam with weight decay give the weights that PyTorch gives, in
// training mode, for every kind.
func TestGoldenSteps(t *testing.T) {
	const batch = 24
	for _, name := range []string{"fm", "deepfm", "deepfm-plain", "deepfm-sparse", "widedeep", "dcn-mix", "dcnv2-stacked", "dcnv2-parallel", "neumf"} {
		t.Run(name, func(t *testing.T) {
			o := Options{Optimizer: Adam, LearningRate: 1e-2, WeightDecay: 1e-3, Batch: batch}
			if strings.HasSuffix(name, "-sparse") {
				o.Optimizer = SparseAdam
			}
			start := goldenModel(t, name, 0)
			rows := rowsFor(t, &start.Architecture)
			trainer := newTrainer(t, start, o)
			for step := range rows.Len() / batch {
				part := rows.Slice(step*batch, (step+1)*batch)
				trainer.Step(&part, 0)
				if step == 0 || step == 9 {
					got, err := start.WithParameters(trainer.Parameters())
					if err != nil {
						t.Fatal(err)
					}
					compareStates(t, goldenModel(t, name, step+1), got, step+1)
				}
			}
		})
	}
}

// compareStates compares all tensors of two state dicts, except biases that a BatchNorm
// removes. Their gradients are rounding errors in PyTorch, which Adam makes large.
func compareStates(t *testing.T, want, got *checkpoint.Checkpoint, steps int) {
	t.Helper()
	for _, key := range want.Keys {
		a, err := want.Tensors[key].Float32s()
		if err != nil {
			t.Fatal(err)
		}
		b, err := got.Tensors[key].Float32s()
		if err != nil {
			t.Fatal(err)
		}
		if beforeNorm(want, key, steps) {
			continue
		}
		compare(t, key, steps, a, b)
	}
}

// compare compares the values of a tensor. A tensor that a step has brought close to 0, such as a
// bias, is compared on the scale of the length of a step.
func compare(t *testing.T, key string, steps int, want, got []float32) {
	t.Helper()
	largest, off := 1e-2, 0.0 // the learning rate of the goldens
	for i, x := range want {
		largest = max(largest, math.Abs(float64(x)))
		off = max(off, math.Abs(float64(x)-float64(got[i])))
	}
	if !(off <= 2e-6*largest) {
		t.Errorf("after %d steps: tensor %s is off by %.2g of its largest value", steps, key, off/largest)
	}
}

// beforeNorm reports whether key is the bias of a layer before a BatchNorm, or the running
// mean after one, which contains the biases of the steps before the last.
func beforeNorm(c *checkpoint.Checkpoint, key string, steps int) bool {
	next := func(distance int) string {
		parts := strings.Split(key, ".")
		n, err := strconv.Atoi(parts[len(parts)-2])
		if err != nil {
			return ""
		}
		parts[len(parts)-2], parts[len(parts)-1] = strconv.Itoa(n+distance), "running_var"
		return strings.Join(parts, ".")
	}
	if !strings.HasPrefix(key, "_dnn.") && !strings.HasPrefix(key, "_deep_branch.") {
		return false
	}
	return strings.HasSuffix(key, ".bias") && slices.Contains(c.Keys, next(1)) || strings.HasSuffix(key, ".running_mean") && steps > 1
}

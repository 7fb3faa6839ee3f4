package checkpoint

import (
	"math"
	"path/filepath"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
)

// The logits of every architecture become scale*z + offset. This also holds where an
// entry reads a baseline that was multiplied like the table.
func TestCalibrated(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "golden", "*.pth"))
	if err != nil || len(paths) < 6 {
		t.Fatalf("%d goldens: %v", len(paths), err)
	}
	for _, path := range paths {
		c, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		baseline := make([]float32, c.Architecture.Players())
		for i := range baseline {
			baseline[i] = float32(i)/16 - .3
		}
		logits := func(c *Checkpoint, baseline []float32) (all []float64) {
			table, err := c.Embedding()
			if err != nil {
				t.Fatal(err)
			}
			copy(table, baseline[:c.Architecture.Dim]) // feature 0 is dropped
			m, err := c.WithEmbedding(table).Model()
			if err != nil {
				t.Fatal(err)
			}
			offsets := m.Offsets()
			for id := range 3 {
				row := make([]int, m.Fields())
				for j := range row {
					row[j] = int(offsets[j]) + id%m.FieldDims[j]
				}
				all = append(all, logit(m, row))
			}
			return all
		}
		before := logits(c, baseline)
		for _, by := range [][2]float64{{.3, -1.5}, {2, .25}, {1, 0}} {
			calibrated, table, err := c.Calibrated(by[0], by[1])
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Parse("again", canonical(calibrated)); err != nil || again.Digest() != calibrated.Digest() {
				t.Errorf("%s: the written file reads as another checkpoint: %v", path, err)
			}
			scaled := make([]float32, len(baseline))
			for i, v := range baseline {
				scaled[i] = table * v
			}
			for i, got := range logits(calibrated, scaled) {
				if want := by[0]*before[i] + by[1]; math.Abs(got-want) > 2e-6*(1+math.Abs(want)) {
					t.Errorf("%s by %v, row %d: %.8f, expected %.8f", path, by, i, got, want)
				}
			}
		}
		if again := logits(c, baseline); again[0] != before[0] {
			t.Errorf("%s: Calibrated changed the original checkpoint", path)
		}
		if _, _, err := c.Calibrated(1e300, 0); !fault.IsInput(err) {
			t.Errorf("%s: calibration beyond the range of float32: %v", path, err)
		}
	}
}

// The logits of a model of Kind Graph become scale*z + offset, also if it is calibrated
// twice, and the tables stay the same.
func TestCalibratedGraph(t *testing.T) {
	for _, name := range graphs {
		c := graphOf(t, name)
		logits := func(c *Checkpoint) []float64 {
			m, err := c.Model()
			if err != nil {
				t.Fatal(err)
			}
			rows := &model.Rows{Width: m.Fields(), Inputs: len(m.Dense)}
			for i, offsets := 0, m.Offsets(); i < 20; i++ {
				rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, 0)
				for j, size := range m.FieldDims {
					rows.Features = append(rows.Features, offsets[j]+int32(i*7919%size))
				}
				for k := range m.Dense {
					rows.Dense = append(rows.Dense, float32(i-k)/8)
				}
			}
			all := make([]float64, rows.Len())
			m.NewScorer().Logits(all, rows)
			return all
		}
		before, digest := logits(c), c.Digest()
		calibrated := func(c *Checkpoint, scale, offset float64) *Checkpoint {
			changed, table, err := c.Calibrated(scale, offset)
			if err != nil || table != 1 {
				t.Fatalf("%s: the table is multiplied by %v: %v", name, table, err)
			}
			again, err := Parse("again", canonical(changed))
			if err != nil || again.Digest() != changed.Digest() {
				t.Fatalf("%s: the written file reads as another checkpoint: %v", name, err)
			}
			return again
		}
		once := calibrated(c, .5, 1)
		twice := calibrated(once, 4, -1)
		for i, z := range before {
			for scale, got := range map[float64]float64{.5: logits(once)[i] - 1, 2: logits(twice)[i] - 3} {
				if math.Abs(got-scale*z) > 2e-6*(1+math.Abs(z)) {
					t.Errorf("%s, row %d: %.8f, expected %.8f", name, i, got, scale*z)
				}
			}
		}
		if c.Digest() != digest {
			t.Errorf("%s: Calibrated changed the original checkpoint", name)
		}
		if _, _, err := c.Calibrated(1e300, 0); !fault.IsInput(err) {
			t.Errorf("%s: calibration beyond the range of float32: %v", name, err)
		}
	}
}

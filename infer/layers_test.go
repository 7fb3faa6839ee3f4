package infer_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"shaver/infer"
	"shaver/infer/infertest"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
)

// layered is a file in layers and the file of each of its models.
type layered struct {
	data    []byte
	layers  []checkpoint.Layer
	singles []string // paths
}

// layersOf writes c with three masks in one file and in three.
func layersOf(t testing.TB, c *checkpoint.Checkpoint, v compact.Encoding, baseline model.Baseline, calibrate bool) *layered {
	t.Helper()
	a, dir, l := &c.Architecture, t.TempDir(), &layered{}
	var masks [][]bool
	for i, s := range []float64{.97, .8, .4} {
		dropped := mask(a.Parameters(), s) // of the same numbers, so each has what the one before has
		keepPads(c, dropped)
		layer := checkpoint.Layer{Sparsity: s}
		single, factor, err := c, float32(1), error(nil)
		if calibrate {
			layer.Calibration = &checkpoint.LayerCalibration{Scale: 1.25 - .2*float64(i), Offset: .3 * float64(i-1)}
			if single, factor, err = c.Calibrated(layer.Calibration.Scale, layer.Calibration.Offset); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, string(rune('a'+i)))
		if _, err := checkpoint.WriteCompact(path, single, dropped, baseline.Scaled(factor), v); err != nil {
			t.Fatal(err)
		}
		l.singles, l.layers, masks = append(l.singles, path), append(l.layers, layer), append(masks, dropped)
	}
	path := filepath.Join(dir, "layers.safetensors")
	_, err := checkpoint.WriteLayers(path, c, l.layers, masks, baseline, v)
	if err == nil {
		l.data, err = os.ReadFile(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// logitsOf returns the logits of some rows.
func logitsOf(t rapid.TB, m *infer.Model) []float64 {
	ids, rows := rowsOf(m.Sizes(), m.Lengths(), len(m.DenseInputs()), 100)
	logits := make([]float64, 100)
	if err := m.Logits(logits, ids, rows.Dense); err != nil {
		t.Fatal(err)
	}
	return logits
}

// want returns the logits of the model of each layer in its own file.
func (l *layered) want(t testing.TB) (all [][]float64) {
	for _, path := range l.singles {
		m, err := infer.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, logitsOf(t, m))
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func equalBits(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

// The beginning of a file through each layer has, to the last bit, the logits of the file of its model alone: for models of all
// kinds and for graphs with several tables, lists, pads, dense inputs and frozen fields, with words, calibrated and not.
func TestLayers(t *testing.T) {
	models := map[string]*checkpoint.Checkpoint{"din": readExport(t, "../testdata/histories/din.onnx"), "frozen": read(t, "dcn-mix.pth")}
	models["frozen"].Architecture.Frozen = []int{0}
	for _, name := range []string{"fm", "deepfm", "dcn-mix", "dcnv2-stacked", "neumf"} {
		models[name] = read(t, name+".pth")
	}
	for _, name := range []string{"deepctr-torch-autoint", "deepctr-torch-bags", "ncf", "buckets"} {
		models[name] = readExport(t, "../testdata/onnx/"+name+".dynamo.onnx")
	}
	for name, c := range models {
		for _, v := range []compact.Encoding{compact.Float32, compact.Float16} {
			for _, calibrate := range []bool{false, true} {
				k := c.Architecture.Kind
				if v == compact.Float16 && (calibrate && (k == model.FM || k == model.DeepFM) || c.Architecture.Frozen != nil) {
					continue
				}
				for _, b := range []model.Baseline{c.Architecture.Zero(), infertest.Words(&c.Architecture)} {
					l := layersOf(t, c, v, b, calibrate)
					for i, want := range l.want(t) {
						data := l.data[:l.layers[i].Bytes]
						m, err := infer.OpenBytes(name, data)
						if err != nil {
							t.Fatalf("%s, %s: %v", name, v, err)
						}
						if have, all := m.Layers(); have != i+1 || all != 3 {
							t.Fatalf("%s: %d of %d layers", name, have, all)
						}
						if got := logitsOf(t, m); !equalBits(got, want) {
							t.Fatalf("%s, %s, calibrated %v, %d layers: logits %v, expected %v", name, v, calibrate, i+1, got, want)
						}
						back, err := checkpoint.Parse(name, data) // what the commands read
						if err != nil || back.Compact.Kept() != l.layers[i].Kept {
							t.Fatalf("%s: %v", name, err)
						}
						whole, err := back.Model()
						if err != nil {
							t.Fatal(err)
						}
						_, rows := rowsOf(m.Sizes(), m.Lengths(), len(m.DenseInputs()), 100)
						got := make([]float64, 100)
						if whole.NewScorer().Logits(got, rows); !equalBits(got, want) {
							t.Fatalf("%s, %d layers: the whole table has other logits", name, i+1)
						}
					}
				}
			}
		}
	}
}

// The calibration of an FM multiplies its table, so values that are rounded to float16 differ from layer to layer.
func TestLayersRefuse(t *testing.T) {
	c := read(t, "fm.pth")
	layers := []checkpoint.Layer{{Calibration: &checkpoint.LayerCalibration{Scale: 2}}}
	_, err := checkpoint.WriteLayers(filepath.Join(t.TempDir(), "x"), c, layers, [][]bool{mask(c.Architecture.Parameters(), .5)}, c.Architecture.Zero(), compact.Float16)
	if !fault.IsUsage(err) || !strings.Contains(err.Error(), "expected float32, or no calibration") {
		t.Errorf("%v", err)
	}
}

// A file that ends anywhere is the model of its whole layers, and one without a whole layer is an error. So is one with a changed
// byte, unless the change is behind the whole layers.
func TestCutLayers(t *testing.T) {
	c := read(t, "deepfm.pth")
	l := layersOf(t, c, compact.Float32, infertest.Words(&c.Architecture), true)
	want := l.want(t)
	check := func(t rapid.TB, n int, data []byte, changed bool) {
		whole := 0
		for _, layer := range l.layers {
			if layer.Bytes <= int64(n) {
				whole++
			}
		}
		m, err := infer.OpenBytes("cut", data)
		if err != nil {
			if !fault.IsInput(err) || !changed && whole > 0 {
				t.Fatalf("%d bytes with %d whole layers: %v", n, whole, err)
			}
			return
		}
		if have, _ := m.Layers(); have != whole || !equalBits(logitsOf(t, m), want[whole-1]) {
			t.Fatalf("%d bytes, changed %v: %d layers, expected %d with their logits", n, changed, have, whole)
		}
	}
	for _, layer := range l.layers {
		for n := layer.Bytes - 3; n <= min(layer.Bytes+3, int64(len(l.data))); n++ {
			check(t, int(n), l.data[:n], false)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(0, len(l.data)).Draw(r, "bytes")
		check(r, n, l.data[:n], false)
		if n > 0 {
			data := slices.Clone(l.data[:n])
			data[rapid.IntRange(0, n-1).Draw(r, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(r, "change"))
			check(r, n, data, true)
		}
	})
	if _, err := infer.OpenBytes("long", append(slices.Clone(l.data), 0)); !fault.IsInput(err) {
		t.Errorf("a byte after the last layer: %v", err)
	}
	for n := range 300 {
		if layers, err := infer.Layers("head", l.data[:n]); layers != nil || !fault.IsInput(err) {
			t.Errorf("of %d bytes: %v", n, err)
		}
	}
	if layers, err := infer.Layers("head", l.data[:l.layers[0].Bytes]); err != nil || len(layers) != 3 || layers[2].Bytes != int64(len(l.data)) {
		t.Errorf("layers %+v, %v", layers, err)
	}
}

// Upgrade replaces the model while others score: each call has the logits of one of the models, never of an earlier one than a call
// before, and none fails. The file may grow in place. After Close, and for another file or fewer layers, Upgrade is an error.
func TestUpgrade(t *testing.T) {
	c := read(t, "dcn-mix.pth")
	l := layersOf(t, c, compact.Float16, infertest.Words(&c.Architecture), true)
	want := l.want(t)
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := os.WriteFile(path, l.data[:l.layers[0].Bytes+9], 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := rowsOf(m.Sizes(), nil, 0, 100)
	var group sync.WaitGroup
	reached := make([]sync.WaitGroup, 3)
	for i := range reached {
		reached[i].Add(4)
	}
	for range 4 {
		group.Go(func() {
			at, got := -1, make([]float64, 100)
			for at < 2 {
				if err := m.Logits(got, ids, nil); err != nil {
					t.Error(err)
				}
				now := slices.IndexFunc(want, func(w []float64) bool { return equalBits(got, w) })
				if now < at {
					t.Errorf("logits %d after those of layer %d", now, at)
				}
				for ; at < now; at++ {
					reached[at+1].Done()
				}
			}
		})
	}
	reached[0].Wait()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.Write(l.data[l.layers[0].Bytes+9 : l.layers[1].Bytes])
	}
	if err := errors.Join(err, file.Close(), m.Upgrade(path)); err != nil {
		t.Fatal(err)
	}
	reached[1].Wait()
	if err := m.UpgradeBytes(l.data); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	other := layersOf(t, c, compact.Float16, c.Architecture.Zero(), false)
	for name, data := range map[string][]byte{"fewer": l.data[:l.layers[1].Bytes], "other": other.data, "cut": l.data[:99]} {
		if err := m.UpgradeBytes(data); !fault.IsInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !equalBits(logitsOf(t, m), want[2]) {
		t.Error("a failed upgrade changed the model")
	}
	if err := errors.Join(m.Upgrade(filepath.Join(t.TempDir(), "none"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if err := m.UpgradeBytes(l.data); !errors.Is(err, infer.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// A file in layers that a fuzzer changed is an input error, or has the logits of its whole layers.
func FuzzLayers(f *testing.F) {
	c := read(f, "fm.pth")
	l := layersOf(f, c, compact.Float32, infertest.Words(&c.Architecture), true)
	want := l.want(f)
	f.Add(l.data)
	for _, layer := range l.layers {
		f.Add(l.data[:layer.Bytes+1-layer.Bytes/int64(len(l.data))])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := infer.OpenBytes("fuzzed", data)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("not an input error: %v", err)
			}
			return
		}
		if have, _ := m.Layers(); have > 0 && !equalBits(logitsOf(t, m), want[have-1]) {
			t.Fatalf("other logits with %d layers", have)
		}
	})
}

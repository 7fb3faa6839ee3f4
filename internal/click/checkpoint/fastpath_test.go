package checkpoint

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint/family/familytest"
	"shaver/internal/click/model"
)

// pair is a checkpoint and the .onnx file of the same model.
type pair struct {
	name, onnx string
	checkpoint string // path
	rows       [][]int32
}

// pairs returns the models of which there is a checkpoint and an export.
func pairs(t *testing.T) []pair {
	t.Helper()
	var all []pair
	for _, c := range familytest.Cases(t, familyFolder) {
		if path := filepath.Join(familyFolder, c.Name+".onnx"); exists(path) {
			all = append(all, pair{c.Name, path, c.CopyTo(t, t.TempDir(), c.Said()), c.Rows})
		}
	}
	rows := all[0].rows
	for _, name := range []string{"own-fm", "own-deepfm", "own-deepfm-norm", "own-widedeep", "own-dcnv2-stacked", "own-dcnv2-parallel"} {
		said := `{"field_dims": [7, 11, 5, 4, 3]}`
		if name == "own-widedeep" { // whose tensors have the names of those of a DeepFM
			said = `{"kind": "widedeep", "field_dims": [7, 11, 5, 4, 3]}`
		}
		c := familytest.Case{Folder: familyFolder, File: name + ".pth"}
		all = append(all, pair{name, filepath.Join(familyFolder, name+".onnx"), c.CopyTo(t, t.TempDir(), said), rows})
	}
	for _, p := range slices.Clone(all) {
		if path := strings.TrimSuffix(p.onnx, "onnx") + "dynamo.onnx"; exists(path) {
			all = append(all, pair{p.name + ".dynamo", path, p.checkpoint, p.rows})
		}
	}
	if len(all) < 28 {
		t.Fatalf("%d pairs, expected 28", len(all))
	}
	return all
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func mustModel(t *testing.T, path string, o Options) (*Checkpoint, *model.Model) {
	t.Helper()
	c, err := ReadPart(path, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Model()
	if err != nil {
		t.Fatal(err)
	}
	return c, m
}

// A model has the same weights, to the bit, whether it is read from the checkpoint of its
// framework or from its .onnx file, whose BatchNorms are folded in the same way. The dynamo
// exporter folds them itself, in float32, which changes the last bits. Without the fast path
// the logits agree up to rounding.
func TestPairs(t *testing.T) {
	for _, p := range pairs(t) {
		t.Run(p.name, func(t *testing.T) {
			c, want := mustModel(t, p.checkpoint, Options{})
			o, got := mustModel(t, p.onnx, Options{})
			if !reflect.DeepEqual(c.Architecture, o.Architecture) {
				t.Fatalf("the export is a %+v, the checkpoint a %+v", o.Architecture, c.Architecture)
			}
			folded := p.name == "pytorch-fm-deepfm-state.dynamo"
			for name, w := range flat(&want.Weights) {
				if folded && name == "the hidden layers" {
					continue
				}
				if g := flat(&got.Weights)[name]; !slices.Equal(g, w) {
					t.Errorf("%s of the export is %v, that of the checkpoint %v", name, g, w)
				}
			}
			f := familytest.Case{Rows: p.rows}
			familytest.Near(t, "the fast path", f.Logits(got), f.Logits(want), 1e-6)
			_, generic := mustModel(t, p.onnx, Options{Generic: true})
			if generic.Kind != model.Graph {
				t.Fatalf("with Generic it is a %s", generic.Kind)
			}
			familytest.Near(t, "the generic path", f.Logits(generic), f.Logits(want), 1e-5)
			if digest := o.Digest() == c.Digest(); digest != (strings.HasPrefix(p.name, "own-") && !strings.Contains(p.name, "norm") && p.name != "own-dcnv2-parallel") {
				t.Errorf("the files of the two have the same digest: %v", digest)
			}
		})
	}
}

// flat returns the bits of all weights of a model. Weights that it does not have are zeros.
func flat(w *model.Weights) map[string][]uint32 {
	all := map[string][]uint32{}
	add := func(name string, values ...float32) {
		bits := []uint32{}
		for _, v := range values {
			bits = append(bits, math.Float32bits(v))
		}
		if slices.ContainsFunc(bits, func(b uint32) bool { return b != 0 }) {
			all[name] = append(all[name], bits...)
		}
	}
	add("the embedding", w.Embedding...)
	add("the first order", w.FirstOrder...)
	add("the bias", w.Bias)
	add("the linear weights", w.Linear...)
	for i, layers := range [][]model.Linear{w.Hidden, w.Cross, {w.Output}} {
		for _, l := range layers {
			add([]string{"the hidden layers", "the cross layers", "the output layer"}[i], append(slices.Clone(l.Weight), l.Bias...)...)
		}
	}
	return all
}

// A recognized model is written and read like any other, with everything that it needs.
func TestRecognizedWritten(t *testing.T) {
	for _, p := range pairs(t) {
		c, want := mustModel(t, p.onnx, Options{})
		path := filepath.Join(t.TempDir(), "model.safetensors")
		if _, err := WriteDense(path, c); err != nil {
			t.Fatal(err)
		}
		again, got := mustModel(t, path, Options{})
		if again.Recognized || !c.Recognized || again.Digest() != c.Digest() {
			t.Errorf("%s: the digest changes from %s to %s", p.name, c.Digest(), again.Digest())
		}
		if !maps.EqualFunc(flat(&got.Weights), flat(&want.Weights), slices.Equal) {
			t.Errorf("%s: the weights change when the model is written", p.name)
		}
	}
}

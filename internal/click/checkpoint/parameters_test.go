package checkpoint

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
)

// The parameters of a checkpoint, written back, give its bytes. A checkpoint made from them
// has the tensors of the reference models, with the same values and shapes, and evaluates the
// same.
func TestParameters(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "golden", "*.pth"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		c, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Parameters()
		if err != nil {
			t.Fatal(err)
		}
		same, err := c.WithParameters(p)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(canonical(same), canonical(c)) {
			t.Errorf("%s: the parameters written back give other bytes", file)
		}
		made := New(c.Architecture, p)
		prefix := strings.TrimSuffix(c.EmbeddingKey, made.EmbeddingKey)
		for _, key := range c.Keys {
			name := strings.TrimPrefix(key, prefix)
			want, got := c.Tensors[key], made.Tensors[name]
			if name == "linear_layer.weight" || name == "linear_layer.bias" { // never used
				want.Data, got.Data = nil, nil
			}
			if want.DType != got.DType || !slices.Equal(want.Shape, got.Shape) || !bytes.Equal(want.Data, got.Data) {
				t.Errorf("%s: tensor %s is %s %v, expected %s %v", file, name, got.DType, got.Shape, want.DType, want.Shape)
			}
		}
		if len(made.Tensors) != len(c.Tensors) {
			t.Errorf("%s: a new checkpoint has the keys %v, expected %v", file, slices.Sorted(maps.Keys(made.Tensors)), c.Keys)
		}
		again, err := Parse("made", canonical(made))
		if err != nil {
			t.Fatal(err)
		}
		m, err := again.Model()
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.Model()
		if err != nil {
			t.Fatal(err)
		}
		rows := &model.Rows{Width: c.Architecture.Fields(), Label: []float32{0}, Number: []int64{0}, Features: c.Architecture.Offsets()}
		x, y := make([]float64, 1), make([]float64, 1)
		m.NewScorer().Logits(x, rows)
		want.NewScorer().Logits(y, rows)
		if x[0] != y[0] {
			t.Errorf("%s: a new checkpoint has the logit %v, expected %v", file, x[0], y[0])
		}
	}
}

// The metadata of a training survives writing and reading, in both forms.
func TestTrainingMetadata(t *testing.T) {
	c := fmOf(t, 6, 2)
	c.Training = `{"epoch":3}`
	path := filepath.Join(t.TempDir(), "model")
	if _, err := WriteDense(path, c); err != nil {
		t.Fatal(err)
	}
	dense, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.Digest() != fmOf(t, 6, 2).Digest() {
		t.Error("the digest of a model depends on its training")
	}
	if _, err := WriteCompact(path, c, every(12, 3), c.Architecture.Zero(), "float32"); err != nil {
		t.Fatal(err)
	}
	small, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if dense.Training != c.Training || small.Training != c.Training {
		t.Errorf("read the metadata %q and %q, expected %q", dense.Training, small.Training, c.Training)
	}
}

// Vectors are read as they were written. A damaged file, and one of other vectors, is an input
// error.
func TestVectors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := WriteVectors(path, "text", []Vector{{"a", []float32{1, 2}}, {"b", []float32{3}}}); err != nil {
		t.Fatal(err)
	}
	read := func(into ...Vector) (text string, err error) {
		err = ReadVectors(path, func(s string) ([]Vector, error) {
			text = s
			return into, nil
		})
		return text, err
	}
	a, b := make([]float32, 2), make([]float32, 1)
	if text, err := read(Vector{"b", b}, Vector{"a", a}); err != nil || text != "text" || a[0] != 1 || a[1] != 2 || b[0] != 3 {
		t.Errorf("read %q, %v and %v (%v)", text, a, b, err)
	}
	for _, v := range []Vector{{"a", b}, {"c", b}} {
		_, err := read(v)
		wantInput(t, err, "state", v.Name)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	write(t, path, data)
	_, err = read(Vector{"a", a})
	wantInput(t, err, "state", "damaged")
	if err := ReadVectors(path+"x", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file gives the error %v", err)
	}
	write(t, path, canonical(fmOf(t, 6, 2)))
	_, err = read()
	wantInput(t, err, "state", "metadata")
}

// Any bytes give vectors or an input error.
func FuzzVectors(f *testing.F) {
	path := filepath.Join(f.TempDir(), "state")
	if err := WriteVectors(path, "text", []Vector{{"a", []float32{1, 2}}}); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		values := make([]float32, 2)
		err := parseVectors("state", data, func(string) ([]Vector, error) { return []Vector{{"a", values}}, nil })
		if err != nil && !fault.IsInput(err) {
			t.Fatalf("not an input error: %v", err)
		}
	})
}

// What training cannot change is refused with the reason.
func TestNotTrainable(t *testing.T) {
	c, err := Read(filepath.Join("..", "..", "..", "testdata", "families", "own-fm.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Parameters()
	wantInput(t, err, "own-fm.onnx", "cannot be trained")
}

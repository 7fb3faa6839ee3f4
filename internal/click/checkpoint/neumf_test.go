package checkpoint

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

var neumfGolden = filepath.Join("..", "..", "..", "testdata", "golden", "neumf.pth")

// towerEntries returns the tensors of the golden NeuMF, of users and of items, in the order of
// a file. It has no offsets.
func towerEntries(t testing.TB) []tensor.Entry {
	t.Helper()
	c, err := Read(neumfGolden)
	if err != nil {
		t.Fatal(err)
	}
	return tensor.NewFile(c.split(), nil).Entries
}

// A NeuMF has four tables, whose columns become those of one table. A file that is written has
// the four tables again, with their own bytes, also if the keys have a prefix.
func TestTowers(t *testing.T) {
	entries := towerEntries(t)
	find := func(key string) []float32 {
		i := slices.IndexFunc(entries, func(e tensor.Entry) bool { return e.Key == key })
		if i < 0 {
			t.Fatalf("no tensor %s", key)
		}
		values, err := entries[i].Float32s()
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	for _, prefix := range []string{"", "module."} {
		var prefixed []tensor.Entry
		for _, e := range entries {
			prefixed = append(prefixed, tensor.Entry{Key: prefix + e.Key, Tensor: e.Tensor})
		}
		file := fileBytes(prefixed, nil)
		c, err := Parse("m", file)
		if err != nil {
			t.Fatal(err)
		}
		a := c.Architecture
		if a.Kind != model.NeuMF || !slices.Equal(a.FieldDims, []int{4, 5}) || a.Dim != 4 || !slices.Equal(a.Hidden, []int{6, 4}) {
			t.Fatalf("architecture %+v", a)
		}
		table := must(c.Embedding())(t)
		for column := range 4 {
			tower := []string{"_mlp", "_gmf"}[column/2]
			for f := range 9 {
				row, key := f, tower+".user_emb_table._emb_module.weight"
				if f >= 4 {
					row, key = f-4, tower+".item_emb_table._emb_module.weight"
				}
				if got, want := table[4*f+column], find(key)[2*row+column%2]; got != want {
					t.Errorf("entry (%d, %d) is %v, expected %v", f, column, got, want)
				}
			}
		}
		written := tensor.NewFile(c.split(), nil).Entries
		if len(written) != len(prefixed) || c.TensorCount() != len(prefixed) {
			t.Fatalf("%d tensors are written, TensorCount is %d, expected %d", len(written), c.TensorCount(), len(prefixed))
		}
		for i, e := range prefixed {
			if got := written[i]; got.Key != e.Key || got.DType != e.DType || !slices.Equal(got.Shape, e.Shape) || !bytes.Equal(got.Data, e.Data) {
				t.Errorf("tensor %s %v is written as %s %v, or with other bytes", e.Key, e.Shape, got.Key, got.Shape)
			}
		}
		again := must(Parse("again", canonical(c)))(t)
		if again.Digest() != c.Digest() || again.EmbeddingKey != c.EmbeddingKey {
			t.Error("the written file reads as another checkpoint")
		}
		dropped := every(36, 3)
		small := must(c.compact(dropped, c.Architecture.Zero(), compact.Float32))(t)
		if err := small.Seal(metaDigest); err != nil {
			t.Fatal(err)
		}
		read := must(Parse("small", fileBytes(small.Entries, small.Metadata)))(t)
		for i, v := range must(read.Embedding())(t) {
			if want := map[bool]float32{false: table[i]}[dropped[i]]; v != want {
				t.Errorf("entry %d of the compact file is %v, expected %v", i, v, want)
			}
		}
		if read.EmbeddingKey != prefix+family.TowerTable || len(read.split()) != len(entries) {
			t.Errorf("the compact file has the table %s and %d tensors", read.EmbeddingKey, len(read.split()))
		}
	}
}

// A NeuMF is refused if one of its tensors is missing, has another shape or type, or if it has
// one more tensor. The error names the tensor.
func TestRefusedTowers(t *testing.T) {
	whole := towerEntries(t)
	for i, e := range whole {
		_, err := Parse("m", fileBytes(slices.Delete(slices.Clone(whole), i, i+1), nil))
		wantInput(t, err, "m: ", "tensor")
		changed := slices.Clone(whole)
		shape := append([]int{1, 1}, e.Shape...)
		changed[i] = tensor.Entry{Key: e.Key, Tensor: Tensor{DType: e.DType, Shape: shape, Data: e.Data}}
		_, err = Parse("m", fileBytes(changed, nil))
		wantInput(t, err, "tensor "+e.Key+" has shape "+tensor.ShapeText(shape)+", expected [")
	}
	change := func(key string, t Tensor) []byte {
		changed := slices.Clone(whole)
		i := slices.IndexFunc(changed, func(e tensor.Entry) bool { return e.Key == key })
		changed[i].Tensor = t
		return fileBytes(changed, nil)
	}
	user, item := "_gmf.user_emb_table._emb_module.weight", "_gmf.item_emb_table._emb_module.weight"
	for _, c := range []struct {
		file []byte
		want string
	}{
		{change(user, tensor.FromFloat32s([]int{3, 2}, make([]float32, 6))), "tensor " + user + " has shape [3, 2], expected [4, 2]"},
		{change(item, tensor.FromFloat32s([]int{5, 1}, make([]float32, 5))), "tensor " + item + " has shape [5, 1], expected [5, 2]"},
		{change(item, Tensor{DType: F16, Shape: []int{5, 2}, Data: make([]byte, 20)}), "tensor " + item + " has the type F16, and tensor _mlp.user_emb_table._emb_module.weight has F32"},
		{change("_mlp.mlp.0.weight", tensor.FromFloat32s([]int{6, 8}, make([]float32, 48))), "tensor _mlp.mlp.0.weight has shape [6, 8], expected [6, 4]"},
		{fileBytes(append(slices.Clone(whole), tensor.Entry{Key: "_gmf.attention.weight", Tensor: tensor.FromFloat32s([]int{1}, []float32{1})}), nil), "tensor _gmf.attention.weight of shape [1] belongs to no known layer"},
		{fileBytes(append(slices.Clone(whole), tensor.Entry{Key: family.TowerTable, Tensor: tensor.FromFloat32s([]int{9, 4}, make([]float32, 36))}), nil), "has no field in its name"},
		{fileBytes(slices.DeleteFunc(slices.Clone(whole), func(e tensor.Entry) bool { return strings.HasPrefix(e.Key, "_mlp.mlp") }), nil), "hidden layers"},
		{fileBytes(whole, map[string]string{metaArchitecture: `{"kind":"deepfm"}`}), `says kind "deepfm", the tensors have neumf`},
		{fileBytes(whole, map[string]string{metaArchitecture: `{"field_dims":[3,6]}`}), "says field_dims [3, 6], the file [4, 5]"},
	} {
		_, err := Parse("m", c.file)
		wantInput(t, err, "m: ", c.want)
	}
	c := must(Read(neumfGolden))(t)
	small := must(c.compact(every(36, 3), c.Architecture.Zero(), compact.Float32))(t)
	for _, a := range []string{`{"kind":"neumf","field_dims":[2,2,5],"dim":4}`, `{"kind":"neumf","field_dims":[12],"dim":3}`} {
		small.Metadata[metaArchitecture] = a
		_, err := Parse("m", unsealed(small.Entries, small.Metadata))
		wantInput(t, err, "m: ")
	}
}

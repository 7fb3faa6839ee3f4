package checkpoint

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family/familytest"
	"shaver/internal/click/model"
)

// sliceable returns the golden model of every kind, and those of every framework that have no graph.
func sliceable(t *testing.T) map[string]*Checkpoint {
	t.Helper()
	models := map[string]*Checkpoint{}
	paths, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "golden", "*.pth"))
	if err != nil || len(paths) < 7 {
		t.Fatalf("%d goldens: %v", len(paths), err)
	}
	for _, path := range paths {
		models[filepath.Base(path)] = must(Read(path))(t)
	}
	for _, c := range familytest.Cases(t, familyFolder) {
		if c.Kind == "" || len(c.Want) == 0 || c.Key() != "" {
			continue
		}
		ck, err := Read(c.CopyTo(t, t.TempDir(), c.Said()))
		if err == nil {
			models[c.Name] = ck
		}
	}
	if len(models) < 25 {
		t.Fatalf("only %d models", len(models))
	}
	return models
}

// replaced returns c with 0 in place of the elements that s drops, and of the first-order weights.
func replaced(t *testing.T, c *Checkpoint, s *Slice) *model.Model {
	t.Helper()
	m := must(c.Model())(t)
	w := m.Weights
	w.Embedding, w.FirstOrder = slices.Clone(w.Embedding), slices.Clone(w.FirstOrder)
	for j, first := range m.Offsets() {
		gone := !slices.Contains(s.Fields, j)
		for row := int(first); row < int(first)+m.FieldDims[j]; row++ {
			for column := range m.Dim {
				if gone || !slices.Contains(s.Columns, column) {
					w.Embedding[row*m.Dim+column] = 0
				}
			}
			if gone && w.FirstOrder != nil {
				w.FirstOrder[row] = 0
			}
		}
	}
	return must(model.New(m.Architecture, w))(t)
}

// checkSliced checks that the sliced checkpoint has the logits of the whole model with zeros,
// also after it was written and read again.
func checkSliced(t *testing.T, c, sliced *Checkpoint, s *Slice) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sliced.safetensors")
	must(WriteDense(path, sliced))(t)
	again, small, err := ReadModel(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != sliced.Digest() {
		t.Error("the written file reads as another checkpoint")
	}
	whole := replaced(t, c, s)
	rows, cut := &model.Rows{Width: whole.Fields()}, &model.Rows{Width: small.Fields()}
	offsets, after := whole.Offsets(), small.Offsets()
	for i := range 40 {
		rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, 0)
		cut.Number, cut.Label = append(cut.Number, int64(i)), append(cut.Label, 0)
		for j, size := range whole.FieldDims {
			id := int32(i * 7919 % (size + 3*j + 1) % size)
			rows.Features = append(rows.Features, offsets[j]+id)
			if k := slices.Index(s.Fields, j); k >= 0 {
				cut.Features = append(cut.Features, after[k]+id)
			}
		}
	}
	got, want := make([]float64, 40), make([]float64, 40)
	whole.NewScorer().Logits(want, rows)
	small.NewScorer().Logits(got, cut)
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= 2e-6*(1+math.Abs(want[i]))) {
			t.Fatalf("row %d has the logit %.9f, expected %.9f", i, got[i], want[i])
		}
	}
}

// A sliced model of every kind and of every framework has the logits of the whole model whose
// dropped elements read 0.
func TestSliced(t *testing.T) {
	for name, c := range sliceable(t) {
		t.Run(name, func(t *testing.T) {
			a := &c.Architecture
			all := Slice{Fields: numbers(a.Fields()), Columns: numbers(a.Dim)}
			fewer, narrow := all, all
			fewer.Fields = append([]int{0}, all.Fields[2:]...)
			narrow.Columns = all.Columns[1:]
			if a.Kind == model.NeuMF {
				narrow.Columns = []int{1, 2}
				if _, err := c.Sliced(fewer); !fault.IsInput(err) || !strings.Contains(err.Error(), "needs both") {
					t.Errorf("without a field: %v", err)
				}
				fewer.Fields = all.Fields
			}
			both := Slice{Fields: fewer.Fields, Columns: narrow.Columns}
			for _, s := range []Slice{all, fewer, narrow, both} {
				if len(s.Columns) == 0 {
					continue
				}
				sliced, err := c.Sliced(s)
				if err != nil {
					t.Fatal(err)
				}
				if got := sliced.Architecture; got.Fields() != len(s.Fields) || got.Dim != len(s.Columns) {
					t.Fatalf("architecture %+v", got)
				}
				checkSliced(t, c, sliced, &s)
			}
		})
	}
}

// numbers returns 0 to n-1.
func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// A sliced checkpoint keeps what the file says about the fields that stay.
func TestSlicedNames(t *testing.T) {
	c := must(Read(filepath.Join("..", "..", "..", "testdata", "golden", "deepfm.pth")))(t)
	named := *c
	for j := range c.Architecture.Fields() {
		named.Identities = append(named.Identities, model.Identity{Name: string(rune('a' + j)), Vocabulary: model.OwnIDs})
	}
	sliced := must(named.Sliced(Slice{Fields: []int{0, 2}, Columns: numbers(c.Architecture.Dim)}))(t)
	if list := sliced.Known().Fields; len(list) != 2 || list[0].Name != "a" || list[1].Name != "c" {
		t.Errorf("fields %v", list)
	}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	must(WriteDense(path, sliced))(t)
	if again := must(Read(path))(t); !slices.Equal(again.Identities, sliced.Identities) {
		t.Errorf("fields %v", again.Identities)
	}
}

// Another name of a table goes with its field, and that of a tensor that stays stays.
func TestSlicedAliases(t *testing.T) {
	c := raw(t, familyFolder+"/fuxictr-fm.model")
	c.add("context.table.weight", c.Tensors[fuxiTable+"item.weight"])
	c.add("tied.bias", c.Tensors["fm.lr_layer.bias"])
	if err := c.recognise(nil, nil, noSidecar); err != nil {
		t.Fatal(err)
	}
	item := slices.Index(c.Fields, "item")
	fields := slices.DeleteFunc(numbers(c.Architecture.Fields()), func(j int) bool { return j == item })
	sliced := must(c.Sliced(Slice{Fields: fields, Columns: []int{0, 2}}))(t)
	if want := map[string]string{"tied.bias": "fm.lr_layer.bias"}; !maps.Equal(sliced.aliases, want) {
		t.Errorf("aliases %v, expected %v", sliced.aliases, want)
	}
	if again := must(Parse("again", canonical(sliced)))(t); again.Digest() != sliced.Digest() {
		t.Error("the written file reads as another checkpoint")
	}
}

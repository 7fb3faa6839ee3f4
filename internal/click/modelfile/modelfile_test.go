package modelfile

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/click/tensor"
)

var digest = strings.Repeat("0a", 32)

// samples returns models of all kinds, and graphs with lists, ids, dense inputs and tables without players.
func samples(t testing.TB) map[string]*model.Model {
	all := map[string]*model.Model{"autoint": modeltest.AutoInt(3, 1), "din": modeltest.DIN(4, 2, 2)}
	for name, a := range modeltest.Architectures() {
		all[name] = modeltest.Random(t, a, 3)
	}
	for _, pooling := range modeltest.Poolings() {
		all["list "+pooling] = modeltest.ListModel(pooling, 4)
	}
	a := modeltest.Architectures()["deepfm"]
	all["graph"] = modeltest.Graph(a, modeltest.Weights(a, 5))
	return all
}

func content(t testing.TB, m *model.Model) []byte {
	t.Helper()
	f, err := New(m, digest)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if n, err := f.WriteTo(&out); err != nil || n != f.Size() || n != int64(out.Len()) {
		t.Fatalf("%d bytes of %d, Size is %d: %v", n, out.Len(), f.Size(), err)
	}
	return out.Bytes()
}

// A model that is read computes the same logits, bit for bit, and is written as the same bytes.
func TestFile(t *testing.T) {
	for name, m := range samples(t) {
		t.Run(name, func(t *testing.T) {
			data := content(t, m)
			got, said, err := Parse("m", data)
			if err != nil {
				t.Fatal(err)
			}
			if said != digest || !reflect.DeepEqual(got.Architecture, m.Architecture) {
				t.Errorf("digest %s and architecture %+v, expected %s and %+v", said, got.Architecture, digest, m.Architecture)
			}
			rows := modeltest.Rows(m.Architecture, 50, 6)
			a, b := make([]float64, 50), make([]float64, 50)
			m.NewScorer().Logits(a, rows)
			got.NewScorer().Logits(b, rows)
			if !reflect.DeepEqual(a, b) {
				t.Errorf("logits %v, expected %v", b, a)
			}
			if !bytes.Equal(content(t, got), data) {
				t.Error("the model that was read is written as other bytes")
			}
		})
	}
}

// Look-ups that read one table without players store it once.
func TestSharedTable(t *testing.T) {
	a := model.Architecture{Kind: model.DeepFM, FieldDims: []int{3, 3, 4}, Dim: 2, Hidden: []int{4}}
	m := modeltest.Graph(a, modeltest.Weights(a, 1))
	head := *m.Weights.Graph
	head.Constants = slices.Clone(head.Constants)
	head.Constants[1].Values = head.Constants[0].Values
	m, err := model.New(m.Architecture, model.Weights{Embedding: m.Weights.Embedding, Graph: &head})
	if err != nil {
		t.Fatal(err)
	}
	data := content(t, m)
	if n := strings.Count(string(data), `"table/`); n != 2 {
		t.Errorf("%d tables for 3 look-ups of 2 tables", n)
	}
	got, _, err := Parse("m", data)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range got.Weights.Graph.Constants {
		if want := head.Constants[i]; !slices.Equal(c.Values, want.Values) || c.Name != want.Name || c.Field != want.Field || c.Dim != want.Dim {
			t.Errorf("look-up %d is %+v, expected %+v", i, c, want)
		}
	}
}

// change returns the file of m with other tensors or another header.
func change(t testing.TB, m *model.Model, edit func(tensors map[string]tensor.Tensor, h map[string]any)) []byte {
	t.Helper()
	entries, metadata, err := tensor.Parse("m", content(t, m))
	if err != nil {
		t.Fatal(err)
	}
	tensors, h := map[string]tensor.Tensor{}, map[string]any{}
	for _, e := range entries {
		tensors[e.Key] = e.Tensor
	}
	if err := json.Unmarshal([]byte(metadata[metaModel]), &h); err != nil {
		t.Fatal(err)
	}
	edit(tensors, h)
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	if h != nil {
		metadata = maps.Clone(metadata)
		metadata[metaModel] = string(text)
	}
	var out bytes.Buffer
	_, _ = tensor.NewFile(tensors, metadata).WriteTo(&out)
	return out.Bytes()
}

// A file that does not describe a model is bad input, which names the tensor or the metadata.
func TestBadFiles(t *testing.T) {
	deep, graph := modeltest.Random(t, modeltest.Architectures()["deepfm"], 1), modeltest.ListModel("mean", 1)
	architecture := func(h map[string]any) map[string]any { return h["architecture"].(map[string]any) }
	head := func(h map[string]any) map[string]any { return h["head"].(map[string]any) }
	for want, c := range map[string]struct {
		m    *model.Model
		edit func(tensors map[string]tensor.Tensor, h map[string]any)
	}{
		"tensor extra is no weight of this deepfm": {deep, func(tensors map[string]tensor.Tensor, _ map[string]any) {
			tensors["extra"] = tensor.FromFloat32s([]int{1}, []float32{1})
		}},
		"embedding has 0 values": {deep, func(tensors map[string]tensor.Tensor, _ map[string]any) { delete(tensors, "embedding") }},
		"hidden layer 0 maps":    {deep, func(tensors map[string]tensor.Tensor, _ map[string]any) { delete(tensors, "hidden.0.weight") }},
		"tensor bias has the type I64": {deep, func(tensors map[string]tensor.Tensor, _ map[string]any) {
			tensors["bias"] = tensor.FromInt64s([]int{1}, 1)
		}},
		"version 2 and the digest": {deep, func(_ map[string]tensor.Tensor, h map[string]any) { h["version"] = 2 }},
		`unknown field "more"`:     {deep, func(_ map[string]tensor.Tensor, h map[string]any) { h["more"] = 1 }},
		"kind is":                  {deep, func(_ map[string]tensor.Tensor, h map[string]any) { architecture(h)["kind"] = "x" }},
		"has a head, but the kind is": {deep, func(_ map[string]tensor.Tensor, h map[string]any) {
			h["head"] = map[string]any{"graph": 1, "look_ups": []int{}}
		}},
		"tensors are too few for": {deep, func(_ map[string]tensor.Tensor, h map[string]any) {
			a := architecture(h)
			a["kind"], a["cross_layers"], a["experts"], a["rank"] = "dcn-mix", 1<<40, 1, 1
		}},
		"expected at most 32768": {deep, func(_ map[string]tensor.Tensor, h map[string]any) {
			a := architecture(h)
			a["kind"], a["cross_layers"], a["experts"], a["rank"] = "dcn-mix", 1, 1<<40, 1
		}},
		"the model has no head": {graph, func(tensors map[string]tensor.Tensor, h map[string]any) {
			delete(h, "head")
			maps.DeleteFunc(tensors, func(key string, _ tensor.Tensor) bool { return strings.HasPrefix(key, headPrefix) })
		}},
		"names input 99 of the head":  {graph, func(_ map[string]tensor.Tensor, h map[string]any) { head(h)["look_ups"] = []int{99} }},
		"description of the model's ": {graph, func(_ map[string]tensor.Tensor, h map[string]any) { head(h)["graph"] = 1 }},
		"is missing": {graph, func(tensors map[string]tensor.Tensor, _ map[string]any) {
			maps.DeleteFunc(tensors, func(key string, _ tensor.Tensor) bool { return strings.HasPrefix(key, headPrefix) })
		}},
	} {
		_, _, err := Parse("m.shaver", change(t, c.m, c.edit))
		if !fault.IsInput(err) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "m.shaver") {
			t.Errorf("%v, expected bad input with %q", err, want)
		}
	}
	var out bytes.Buffer
	_, _ = tensor.NewFile(nil, nil).WriteTo(&out)
	for _, data := range [][]byte{nil, []byte("text of a file"), out.Bytes(), content(t, deep)[:100]} {
		if _, _, err := Parse("m.shaver", data); !fault.IsInput(err) || !strings.HasPrefix(err.Error(), "m.shaver") {
			t.Errorf("%q: %v, expected bad input", data, err)
		}
	}
}

// Parse returns an error or a model that computes.
func FuzzParse(f *testing.F) {
	for _, m := range samples(f) {
		if data := content(f, m); len(data) < 1<<16 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, said, err := Parse("m", data)
		if err != nil {
			return
		}
		again, err := New(m, said)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		_, _ = again.WriteTo(&out)
		if _, _, err := Parse("again", out.Bytes()); err != nil {
			t.Fatal(err)
		}
	})
}

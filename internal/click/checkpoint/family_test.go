package checkpoint

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/checkpoint/family/familytest"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

const familyFolder = "../../../testdata/families"

// must returns a function that returns v, or ends the test if err is not nil.
func must[V any](v V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Every state dict with hidden layers is assumed to have ReLU, whoever named its tensors, because none says its activation.
func TestAssumedActivation(t *testing.T) {
	families := map[string]bool{}
	for _, test := range familytest.Cases(t, familyFolder) {
		c, err := Read(test.CopyTo(t, t.TempDir(), test.Said()))
		if err != nil || len(c.Architecture.Hidden) == 0 || c.module {
			continue
		}
		families[c.Family] = true
		if !slices.Contains(c.Assumed(), "activation ReLU") {
			t.Errorf("%s, %s: assumed %q", test.Name, c.Family, c.Assumed())
		}
	}
	if len(families) < 5 {
		t.Errorf("only %v were read", families)
	}
}

const fuxiTable = "embedding_layer.embedding_layer.embedding_layers."

// The order of the fields comes from field_names, or from feature_map.json, or from the
// state dict. The logits are those of rows in this order.
func TestFieldOrder(t *testing.T) {
	cases := familytest.Cases(t, familyFolder)
	c := cases[slices.IndexFunc(cases, func(c familytest.Case) bool { return c.Name == "fuxictr-dcnv2-parallel" })]
	own := must(Read(c.CopyTo(t, t.TempDir(), c.Said())))(t)
	names := slices.Clone(own.Fields)
	slices.Sort(names)

	// A safetensors file sorts its tensors. Without the order of the fields it is refused.
	plain := filepath.Join(t.TempDir(), "m.safetensors")
	if err := os.WriteFile(plain, fileBytes(tensor.NewFile(own.split(), nil).Entries, nil), 0o666); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(filepath.Dir(plain), name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("m.json", `{"activation": "relu"}`)
	_, err := Read(plain)
	wantInput(t, err, "does not say the order of its fields, because safetensors sorts them: add what is true to m.json", `{"field_names": ["category","city","device","item","user"]}`)
	write("m.json", `{"activation": "relu", "field_names": ["user", "item", "category", "city", "device"]}`)
	stated := must(Read(plain))(t)
	if stated.Digest() != own.Digest() {
		t.Error("with field_names, the safetensors file is another checkpoint")
	}
	write("m.json", `{"activation": "relu"}`)
	features := []string{`{"hour": {"type": "numeric"}}`} // a feature that the model does not use
	for _, name := range own.Fields {
		features = append(features, `{"`+name+`": {"type": "categorical", "padding_idx": 0}}`)
	}
	write("feature_map.json", `{"dataset_id": "x", "features": [`+strings.Join(features, ", ")+`]}`)
	mapped := must(Read(plain))(t)
	if mapped.Digest() != own.Digest() {
		t.Error("with feature_map.json, the safetensors file is another checkpoint")
	}
	if slices.Contains(mapped.Assumed(), stated.Assumed()[0]) || len(stated.Assumed()) != 2 {
		t.Errorf("assumed %q with feature_map.json, %q without", mapped.Assumed(), stated.Assumed())
	}
	familytest.Near(t, "sorted file", c.Logits(must(mapped.Model())(t)), c.Want, 1e-6)

	for text, want := range map[string]string{
		`{"features": [{"user": {"type": "categorical", "vocab_size": 8}}]}`:                                              `feature "user" has 8 ids, but tensor ` + fuxiTable + `user.weight has shape [7, 4]`,
		`{"features": [{"user": {"type": "categorical"}}]}`:                                                               `feature_map.json has no feature "`,
		`{"features": [{"user": {"type": "categorical"}}, {"user": {"type": "categorical"}}]}`:                            `has the feature "user" twice`,
		`{"features": [{"user": {"type": "categorical"}}, {"item": {"type": "categorical", "share_embedding": "user"}}]}`: `feature "item" shares the table of "user", which is not supported yet`,
		`{"features": [{"user": {"type": "sequence"}}]}`:                                                                  `is of type "sequence": only categorical features are supported in a state dict; export the model to ONNX`,
		`{"features": [{}]}`: `features[0] has 0 names, expected 1`,
		`{"features": []}`:   `expected a list of features`,
		`{"features": 7}`:    `features is a value of type number`,
	} {
		write("feature_map.json", text)
		_, err := Read(plain)
		wantInput(t, err, want)
	}
}

// Tensors that two modules share are one tensor in the checkpoint, and have both keys in
// every dense file.
func TestAliases(t *testing.T) {
	c := raw(t, familyFolder+"/fuxictr-fm.model")
	table := fuxiTable + "item.weight"
	c.add("context.table.weight", c.Tensors[table])
	c.add("tied.bias", c.Tensors["fm.lr_layer.bias"])
	if err := c.recognise(nil, nil, noSidecar); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"context.table.weight": table, "tied.bias": "fm.lr_layer.bias"}; !maps.Equal(c.aliases, want) {
		t.Fatalf("aliases %v, expected %v", c.aliases, want)
	}
	entries := must(Parse("again", canonical(c)))(t)
	if entries.Digest() != c.Digest() || !maps.Equal(entries.aliases, c.aliases) {
		t.Error("the canonical file has other aliases")
	}
	values := must(c.Embedding())(t)
	clear(values)
	path := filepath.Join(t.TempDir(), "m.safetensors")
	must(WriteDense(path, c.WithEmbedding(values)))(t)
	written := raw(t, path)
	for _, key := range []string{"context.table.weight", table} {
		if got, ok := written.Tensors[key]; !ok || !bytes.Equal(got.Data, make([]byte, 11*4*4)) {
			t.Errorf("tensor %s is not the pruned table", key)
		}
	}
	small := must(c.compact(make([]bool, c.Architecture.Parameters()), c.Architecture.Zero(), compact.Float32))(t)
	if back := must(Parse("small", unsealed(small.Entries, small.Metadata)))(t); back.Digest() != c.Digest() {
		t.Error("the compact file is another checkpoint")
	}

	// The same values in other memory are another tensor.
	c = raw(t, familyFolder+"/fuxictr-fm.model")
	other := c.Tensors[table]
	other.Data = bytes.Clone(other.Data)
	c.add("context.table.weight", other)
	wantInput(t, c.recognise(nil, nil, noSidecar), "tensor context.table.weight of shape [11, 4] belongs to no known layer")

	c = raw(t, familyFolder+"/fuxictr-fm.model")
	for i := range maxAliases + 1 {
		c.add(fmt.Sprintf("tied.%d", i), c.Tensors["fm.lr_layer.bias"])
	}
	wantInput(t, c.recognise(nil, nil, noSidecar), "65 tensors are other names of tensors, expected at most 64")
}

// A WideDeep may have our own names. The JSON file says that it is not a DeepFM, also if the file has the sizes of the fields.
func TestOwnWideDeep(t *testing.T) {
	bare := slices.Clip(sampleEntries("deepfm"))
	for said, entries := range map[string][]tensor.Entry{
		`{"field_dims": [2, 3, 4], "kind": "WideDeep"}`: bare,
		`{"kind": "WideDeep"}`:                          append(bare, offsetsOf(0, 2, 5)),
		`{"hidden": 64, "kind": "WideDeep"}`:            append(bare, offsetsOf(0, 2, 5)),
	} {
		path := filepath.Join(t.TempDir(), "m.safetensors")
		if err := os.WriteFile(path, fileBytes(entries, nil), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".json", []byte(said), 0o666); err != nil {
			t.Fatal(err)
		}
		c := must(Read(path))(t)
		again := must(Parse("again", canonical(c)))(t)
		if c.Architecture.Kind != model.WideDeep || again.Architecture.Kind != model.WideDeep || must(again.Model())(t).Kind != model.WideDeep {
			t.Errorf("%s: kinds %s and %s", said, c.Architecture.Kind, again.Architecture.Kind)
		}
	}
}

// raw returns the tensors of a file, without recognising them.
func raw(t *testing.T, path string) *Checkpoint {
	t.Helper()
	s := must(ReadState(path, ""))(t)
	return &Checkpoint{Keys: s.Keys, Tensors: s.Tensors, name: "m", unordered: s.Unordered}
}

// A field without first-order weights has zeros in DeepCTR-Torch, in which the two lists of
// features may differ.
func TestFieldWithoutFirstOrder(t *testing.T) {
	const key = "linear_model.embedding_dict.city.weight"
	c := raw(t, familyFolder+"/deepctr-torch-deepfm.h5")
	delete(c.Tensors, key)
	c.keepKeys()
	kind, activation := model.DeepFM, "relu"
	said := []family.Statement{{From: "the test", Kind: &kind, Activation: &activation}}
	if err := c.recognise(said, nil, noSidecar); err != nil {
		t.Fatal(err)
	}
	m := must(c.Model())(t)
	for f, w := range m.Weights.FirstOrder {
		if zero := f >= 23 && f < 27; (w == 0) != zero {
			t.Errorf("feature %d has the first-order weight %v", f, w)
		}
	}
}

package family

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family/familytest"
	"shaver/internal/click/tensor"
)

// offsets are the offsets of the samples' fields.
var offsets = familytest.Entry{Key: "offsets", Tensor: tensor.FromInt64s([]int{1, 3}, 0, 2, 5)}

// recognised returns the state of the entries, of the file m, after Recognise. said is what our
// metadata say, as JSON, or "".
func recognised(t *testing.T, entries []familytest.Entry, said string) (*State, error) {
	t.Helper()
	s := &State{Name: "m", Sidecar: "m.json", Tensors: map[string]tensor.Tensor{}, Unordered: true}
	for _, e := range entries {
		s.Keys = append(s.Keys, e.Key)
		s.Tensors[e.Key] = e.Tensor
	}
	var all []Statement
	if said != "" {
		one := Statement{From: "metadata"}
		if err := json.Unmarshal([]byte(said), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return s, s.Recognise(all, nil, func(string) (*Statement, error) { return nil, nil })
}

// wantError fails the test unless err is an input error of one line that contains all texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil || !fault.IsInput(err) {
		t.Fatalf("error %v, want an input error with %q", err, texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r\x00") {
		t.Errorf("error %q is not one line", err)
	}
}

// A model is refused if any one of its tensors is missing or has another shape, or if it
// has one more tensor. The error names the tensor.
func TestMissingAndMisshapen(t *testing.T) {
	unused := []string{"num_batches_tracked", "linear_layer", "offsets"}
	for _, kind := range familytest.Kinds {
		whole := append(familytest.Sample(kind), offsets)
		for i, e := range whole {
			without := slices.Delete(slices.Clone(whole), i, i+1)
			_, err := recognised(t, without, `{"field_dims":[2,3,4]}`)
			ignored := slices.ContainsFunc(unused, func(name string) bool { return strings.Contains(e.Key, name) })
			if ignored && err != nil {
				t.Errorf("%s without %s: %v", kind, e.Key, err)
			} else if !ignored {
				wantError(t, err, "m: ")
				if !strings.Contains(err.Error(), "tensor") {
					t.Errorf("%s without %s: the error %v names no tensor", kind, e.Key, err)
				}
			}
			if ignored && e.Key != "offsets" {
				continue
			}
			misshapen := slices.Clone(whole)
			shape := append([]int{1, 1}, e.Shape...)
			misshapen[i] = familytest.Entry{Key: e.Key, Tensor: tensor.Tensor{DType: e.DType, Shape: shape, Data: e.Data}}
			_, err = recognised(t, misshapen, `{"field_dims":[2,3,4]}`)
			wantError(t, err, "tensor "+e.Key+" has shape "+tensor.ShapeText(shape)+", expected [")
		}
		more := append(slices.Clone(whole), familytest.Entry{Key: "attention.weight", Tensor: tensor.FromFloat32s([]int{1}, []float32{1})})
		_, err := recognised(t, more, "")
		wantError(t, err, "tensor attention.weight of shape [1] belongs to no known layer")
	}
}

func TestErrorsNameTensors(t *testing.T) {
	for _, test := range map[string]struct {
		kind, key string
		change    func(*tensor.Tensor)
		want      string
	}{
		"cross": {"dcn-mix", "cross_head.V.1", func(t *tensor.Tensor) { t.Shape = []int{4, 3, 6} }, "tensor cross_head.V.1 has shape [4, 3, 6], expected [4, 6, 3]"},
		"deep":  {"deepfm", "_deep_branch.0.weight", func(t *tensor.Tensor) { t.Shape = []int{6, 5} }, "tensor _deep_branch.0.weight has shape [6, 5], expected [6, 6]"},
		"last":  {"dcnv2-parallel", "_last_fc.weight", func(t *tensor.Tensor) { t.Shape = []int{11, 1} }, "tensor _last_fc.weight has shape [11, 1], expected [1, 5] (stacked) or [1, 11]"},
		"type":  {"fm", "offsets", func(t *tensor.Tensor) { t.DType = tensor.F64 }, "tensor offsets has elements of type F64, expected whole numbers"},
	} {
		entries := append(familytest.Sample(test.kind), offsets)
		i := slices.IndexFunc(entries, func(e familytest.Entry) bool { return e.Key == test.key })
		test.change(&entries[i].Tensor)
		_, err := recognised(t, entries, `{"field_dims":[2,3,4]}`)
		wantError(t, err, "m: ", test.want)
	}
}

func TestPrefixes(t *testing.T) {
	for _, prefix := range []string{"_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module."} {
		entries := append(familytest.Sample("dcn-mix"), offsets)
		for i := range entries {
			entries[i].Key = prefix + entries[i].Key
		}
		c, err := recognised(t, entries, "")
		if err != nil {
			t.Fatal(err)
		}
		if c.EmbeddingKey != prefix+"embedding.weight" || c.Keys[0] != c.EmbeddingKey {
			t.Errorf("table %s, first key %s", c.EmbeddingKey, c.Keys[0])
		}
	}
	entries := append(familytest.Sample("fm"), familytest.Entry{Key: "module._bias", Tensor: tensor.FromFloat32s([]int{1}, []float32{1})})
	_, err := recognised(t, entries, "")
	wantError(t, err, "tensors _bias and module._bias have the same name without their prefixes")
}

// model. and net. are removed only if all tensors have them.
func TestShortNames(t *testing.T) {
	for keys, want := range map[string]string{
		"model.a model.b":                    "a b",
		"module.model.a module.model.b":      "a b",
		"net._orig_mod.module.model.a net.b": "model.a b",
		"model.net.a model.net.b":            "a b",
		"model.a b":                          "model.a b",
		"model.module.a model._orig_mod.b":   "a b",
		"network.a network.b":                "network.a network.b",
		"_orig_mod.model.a module.net.b":     "model.a net.b",
	} {
		if got := strings.Join(shortNames(strings.Fields(keys)), " "); got != want {
			t.Errorf("%s became %s, expected %s", keys, got, want)
		}
	}
}

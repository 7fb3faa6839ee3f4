package checkpoint

import (
	"archive/zip"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/tensor"
)

// The error for a value names the tensor and the position.
func TestErrorsNameValues(t *testing.T) {
	for key, test := range map[string]struct {
		value float32
		want  string
	}{
		"embedding.weight":           {float32(math.NaN()), "tensor embedding.weight has the value NaN at position [1, 1]"},
		"_deep_branch.0.weight":      {float32(math.Inf(-1)), "tensor _deep_branch.0.weight has the value -Inf at position [0, 3]"},
		"_deep_branch.1.running_var": {-1, "tensor _deep_branch.1.running_var has the value -1 at position [3]: expected a variance"},
	} {
		entries := append(sampleEntries("deepfm"), offsetsOf(0, 2, 5))
		i := slices.IndexFunc(entries, func(e tensor.Entry) bool { return e.Key == key })
		binary.LittleEndian.PutUint32(entries[i].Data[12:], math.Float32bits(test.value))
		c, err := Parse("m", fileBytes(entries, nil))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Model()
		wantInput(t, err, test.want)
	}
	wide := Tensor{DType: F64, Shape: []int{2}, Data: binary.LittleEndian.AppendUint64(make([]byte, 8), math.Float64bits(1e300))}
	_, err := wide.Float32s()
	wantInput(t, err, "has the value 1e+300 at position [1]")
}

// An nn.Sequential without Dropout numbers its layers differently, but is the same model.
func TestMLPWithoutDropout(t *testing.T) {
	for kind, rename := range map[string]*strings.Replacer{
		"deepfm":         strings.NewReplacer("_deep_branch.4.", "_deep_branch.3."),
		"dcn-mix":        strings.NewReplacer("_dnn.4.", "_dnn.3."),
		"dcnv2-stacked":  strings.NewReplacer("_dnn.3.", "_dnn.2."),
		"dcnv2-parallel": strings.NewReplacer("_dnn.3.", "_dnn.2."),
	} {
		entries := append(sampleEntries(kind), offsetsOf(0, 2, 5))
		want, err := Parse("m", fileBytes(entries, nil))
		if err != nil {
			t.Fatal(err)
		}
		renamed := 0
		for i, e := range entries {
			if entries[i].Key = rename.Replace(e.Key); entries[i].Key != e.Key {
				renamed++
			}
		}
		c, err := Parse("m", fileBytes(entries, nil))
		if err != nil || renamed != 2 {
			t.Fatalf("%s: %d renamed, error %v", kind, renamed, err)
		}
		wantModel, err1 := want.Model()
		m, err2 := c.Model()
		if err1 != nil || err2 != nil || !reflect.DeepEqual(m.Weights, wantModel.Weights) || !reflect.DeepEqual(c.Architecture, want.Architecture) {
			t.Errorf("%s: another model; errors %v, %v", kind, err1, err2)
		}
	}
}

func TestFieldSizes(t *testing.T) {
	bare, said := slices.Clip(sampleEntries("deepfm")), func(text string) map[string]string { return map[string]string{metaArchitecture: text} }
	for name, test := range map[string]struct {
		entries  []tensor.Entry
		metadata map[string]string
		want     string // expected in the error; "" = no error
	}{
		"metadata":     {bare, said(`{"field_dims":[2,3,4],"kind":"deepfm","dim":2,"hidden":[5]}`), ""},
		"offsets":      {append(bare, offsetsOf(0, 2, 5)), nil, ""},
		"nothing":      {bare, nil, `write m.json with a line like {"field_dims": [1000, 20, 7]}, one size per field, summing to the 9 rows of tensor embedding.weight`},
		"sum":          {bare, said(`{"field_dims":[2,3,3]}`), "field_dims sum to 8, but tensor embedding.weight has 9 rows"},
		"beyond":       {bare, said(`{"field_dims":[2,3,40]}`), "field_dims[2] is 40"},
		"zero":         {bare, said(`{"field_dims":[2,0,7]}`), "field_dims[1] is 0"},
		"fields":       {bare, said(`{"field_dims":[2,7]}`), "tensor _deep_branch.0.weight has shape [5, 6], expected [5, 4]"},
		"disagree":     {append(bare, offsetsOf(0, 3, 5)), said(`{"field_dims":[2,3,4]}`), "tensor offsets is [0, 3, 5], but field_dims [2, 3, 4] give other offsets"},
		"bad offsets":  {append(bare, offsetsOf(0, 5, 2)), nil, "field_dims[1] is -3"},
		"kind":         {bare, said(`{"field_dims":[2,3,4],"kind":"fm"}`), `says kind "fm", the tensors have deepfm`},
		"dim":          {bare, said(`{"field_dims":[2,3,4],"dim":3}`), "says embedding columns 3, the tensors have 2"},
		"hidden":       {bare, said(`{"field_dims":[2,3,4],"hidden":[5,5]}`), "says hidden sizes [5, 5], the tensors have [5]"},
		"rank":         {bare, said(`{"field_dims":[2,3,4],"rank":64}`), "says rank 64, the tensors have 0"},
		"structure":    {bare, said(`{"field_dims":[2,3,4],"structure":"stacked"}`), `says structure "stacked"`},
		"not a number": {bare, said(`{"field_dims":["2"]}`), "metadata shaver.architecture"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Parse("m", fileBytes(test.entries, test.metadata))
			if test.want != "" {
				wantInput(t, err, "m", test.want)
			} else if err != nil || !slices.Equal(c.Architecture.FieldDims, sampleDims) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestSidecar(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"stem":       {map[string]string{"m.json": `{"field_dims":[2,3,4]}`}, ""},
		"whole":      {map[string]string{"m.pt.json": `{"field_dims":[2,3,4]}`, "m.json": `{"field_dims":[9]}`}, ""},
		"spelling":   {map[string]string{"m.json": `{"kind":"DCN_Mix","field_dims":[2,3,4],"rows":40}`}, ""},
		"no file":    {nil, "write m.json"},
		"other JSON": {map[string]string{"m.json": `{"auc":0.5}`}, "write m.json"},
		"typing":     {map[string]string{"m.json": `{"field_dims":[2,3,4}`}, "m.json: expected a JSON object with the field_dims of"},
		"wrong":      {map[string]string{"m.json": `{"field_dims":[2,3,4],"experts":5}`}, "m.json says experts 5, the tensors have 4"},
		"own words":  {map[string]string{"m.json": `{"field_dims":[2,3,4],"experts":5,"from":"x","file":7,"batchNorm":true}`}, "m.json says experts 5, the tensors have 4"},
		"activation": {map[string]string{"m.json": `{"field_dims":[2,3,4],"activation":"tanh"}`}, `m.json says that the activation is "tanh", but only relu is supported in a state dict: export the model to ONNX`},
		"large":      {map[string]string{"m.json": strings.Repeat(" ", 2<<20)}, "m.json is larger than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "m.pt")
			write(t, path, fileBytes(sampleEntries("dcn-mix"), nil))
			for file, text := range test.files {
				write(t, filepath.Join(folder, file), []byte(text))
			}
			c, err := Read(path)
			if test.want != "" {
				wantInput(t, err, test.want)
			} else if err != nil || !slices.Equal(c.Architecture.FieldDims, sampleDims) {
				t.Errorf("error %v", err)
			}
		})
	}
	// A file that the checkpoint does not need may be about something else.
	for _, text := range []string{`{"hidden":64,"dim":9,"lr":0.1}`, `[1,2]`, `{"epochs":3,"kind":"train"}`} {
		path := filepath.Join(t.TempDir(), "m.pt")
		write(t, path, fileBytes(append(sampleEntries("dcn-mix"), offsetsOf(0, 2, 5)), nil))
		write(t, path+".json", []byte(text))
		if c, err := Read(path); err != nil || !slices.Equal(c.Architecture.FieldDims, sampleDims) {
			t.Errorf("%s: error %v", text, err)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "gone.pth")); !os.IsNotExist(err) {
		t.Errorf("error %v for a missing file", err)
	}
	_, err := Read(t.TempDir())
	wantInput(t, err, "is a folder without .metadata")
}

// The statements of model_config are checked against the tensors. Unknown keys are
// ignored.
func TestModelConfig(t *testing.T) {
	tuple := func(values ...any) []any { return append(append([]any{opMark}, values...), opTuple) }
	for name, test := range map[string]struct {
		kind   string
		config []any // key, value alternating
		want   string
	}{
		"agrees": {"dcn-mix", append([]any{"num_factor", 2, "rank", 3, "num_experts", 4, "num_layers", 2, "activation", "Identity",
			"use_batchnorm", []byte{opTrue}, "secret", opNone, "hidden_sizes"}, tuple(5)...), ""},
		"columns":    {"dcn-mix", []any{"num_factor", 3}, "model_config says embedding columns 3, the tensors have 2"},
		"rank":       {"dcn-mix", []any{"rank", 64}, "model_config says rank 64, the tensors have 3"},
		"experts":    {"dcn-mix", []any{"num_experts", 5}, "model_config says experts 5"},
		"layers":     {"dcn-mix", []any{"num_layers", 3}, "model_config says cross layers 3, the tensors have 2"},
		"hidden":     {"dcn-mix", append([]any{"hidden_sizes"}, tuple(5, 5)...), "model_config says hidden sizes [5, 5], the tensors have [5]"},
		"gate":       {"dcn-mix", []any{"activation", "softmax"}, `model_config has the str "softmax" for activation`},
		"gate class": {"dcn-mix", []any{"activation", named("torch.nn ReLU")}, `model_config has "torch.nn.ReLU" for activation`},
		"not an int": {"dcn-mix", []any{"rank", "64"}, `model_config has the str "64" for rank, expected an int`},
		"no norm":    {"dcn-mix", []any{"use_batchnorm", []byte{opFalse}}, "model_config says use_batchnorm false"},
		"norm":       {"dcnv2-stacked", []any{"use_batchnorm", []byte{opTrue}}, "model_config says use_batchnorm true"},
		"stacked":    {"dcnv2-stacked", []any{"structure", "Stacked"}, ""},
		"parallel":   {"dcnv2-stacked", []any{"structure", "Parallel"}, `model_config says structure "Parallel", the tensors have stacked`},
		"structure":  {"dcnv2-stacked", []any{"structure", 1}, "model_config has the int 1 for structure"},
		"activation": {"dcnv2-stacked", []any{"activation", "GELU"}, `model_config says that the activation is "gelu", but only relu is supported in a state dict`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Parse("m.pth", wrapped(t, sampleEntries(test.kind), test.config, tuple(2, 3, 4)))
			if test.want != "" {
				wantInput(t, err, "m.pth: ", test.want)
			} else if err != nil || !slices.Equal(c.Architecture.FieldDims, sampleDims) {
				t.Errorf("error %v", err)
			}
		})
	}
	for text, dims := range map[string][]any{
		"field_dims has the str \"2\" at position 0": tuple("2"),
		"field_dims is a dict":                       {opEmptyDict},
		"field_dims sum to 5":                        tuple(2, 3),
		"field_dims[0] is -1":                        tuple(-1),
	} {
		_, err := Parse("m.pth", wrapped(t, sampleEntries("fm"), nil, dims))
		wantInput(t, err, "m.pth: ", text)
	}
}

// Lightning stores field_dims with the other parameters of the model. If the file gives
// the sizes twice, they must agree.
func TestHyperParameters(t *testing.T) {
	sizes := func(values ...any) []any {
		return append(append([]any{opEmptyDict, "lr", 1, opSetItem, "field_dims", opMark}, values...), opTuple, opSetItem)
	}
	for want, pairs := range map[string][]any{
		"":                           append([]any{"hyper_parameters"}, sizes(2, 3, 4)...),
		"m.pth: field_dims[0] is -1": append([]any{"hyper_parameters"}, sizes(-1)...),
		"hyper_parameters.field_dims says field_dims [3, 2, 4], the file [2, 3, 4]": append([]any{"field_dims", opMark, 2, 3, 4, opTuple, "hyper_parameters"}, sizes(3, 2, 4)...),
		"hyper_parameters.field_dims is the str":                                    {"hyper_parameters", opEmptyDict, "field_dims", "2,3,4", opSetItem},
		`write m.json with a line like {"field_dims"`:                               {"hyper_parameters", "none"},
	} {
		c, err := Parse("m.pth", pthOf(t, sampleEntries("fm"), pairs))
		if want != "" {
			wantInput(t, err, want)
		} else if err != nil || !slices.Equal(c.Architecture.FieldDims, sampleDims) {
			t.Errorf("error %v", err)
		}
	}
}

// A setting of the activation of the hidden layers is refused like that of the JSON file, unless it is ReLU, or there are no such layers.
func TestActivationSettings(t *testing.T) {
	for name, test := range map[string]struct {
		kind, key string
		value     []any
		want      string // name of the activation in the error, or "" if the file is read
	}{
		"ReLU":        {"deepfm", "activation", []any{"ReLU"}, ""},
		"text":        {"deepfm", "activation", []any{"gelu"}, "gelu"},
		"short key":   {"dcnv2-parallel", "act", []any{"TANH"}, "tanh"},
		"function":    {"deepfm", "hidden_activation", []any{named("torch.nn.functional relu")}, ""},
		"class":       {"deepfm", "dnn_activation", []any{named("torch.nn.modules.activation ReLU")}, ""},
		"other":       {"deepfm", "dnn_activation", []any{named("torch._C._nn gelu")}, "gelu"},
		"list":        {"dcn-mix", "hidden_activations", []any{opEmptyList, opMark, "relu", "SiLU", []byte{opAppends}}, "silu"},
		"list of one": {"deepfm", "hidden_activations", []any{opEmptyList, opMark, "nn.ReLU()", []byte{opAppends}}, ""},
		"None":        {"deepfm", "activation", []any{opNone}, ""},
		"no layers":   {"fm", "activation", []any{"gelu"}, ""},
	} {
		for _, place := range []string{"", "hyper_parameters."} {
			pairs := append([]any{test.key}, test.value...)
			if place != "" {
				pairs = append(append([]any{"hyper_parameters", opEmptyDict}, pairs...), opSetItem)
			}
			_, err := Parse("m.pth", pthOf(t, append(sampleEntries(test.kind), offsetsOf(0, 2, 5)), pairs))
			switch {
			case test.want != "":
				wantInput(t, err, `m.pth: `+place+test.key+` says that the activation is "`+test.want+`", but only relu is supported in a state dict: export the model to ONNX`)
			case err != nil:
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// wrapped returns a .pth with state_dict, model_config and field_dims.
func wrapped(t *testing.T, entries []tensor.Entry, config, dims []any) []byte {
	pairs := append([]any{"model_config", opEmptyDict, opMark}, config...)
	return pthOf(t, entries, append(append(pairs, opSetItems, "field_dims"), dims...))
}

// pthOf returns a .pth of a dict that has a state_dict and other keys, each followed by its
// value.
func pthOf(t *testing.T, entries []tensor.Entry, others []any) []byte {
	pairs := []string{"m/data.pkl", ""}
	parts := append([]any{opEmptyDict, opMark}, others...)
	parts = append(parts, "state_dict", opEmptyDict, opMark)
	for _, e := range entries {
		stride, step := make([]int, len(e.Shape)), 1
		for i := len(stride) - 1; i >= 0; i-- {
			stride[i] = step
			step *= e.Shape[i]
		}
		class := map[DType]string{F32: "FloatStorage", I64: "LongStorage"}[e.DType]
		parts = append(append(parts, e.Key), tensorParts(class, e.Key, e.Elements(), 0, e.Shape, stride)...)
		pairs = append(pairs, "m/data/"+e.Key, string(e.Data))
	}
	pairs[1] = pickled(append(parts, opSetItems, opSetItems)...)
	return zipBytes(t, zip.Deflate, pairs...)
}

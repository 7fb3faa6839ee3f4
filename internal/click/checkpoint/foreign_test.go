package checkpoint

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/tensor"
)

// A state dict is found in the files of frameworks and training scripts. The objects of
// unknown classes in them do no harm.
func TestForeign(t *testing.T) {
	bare, err := Read(filepath.Join("testdata", "bare.pth"))
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]string{
		"module": "", "parallel": "", "wrapped-module": "", "recbole": "", "lightning": "", "nested": "", "unusual": "",
		"average": "model", "two": "teacher",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ReadPart(filepath.Join("testdata", "foreign-"+name+".pth"), Options{StateDict: key})
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Keys) != len(bare.Keys) {
				t.Fatalf("tensors %v, expected those of %v", c.Keys, bare.Keys)
			}
			for key, tensor := range c.Tensors {
				other := strings.TrimPrefix(key, "module.")
				if other == "embedding.weight" {
					other = bare.EmbeddingKey
				}
				want, ok := bare.Tensors[other]
				if !ok || !slices.Equal(tensor.Shape, want.Shape) {
					t.Fatalf("tensor %s of shape %v is not in bare.pth", key, tensor.Shape)
				}
				values, _ := tensor.Float32s()
				wanted, _ := want.Float32s()
				if !slices.Equal(values, wanted) {
					t.Errorf("tensor %s has the values %v, expected %v", key, values, wanted)
				}
			}
		})
	}
}

// A whole module with an attribute that changes what its layers compute is refused. The bytes are those of a real module.
func TestAttributesOfModules(t *testing.T) {
	data := must(os.ReadFile(filepath.Join("testdata", "foreign-module.pth")))(t)
	archive := must(zip.NewReader(bytes.NewReader(data), int64(len(data))))(t)
	for name, test := range map[string]struct{ key, from, to, want string }{
		"as it is": {"", "", "", ""},
		"eps":      {"eps", "G\x3e\xe4\xf8\xb5\x88\xe3\x68\xf1", "G\x3f\x50\x62\x4d\xd2\xf1\xa9\xfc", `module "_deep_branch.1", of class torch.nn.modules.batchnorm.BatchNorm1d, has eps the float 0.001, expected the float 1e-05`},
		"track":    {"track_running_stats", "\x88", "\x89", `"_deep_branch.1", of class torch.nn.modules.batchnorm.BatchNorm1d, has track_running_stats a bool`},
		"max_norm": {"max_norm", "N", "K\x01", `module "fc", of class torch.nn.modules.sparse.Embedding, has max_norm the int 1, expected None`},
		"ELU":      {"activation\n", "ReLU", "ELU", "torch.nn.modules.activation.ELU, expected"},
	} {
		t.Run(name, func(t *testing.T) {
			var parts []string
			for _, f := range archive.File {
				r := must(f.Open())(t)
				text := string(must(io.ReadAll(r))(t))
				if strings.HasSuffix(f.Name, "data.pkl") {
					before, after, ok := strings.Cut(text, test.key)
					at := strings.Index(after, test.from)
					if !ok || at > 8 {
						t.Fatalf("no %s %q", test.key, test.from)
					}
					text = before + test.key + after[:at] + strings.Replace(after[at:], test.from, test.to, 1)
				}
				parts = append(parts, f.Name, text)
			}
			c, err := Parse("m.pth", zipBytes(t, zip.Store, parts...))
			if test.want != "" {
				wantInput(t, err, "m.pth: the pickled module: ", test.want)
			} else if err != nil || !slices.Equal(c.Assumed(), []string{"activation ReLU", `the forward of class "app.DeepFM", whose code is not in the file, is that of a DeepFM`}) {
				t.Errorf("assumed %v: %v", c.Assumed(), err)
			}
		})
	}
	if bare := must(Read(filepath.Join("testdata", "bare.pth")))(t); !slices.Equal(bare.Assumed(), []string{"activation ReLU"}) {
		t.Errorf("a state dict assumes %v", bare.Assumed())
	}
}

// Attributes of a class of the author's own that look like settings are refused by name, those of nn.Module, names and sizes are not, nor
// are those of a framework's class.
func TestSettingsOfModules(t *testing.T) {
	vector := func(class string) []any { return tensorParts(class, "x", 1, 0, []int{1}, []int{1}) }
	for _, test := range []struct {
		name  string
		value []any
		want  string // what describes the value if it is refused
	}{
		{"activation", []any{"gelu"}, `the str "gelu"`},
		{"act", []any{named("torch._C._nn gelu")}, `"torch._C._nn.gelu"`},
		{"act", []any{named("app curve")}, `"app.curve"`},
		{"nonlinearity", []any{named("torch.nn.functional leaky_relu")}, `"torch.nn.functional.leaky_relu"`},
		{"inner", []any{"Tanh"}, `the str "Tanh"`},
		{"temperature", []any{opFloat, []byte{0x40, 0, 0, 0, 0, 0, 0, 0}}, "the float 2"},
		{"use_fm", []any{[]byte{opFalse}}, "a bool"},
		{"scale", vector("FloatStorage"), "a tensor"},
		{"activation", []any{"ReLU"}, ""},
		{"act", []any{named("torch.nn.functional relu")}, ""},
		{"act", []any{opNone}, ""},
		{"output", []any{named("torch sigmoid")}, ""},
		{"training", []any{[]byte{opFalse}}, ""},
		{"dropout", []any{opFloat, []byte{0x3f, 0xe0, 0, 0, 0, 0, 0, 0}}, ""},
		{"embed_dim", []any{16}, ""},
		{"offsets", vector("LongStorage"), ""},
		{"title", []any{"click model"}, ""},
	} {
		for _, class := range []string{"app FM", "torchfm.model.fm FactorizationMachineModel"} {
			want := test.want
			if class != "app FM" {
				want = ""
			}
			_, err := Parse("m.pth", moduleBytes(t, class, sampleEntries("fm"), append([]any{test.name}, test.value...)))
			if want != "" {
				wantInput(t, err, `m.pth: the pickled module: module "", of class app.FM, has the attribute "`+test.name+`", `+want+`, which may change what it computes: save its state_dict() if it does not`)
			} else if err != nil {
				t.Errorf("%s of %s: %v", test.name, class, err)
			}
		}
	}
}

// moduleBytes returns a .pth of a module of a class, given as "module name", with the tensors and one more attribute.
func moduleBytes(t *testing.T, class string, entries []tensor.Entry, attribute []any) []byte {
	parts := []any{named(class), opEmptyTuple, []byte{opNewObject}, opEmptyDict}
	parts = append(append(parts, attribute...), opSetItem, "_modules", opEmptyDict, opSetItem, "_buffers", opEmptyDict, opSetItem, "_parameters", opEmptyDict)
	pairs := []string{"m/data.pkl", "", "m/data/offsets", string(offsetsOf(0, 2, 5).Data)}
	for _, e := range append(slices.Clip(entries), offsetsOf(0, 2, 5)) {
		stride := []int{1}
		if len(e.Shape) == 2 {
			stride = []int{e.Shape[1], 1}
		}
		parts = append(append(append(parts, e.Key), tensorParts(map[DType]string{F32: "FloatStorage", I64: "LongStorage"}[e.DType], e.Key, e.Elements(), 0, e.Shape, stride)...), opSetItem)
		if e.Key != "offsets" {
			pairs = append(pairs, "m/data/"+e.Key, string(e.Data))
		}
	}
	pairs[1] = pickled(append(parts, opSetItem, opBuild)...)
	return zipBytes(t, zip.Store, pairs...)
}

// A tensor of a form that is not read says what to save in its place.
func TestTensorsOfOtherForms(t *testing.T) {
	for function, want := range map[string]string{
		"_rebuild_tensor_v3": "such as float8, is not read: save {k: v.float()", "_rebuild_sparse_tensor": "it is sparse: save {k: v.to_dense()",
		"_rebuild_meta_tensor_no_storage": "on the device meta and has no values: load the weights", "_rebuild_qtensor": "it is quantised: save v.dequantize()",
		"_other": `save model.state_dict(), bare or in a dict under "state_dict"`,
	} {
		_, err := Parse("m.pth", pthBytes(t, "embedding.weight", []any{named("torch._utils " + function), opEmptyTuple, opReduce}))
		wantInput(t, err, "m.pth: embedding.weight is an object of torch._utils."+function+", expected a tensor with dense storage: ", want)
	}
}

// A folder with the files of one model says which file to give, or how to join them.
func TestFoldersOfFiles(t *testing.T) {
	folder := t.TempDir()
	for _, test := range []struct{ file, read, want string }{
		{"model.safetensors", "", "is a folder, expected a file: give " + filepath.Join(folder, "model.safetensors")},
		{"more.safetensors", "", `is a folder with the 2 files *.safetensors, expected one: if they are one checkpoint, join them, as in save_file(`},
		{"pytorch_model.bin.index.json", "pytorch_model.bin.index.json", `is the index of a checkpoint in several files, expected one: join them, as in torch.save(torch.load(A) | torch.load(B), "model.pth")`},
	} {
		if err := os.WriteFile(filepath.Join(folder, test.file), []byte(`{"weight_map": {}}`), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Read(filepath.Join(folder, test.read))
		wantInput(t, err, test.want)
	}
}

// If it is not clear which of several state dicts is the model, the error lists them and
// the flag that chooses.
func TestAmbiguousStateDict(t *testing.T) {
	for _, test := range []struct{ file, key, want string }{
		{"average", "", `holds several state dicts: "ema", "model": choose one with shaver model convert --state-dict KEY`},
		{"two", "", `holds several state dicts: "student", "teacher": choose one`},
		{"two", "pupil", `holds no state dict under "pupil", but several state dicts: "student", "teacher"`},
		{"unusual", "ema", `holds no state dict under "ema", but only "net"`},
	} {
		_, err := ReadPart(filepath.Join("testdata", "foreign-"+test.file+".pth"), Options{StateDict: test.key})
		wantInput(t, err, "foreign-"+test.file+".pth", test.want)
	}
	ema, err := ReadPart(filepath.Join("testdata", "foreign-average.pth"), Options{StateDict: "ema"})
	if err != nil {
		t.Fatal(err)
	}
	model, err := ReadPart(filepath.Join("testdata", "foreign-average.pth"), Options{StateDict: "model"})
	if err != nil || ema.Digest() == model.Digest() {
		t.Errorf("the two state dicts have the same digest, or an error: %v", err)
	}
}

// A module that contains itself, or whose parts are not what PyTorch writes, is refused.
func TestHostileModules(t *testing.T) {
	long.Test(t)
	class := named("app M")
	// attributes gives the object on top of the stack the dict of a module.
	attributes := func(modules ...any) []any {
		parts := []any{opEmptyDict, "_parameters", opEmptyDict, opSetItem, "_buffers", opEmptyDict, opSetItem, "_modules", opEmptyDict}
		parts = append(parts, modules...)
		return append(parts, opSetItem, opBuild)
	}
	object := []any{class, opEmptyTuple, []byte{opNewObject}, opPut, []byte{0}}
	for name, test := range map[string]struct {
		pickle string
		want   string
	}{
		"itself":   {pickled(append(object, attributes("a", opGet, []byte{0}, opSetItem)...)...), "nested more than 64 deep"},
		"a number": {pickled(append(object, attributes("a", 5, opSetItem)...)...), `has a module "a" that is the int 5`},
		"a name":   {pickled(append(object, attributes(5, opNone, opSetItem)...)...), "with the int 5 for the name of a module"},
		"child":    {pickled(append(object, attributes("a", class, opEmptyTuple, []byte{opNewObject}, opSetItem)...)...), "whose _modules is None"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("model.pth", zipBytes(t, zip.Store, "m/data.pkl", test.pickle))
			wantInput(t, err, "model.pth", test.want)
		})
	}
	// Modules that share their children can make 2^40 paths out of 40 modules.
	var shared []any
	for i := range byte(40) {
		shared = append(shared, class, opEmptyTuple, []byte{opNewObject}, opPut, []byte{i})
		if i == 0 {
			shared = append(shared, attributes()...)
		} else {
			shared = append(shared, attributes("a", opGet, []byte{i - 1}, opSetItem, "b", opGet, []byte{i - 1}, opSetItem)...)
		}
	}
	_, err := Parse("model.pth", zipBytes(t, zip.Store, "m/data.pkl", pickled(shared...)))
	wantInput(t, err, "model.pth", "holds more than 1048576 modules or tensors")
}

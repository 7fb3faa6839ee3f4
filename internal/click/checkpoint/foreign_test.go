package checkpoint

import (
	"archive/zip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

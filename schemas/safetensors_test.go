package schemas_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/checkpoint"
	"shaver/internal/model"
	"shaver/internal/planted"
	"shaver/schemas"
)

// form is an .arrow.json or .safetensors.json.
type form struct {
	Title       string `json:"title"`
	Where       string `json:"where"`
	About       string `json:"about,omitempty"`
	Container   string `json:"container"`
	Compression string `json:"compression,omitempty"`
	Batches     string `json:"batches,omitempty"`
	Metadata    []struct {
		Key   string `json:"key"`
		Const string `json:"const,omitempty"` // the value, or
		Value string `json:"value,omitempty"` // what it is
		When  string `json:"when,omitempty"`
	} `json:"metadata"`
	Tensors []struct {
		Name  string `json:"name"`
		DType string `json:"dtype"`
		Shape string `json:"shape"`
		When  string `json:"when,omitempty"`
		Each  string `json:"each,omitempty"`
		About string `json:"about,omitempty"`
	} `json:"tensors,omitempty"`
	Columns []struct {
		Name     string `json:"name"`
		Type     string `json:"type"`
		Nullable *bool  `json:"nullable"`
		When     string `json:"when,omitempty"`
		Each     string `json:"each,omitempty"`
		About    string `json:"about,omitempty"`
	} `json:"columns,omitempty"`
}

func readForm(t testing.TB, name string) *form {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(read(t, name)))
	decoder.DisallowUnknownFields()
	f := &form{}
	if err := decoder.Decode(f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return f
}

// TestForms checks that the forms that are no JSON Schema are complete. Arrow's
// are compared with what is written by the only importer of Arrow, arrowio.
func TestForms(t *testing.T) {
	names, err := fs.Glob(schemas.Files, "*.*.*.json")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"compact.v1.safetensors.json", "frequencies.v1.arrow.json", "model.v1.safetensors.json",
		"partial.v2.arrow.json", "rows.v1.arrow.json", "scores.v2.arrow.json"}
	if !slices.Equal(names, want) {
		t.Errorf("forms %v, expected %v", names, want)
	}
	for _, name := range names {
		f := readForm(t, name)
		if f.Title == "" || f.Where == "" || f.Container == "" || len(f.Metadata) == 0 || len(f.Tensors)+len(f.Columns) == 0 {
			t.Errorf("%s: title, where, container, metadata or columns", name)
		}
		for _, c := range f.Columns {
			if c.Name == "" || c.Type == "" || c.Nullable == nil {
				t.Errorf("%s: column %+v: name, type or nullable", name, c)
			}
		}
		for _, m := range f.Metadata {
			if (m.Const == "") == (m.Value == "") {
				t.Errorf("%s: metadata %s has both or none of const and value", name, m.Key)
			}
		}
	}
}

// tensor is what a safetensors header says of one.
type tensor struct {
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

// header reads the header of a safetensors file.
func header(t *testing.T, file string) (metadata map[string]string, tensors map[string]tensor) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data[8:8+binary.LittleEndian.Uint64(data)], &all); err != nil {
		t.Fatal(err)
	}
	tensors = map[string]tensor{}
	for key, text := range all {
		if key == "__metadata__" {
			err = json.Unmarshal(text, &metadata)
		} else {
			var one tensor
			err = json.Unmarshal(text, &one)
			tensors[key] = one
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return metadata, tensors
}

// compareMetadata checks keys, and values where the form fixes them.
func (f *form) compareMetadata(t *testing.T, got map[string]string) {
	t.Helper()
	var keys []string
	for _, m := range f.Metadata {
		keys = append(keys, m.Key)
		if m.Const != "" && got[m.Key] != m.Const {
			t.Errorf("metadata %s is %q in the file, %q in the form", m.Key, got[m.Key], m.Const)
		}
	}
	if found := slices.Sorted(maps.Keys(got)); !slices.Equal(found, keys) {
		t.Errorf("metadata %v in the file, %v in the form", found, keys)
	}
	accept(t, "architecture.v1.json", []byte(got["shaver.architecture"]))
}

// wide is a model with d columns, and its state dict.
func wide(t *testing.T, d int) *planted.Planted {
	t.Helper()
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{400, 3}, Informative: 1, Silent: d - 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDense(t *testing.T) {
	p := wide(t, 4)
	file := filepath.Join(t.TempDir(), "model.safetensors")
	if _, err := checkpoint.WriteDense(file, p.Checkpoint); err != nil {
		t.Fatal(err)
	}
	metadata, tensors := header(t, file)
	readForm(t, "model.v1.safetensors.json").compareMetadata(t, metadata)
	if got, want := slices.Sorted(maps.Keys(tensors)), slices.Sorted(slices.Values(p.Checkpoint.Keys)); !slices.Equal(got, want) {
		t.Errorf("tensors %v, expected %v", got, want)
	}
}

// TestCompact writes compact models of both structures and of both types that an
// index may have, and compares them with the form.
func TestCompact(t *testing.T) {
	f := readForm(t, "compact.v1.safetensors.json")
	for _, c := range []struct {
		d, keepEvery int
		structure    string
	}{
		{4, 2, "bitmap"}, {32, 40, "csr"}, {255, 200, "csr"}, {256, 200, "csr"}, {257, 200, "csr"},
	} {
		t.Run(fmt.Sprintf("d=%d/%s", c.d, c.structure), func(t *testing.T) {
			p := wide(t, c.d)
			a := &p.Checkpoint.Architecture
			dropped := make([]bool, a.Parameters())
			kept := 0
			for i := range dropped {
				if dropped[i] = i%c.keepEvery != 0; !dropped[i] {
					kept++
				}
			}
			file := filepath.Join(t.TempDir(), "pruned.safetensors")
			if _, err := checkpoint.WriteCompact(file, p.Checkpoint, dropped, make([]float32, a.Players())); err != nil {
				t.Fatal(err)
			}
			metadata, tensors := header(t, file)
			f.compareMetadata(t, metadata)
			if metadata["shaver.structure"] != c.structure {
				t.Fatalf("structure %s, expected %s", metadata["shaver.structure"], c.structure)
			}
			f.compareTensors(t, a, kept, c.structure, p.Checkpoint, tensors)
		})
	}
}

func (f *form) compareTensors(t *testing.T, a *model.Architecture, kept int, structure string, c *checkpoint.Checkpoint, got map[string]tensor) {
	t.Helper()
	n, m, d := a.Features(), a.Fields(), a.Dim
	shapes := map[string][]int{"[kept]": {kept}, "[m, d]": {m, d}, "[n]": {n}, "[ceil(n*d/8)]": {(n*d + 7) / 8}}
	left := maps.Clone(got)
	for _, want := range f.Tensors {
		if want.Each != "" || want.When != "" && want.When != structure {
			continue
		}
		found, ok := left[want.Name]
		delete(left, want.Name)
		if shape, known := shapes[want.Shape]; !ok || !known || !slices.Equal(found.Shape, shape) {
			t.Errorf("tensor %s has shape %v in the file, %s in the form", want.Name, found.Shape, want.Shape)
		}
		if dtype := resolve(t, want.DType, d); found.DType != dtype {
			t.Errorf("tensor %s has type %s in the file, %s in the form for d = %d", want.Name, found.DType, dtype, d)
		}
	}
	for key, found := range left {
		own, ok := c.Tensors[key]
		if !ok || key == c.EmbeddingKey || string(own.DType) != found.DType || !slices.Equal(own.Shape, found.Shape) {
			t.Errorf("tensor %s %+v is not in the form", key, found)
		}
	}
	if want := len(c.Tensors) - 1; len(left) != want {
		t.Errorf("%d tensors of the state dict, expected %d", len(left), want)
	}
}

// resolve returns the type that the form gives for d columns: a name, or "X if
// d <= N, else Y".
func resolve(t *testing.T, text string, d int) string {
	t.Helper()
	if !strings.Contains(text, " ") {
		return text
	}
	var small, large string
	var most int
	if _, err := fmt.Sscanf(text, "%s if d <= %d, else %s", &small, &most, &large); err != nil {
		t.Fatalf("type %q: %v", text, err)
	}
	if d <= most {
		return small
	}
	return large
}

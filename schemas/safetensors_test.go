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
	"regexp"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/schemas"
)

// form is the content of an .arrow.json or .safetensors.json file.
type form struct {
	Title       string `json:"title"`
	Where       string `json:"where"`
	About       string `json:"about,omitempty"`
	Container   string `json:"container"`
	Compression string `json:"compression,omitempty"`
	Batches     string `json:"batches,omitempty"`
	Metadata    []struct {
		Key   string `json:"key"`
		Const string `json:"const,omitempty"` // the value, if it is fixed
		Value string `json:"value,omitempty"` // otherwise a description of the value
		When  string `json:"when,omitempty"`
	} `json:"metadata"`
	Tensors []formTensor `json:"tensors,omitempty"`
	Columns []struct {
		Name     string `json:"name"`
		Type     string `json:"type"`
		Nullable *bool  `json:"nullable"`
		When     string `json:"when,omitempty"`
		Each     string `json:"each,omitempty"`
		About    string `json:"about,omitempty"`
	} `json:"columns,omitempty"`
}

// formTensor describes tensors of a form.
type formTensor struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape string `json:"shape"`
	When  string `json:"when,omitempty"`
	Each  string `json:"each,omitempty"`
	About string `json:"about,omitempty"`
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

// TestForms checks that the descriptions that are not JSON Schemas are complete. Package
// arrowio compares those of Arrow with the bytes that it writes.
func TestForms(t *testing.T) {
	names, err := fs.Glob(schemas.Files, "*.*.*.json")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"compact.v2.safetensors.json", "compact.v3.safetensors.json", "compact.v4.safetensors.json", "compact.v5.safetensors.json", "compact.v6.safetensors.json", "compact.v7.safetensors.json", "composed.v1.safetensors.json", "frequencies.v1.arrow.json", "model.v1.safetensors.json",
		"partial.v6.arrow.json", "partial.v7.arrow.json", "rows.v1.arrow.json", "rows.v2.arrow.json", "rows.v3.arrow.json", "rows.v4.arrow.json", "scores.v2.arrow.json", "scores.v3.arrow.json", "scores.v4.arrow.json", "scores.v5.arrow.json", "weights.v1.safetensors.json"}
	if !slices.Equal(names, want) {
		t.Errorf("forms %v, expected %v", names, want)
	}
	for _, name := range names {
		f := readForm(t, name)
		if f.Title == "" || f.Where == "" || f.Container == "" || len(f.Metadata) == 0 || len(f.Tensors)+len(f.Columns) == 0 {
			t.Errorf("%s: title, where, container, metadata or columns are missing", name)
		}
		for _, c := range f.Columns {
			if c.Name == "" || c.Type == "" || c.Nullable == nil {
				t.Errorf("%s: column %+v: name, type or nullable is missing", name, c)
			}
		}
		for _, m := range f.Metadata {
			if (m.Const == "") == (m.Value == "") {
				t.Errorf("%s: metadata %s has both or none of const and value", name, m.Key)
			}
		}
	}
}

// tensor is the entry of a tensor in a safetensors header.
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

// compareMetadata checks the keys, and the values that the form fixes.
func (f *form) compareMetadata(t *testing.T, got map[string]string) {
	t.Helper()
	var keys []string
	for _, m := range f.Metadata {
		if _, ok := got[m.Key]; ok || m.When == "" {
			keys = append(keys, m.Key)
		}
		if m.Const != "" && got[m.Key] != m.Const {
			t.Errorf("metadata %s is %q in the file, %q in the form", m.Key, got[m.Key], m.Const)
		}
	}
	if found := slices.Sorted(maps.Keys(got)); !slices.Equal(found, keys) {
		t.Errorf("metadata %v in the file, %v in the form", found, keys)
	}
	if text, ok := got["shaver.architecture"]; ok {
		accept(t, "architecture.v1.json", []byte(text))
	}
}

// wide returns a model with d columns, and its state dict.
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

// TestWeights writes models of all kinds in the form of a job.
func TestWeights(t *testing.T) {
	f := readForm(t, "weights.v1.safetensors.json")
	found := map[string]bool{}
	models := map[string]*model.Model{"graph": modeltest.ListModel("mean", 1), "constants": modeltest.Graph(modeltest.Architectures()["deepfm"], modeltest.Weights(modeltest.Architectures()["deepfm"], 1))}
	for name, a := range modeltest.Architectures() {
		models[name] = modeltest.Random(t, a, 1)
	}
	for name, m := range models {
		file := filepath.Join(t.TempDir(), "m.shaver")
		content, err := modelfile.New(m, strings.Repeat("0", 64))
		if err != nil {
			t.Fatal(err)
		}
		var data bytes.Buffer
		if _, err := content.WriteTo(&data); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		metadata, tensors := header(t, file)
		f.compareMetadata(t, metadata)
		for key, one := range tensors {
			at := slices.IndexFunc(f.Tensors, func(want formTensor) bool {
				pattern := "^" + strings.NewReplacer("{layer}", `(hidden\.\d+|cross\.\d+|output)`, "{i}", `\d+`, "{part}", "(u|c|v|bias)", "{name}", ".*", ".", `\.`).Replace(want.Name) + "$"
				return regexp.MustCompile(pattern).MatchString(key) && want.DType == one.DType
			})
			if at < 0 {
				t.Errorf("%s: tensor %s of type %s is not in the form", name, key, one.DType)
				continue
			}
			found[f.Tensors[at].Name] = true
		}
	}
	for _, want := range f.Tensors {
		if !found[want.Name] {
			t.Errorf("no model has the tensor %s", want.Name)
		}
	}
}

// TestFramework writes the state dict of another framework, in both forms.
func TestFramework(t *testing.T) {
	folder := t.TempDir()
	state, err := os.ReadFile(filepath.Join("..", "testdata", "families", "fuxictr-fm.model"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "fm.model")
	if err := os.WriteFile(file, state, 0o666); err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	a := &ck.Architecture
	if _, err := checkpoint.WriteDense(file, ck); err != nil {
		t.Fatal(err)
	}
	dense, tensors := header(t, file)
	readForm(t, "model.v1.safetensors.json").compareMetadata(t, dense)
	if len(tensors) != ck.TensorCount() {
		t.Errorf("%d tensors, expected %d", len(tensors), ck.TensorCount())
	}
	if _, err := checkpoint.WriteCompact(file, ck, make([]bool, a.Parameters()), a.Zero(), compact.Float32); err != nil {
		t.Fatal(err)
	}
	small, _ := header(t, file)
	readForm(t, "compact.v3.safetensors.json").compareMetadata(t, small)
	const want = `{"name":"fuxictr","fields":["user","item","category","city","device"]}`
	if dense["shaver.family"] != want || small["shaver.family"] != want {
		t.Errorf("metadata shaver.family is %s and %s, expected %s", dense["shaver.family"], small["shaver.family"], want)
	}
}

// TestCompact writes compact models with every form of fields and every type of values,
// and compares them with the description.
func TestCompact(t *testing.T) {
	f := readForm(t, "compact.v3.safetensors.json")
	for _, c := range []struct {
		d, keepEvery  int
		values        compact.Encoding
		dtype         string
		first, second compact.Form
	}{
		{4, 2, compact.Float32, "F32", compact.Bitmap, compact.Bitmap},
		{4, 1, compact.Float16, "F16", compact.Dense, compact.Dense},
		{32, 40, compact.Int8, "U8", compact.Columns, compact.Columns},
		{128, 511, compact.Float32, "F32", compact.Columns, compact.None},
		{257, 200, compact.Float16, "F16", compact.Columns, compact.Columns},
	} {
		t.Run(fmt.Sprintf("d=%d/%s", c.d, c.values), func(t *testing.T) {
			p := wide(t, c.d)
			a := &p.Checkpoint.Architecture
			dropped := make([]bool, a.Parameters())
			for i := range dropped {
				dropped[i] = i%c.keepEvery != 0
			}
			file := filepath.Join(t.TempDir(), "pruned.safetensors")
			if _, err := checkpoint.WriteCompact(file, p.Checkpoint, dropped, a.Zero(), c.values); err != nil {
				t.Fatal(err)
			}
			metadata, tensors := header(t, file)
			f.compareMetadata(t, metadata)
			var fields []compact.Field
			if err := json.Unmarshal([]byte(metadata["shaver.fields"]), &fields); err != nil {
				t.Fatal(err)
			}
			if len(fields) != 2 || fields[0].Form != c.first || fields[1].Form != c.second {
				t.Fatalf("fields %v, expected the forms %s and %s", fields, c.first, c.second)
			}
			f.compareTensors(t, a, fields, c.dtype, p.Checkpoint, tensors)
		})
	}
}

// TestCompactGraph writes compact models of kind graph with one table and with tables of two
// widths, and compares them with the description.
func TestCompactGraph(t *testing.T) {
	f := readForm(t, "compact.v4.safetensors.json")
	for name, dtype := range map[string]string{"recbole-autoint.dynamo": "U8", "ncf.dynamo": "F16", "deepctr-torch-xdeepfm.dynamo": "F32"} {
		ck, err := checkpoint.Read(filepath.Join("..", "testdata", "onnx", name+".onnx"))
		if err != nil {
			t.Fatal(err)
		}
		a := &ck.Architecture
		dropped := make([]bool, a.Parameters())
		for i := range dropped {
			dropped[i] = i%3 != 0
		}
		values := map[string]compact.Encoding{"F32": compact.Float32, "F16": compact.Float16, "U8": compact.Int8}[dtype]
		file := filepath.Join(t.TempDir(), "pruned.safetensors")
		if _, err := checkpoint.WriteCompact(file, ck, dropped, a.Zero(), values); err != nil {
			t.Fatal(err)
		}
		metadata, tensors := header(t, file)
		f.compareMetadata(t, metadata)
		var fields []compact.Field
		if err := json.Unmarshal([]byte(metadata["shaver.fields"]), &fields); err != nil {
			t.Fatal(err)
		}
		if len(fields) != len(a.Spans()) {
			t.Fatalf("%s: %d parts, expected %d", name, len(fields), len(a.Spans()))
		}
		f.compareTensors(t, a, fields, dtype, ck, tensors)
	}
}

// TestMixed writes compact models with a palette and packed tensors, and compares them with the
// description.
func TestMixed(t *testing.T) {
	graph, err := checkpoint.Read(filepath.Join("..", "testdata", "onnx", "ncf.dynamo.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	f := readForm(t, "compact.v5.safetensors.json")
	for _, ck := range []*checkpoint.Checkpoint{wide(t, 4).Checkpoint, graph} {
		types := map[string]checkpoint.DType{}
		for i, key := range ck.Packable() {
			types[key] = []checkpoint.DType{checkpoint.I8, checkpoint.F16}[i%2]
		}
		packed, err := ck.Pack(types)
		if err != nil {
			t.Fatal(err)
		}
		a := &ck.Architecture
		rows := 0
		for _, s := range a.Spans() {
			rows += s.Rows
		}
		palette := &compact.Palette{Quantizers: []compact.Quantizer{{Bits: 4, Origin: -1, Step: .125}, {Bits: 16}}, Rows: make([]uint8, rows)}
		file := filepath.Join(t.TempDir(), "mixed.safetensors")
		if _, err := checkpoint.WriteMixed(file, packed, make([]bool, a.Parameters()), a.Zero(), palette); err != nil {
			t.Fatal(err)
		}
		metadata, tensors := header(t, file)
		f.compareMetadata(t, metadata)
		want := map[string]bool{}
		for _, m := range f.Tensors[:4] {
			want[m.Name] = true
			if found := tensors[m.Name]; found.DType != m.DType || len(found.Shape) != 1 {
				t.Errorf("%s is %v, expected %s %s", m.Name, found, m.DType, m.Shape)
			}
		}
		if n := tensors["shaver.palette"].Shape[0]; n != 9*2 {
			t.Errorf("the palette has %d bytes for two quantizers", n)
		}
		var coded map[string][]int
		if err := json.Unmarshal([]byte(metadata["shaver.coded"]), &coded); err != nil {
			t.Fatal(err)
		}
		for key, found := range tensors {
			dtype := ck.Tensors[key].DType
			if types[key] != "" {
				dtype = types[key]
			}
			if shape := coded[key]; shape != nil {
				if dtype != checkpoint.I8 || !slices.Equal(shape, ck.Tensors[key].Shape) || len(found.Shape) != 1 {
					t.Errorf("tensor %s of type %s is coded with the shape %v", key, dtype, shape)
				}
				dtype = checkpoint.U8
			}
			if !want[key] && found.DType != string(dtype) {
				t.Errorf("tensor %s is of type %s, expected %s", key, found.DType, dtype)
			}
		}
	}
}

// TestWords writes compact models with several words, and compares them with the description.
func TestWords(t *testing.T) {
	f := readForm(t, "compact.v6.safetensors.json")
	ck := wide(t, 4).Checkpoint
	a := &ck.Architecture
	b := model.Baseline{Values: make([]float32, a.BaselineSize()+2*4), Words: []int{3, 1}, Numbers: make([]uint8, a.Features())}
	for v, some := range map[compact.Encoding][]string{
		compact.Float32: {"shaver.codebook", "shaver.columns", "shaver.rows", "shaver.values", "shaver.words"},
		compact.Int8:    {"shaver.codebook", "shaver.columns", "shaver.rows", "shaver.steps", "shaver.values", "shaver.words"},
		compact.Mixed:   {"shaver.palette", "shaver.positions", "shaver.values", "shaver.words"},
	} {
		file := filepath.Join(t.TempDir(), "words.safetensors")
		var err error
		if dropped := make([]bool, a.Parameters()); v == compact.Mixed {
			_, err = checkpoint.WriteMixed(file, ck, dropped, b, &compact.Palette{Quantizers: []compact.Quantizer{{Bits: 16}}, Rows: make([]uint8, a.Features())})
		} else {
			_, err = checkpoint.WriteCompact(file, ck, dropped, b, v)
		}
		if err != nil {
			t.Fatal(err)
		}
		metadata, tensors := header(t, file)
		f.compareMetadata(t, metadata)
		var own []string
		for key, one := range tensors {
			if _, ok := ck.Tensors[key]; ok {
				continue
			}
			own = append(own, key)
			if !slices.ContainsFunc(f.Tensors, func(want formTensor) bool { return want.Name == key && strings.Contains(want.DType, one.DType) }) {
				t.Errorf("%s: tensor %s of type %s is not in the form", v, key, one.DType)
			}
		}
		if slices.Sort(own); !slices.Equal(own, some) {
			t.Errorf("%s: tensors %v, expected %v", v, own, some)
		}
	}
}

// TestLayers writes models in layers, and compares the file with the description.
func TestLayers(t *testing.T) {
	f := readForm(t, "compact.v7.safetensors.json")
	ck := wide(t, 4).Checkpoint
	a := &ck.Architecture
	none, all := make([]bool, a.Parameters()), slices.Repeat([]bool{true}, a.Parameters())
	for words, b := range []model.Baseline{a.Zero(), {Values: make([]float32, a.BaselineSize()+2*4), Words: []int{3, 1}, Numbers: make([]uint8, a.Features())}} {
		file := filepath.Join(t.TempDir(), "layers.safetensors")
		layers := []checkpoint.Layer{{Sparsity: 1, Calibration: &checkpoint.LayerCalibration{Scale: 1}}, {}}
		if _, err := checkpoint.WriteLayers(file, ck, layers, [][]bool{all, none}, b, compact.Float32); err != nil {
			t.Fatal(err)
		}
		metadata, tensors := header(t, file)
		f.compareMetadata(t, metadata)
		for key := range ck.Tensors {
			delete(tensors, key)
		}
		for _, want := range f.Tensors[1:] {
			for k := range layers {
				key := strings.ReplaceAll(want.Name, "{k}", fmt.Sprint(k))
				one, ok := tensors[key]
				if ok != (want.When == "" || words == 1) && (want.Each != "" || k == 0) || ok && !strings.Contains(want.DType, one.DType) {
					t.Errorf("tensor %s is %v, expected %s", key, one, want.DType)
				}
				delete(tensors, key)
			}
		}
		if len(tensors) > 0 {
			t.Errorf("the form lacks the tensors %v", tensors)
		}
	}
}

// TestComposed writes models with composed tables, and compares them with the description.
func TestComposed(t *testing.T) {
	f := readForm(t, "composed.v1.safetensors.json")
	p := wide(t, 4)
	n := p.Checkpoint.Architecture.Features()
	for when, shape := range map[string]composed.Shape{
		"qr": composed.ForDivider(n, 4, 5), "tt": composed.ForRanks(n, 4, []int{3, 2}, 0), "tt with a cache": composed.ForRanks(n, 4, []int{3, 2}, 2), "cerp": composed.ForBuckets(n, 4, 30),
	} {
		c := *p.Checkpoint
		c.Composed, c.Training = composed.New(shape), `{"seed":1}`
		if shape.Cached > 0 {
			c.Composed.FillCache([]int32{3, 200})
		}
		file := filepath.Join(t.TempDir(), "m.safetensors")
		if _, err := checkpoint.WriteComposed(file, &c); err != nil {
			t.Fatal(err)
		}
		metadata, tensors := header(t, file)
		f.compareMetadata(t, metadata)
		accept(t, "shape.v1.json", []byte(metadata["shaver.table"]))
		want := map[string]tensor{}
		for _, w := range shape.Tensors() {
			want["embedding."+w.Name] = tensor{"F32", w.Shape}
		}
		for _, own := range f.Tensors {
			if own.When == "" || !strings.HasPrefix(when, own.When) || own.Each != "" {
				continue
			}
			found, ok := tensors[own.Name]
			if !ok || found.DType != own.DType {
				t.Errorf("%s: tensor %s has the type %s in the file, %s in the form", when, own.Name, found.DType, own.DType)
			}
			if _, weight := want[own.Name]; !weight {
				want[own.Name] = found
			}
		}
		for key, found := range p.Checkpoint.Tensors {
			if key != p.Checkpoint.EmbeddingKey {
				want[key] = tensor{string(found.DType), found.Shape}
			}
		}
		if fmt.Sprint(want) != fmt.Sprint(tensors) {
			t.Errorf("%s: the file has the tensors %v, expected %v", when, tensors, want)
		}
	}
}

// compareTensors checks the shapes and types of the tensors. Sizes in bytes follow the
// description's text.
func (f *form) compareTensors(t *testing.T, a *model.Architecture, fields []compact.Field, values string, c *checkpoint.Checkpoint, got map[string]tensor) {
	t.Helper()
	kept, rows, columns := 0, 0, 0
	spans := a.Spans()
	for j, field := range fields {
		d := spans[j].Dim
		kept += field.Kept
		listing := field.Form == compact.Bitmap || field.Form == compact.Columns
		if listing && field.Rows < spans[j].Rows {
			rows += (spans[j].Rows + 7) / 8
		}
		switch {
		case field.Form == compact.Bitmap:
			columns += field.Rows * ((d + 7) / 8)
		case field.Form == compact.Columns && d <= 128:
			columns += field.Kept
		case field.Form == compact.Columns:
			columns += 2 * field.Kept
		}
	}
	shapes := map[string][]int{"shaver.values": {kept}, "shaver.codebook": {a.Players()}, "shaver.steps": {len(spans), 2}, "shaver.rows": {rows}, "shaver.columns": {columns}}
	if a.Plain() {
		shapes["shaver.codebook"] = []int{a.Fields(), a.Dim}
	}
	left := maps.Clone(got)
	for _, want := range f.Tensors {
		if want.Each != "" || want.When != "" && want.When != values {
			continue
		}
		found, ok := left[want.Name]
		delete(left, want.Name)
		if !ok || !slices.Equal(found.Shape, shapes[want.Name]) {
			t.Errorf("tensor %s has shape %v in the file, expected %v", want.Name, found.Shape, shapes[want.Name])
		}
		if !strings.Contains(want.DType, found.DType) || want.Name == "shaver.values" && found.DType != values {
			t.Errorf("tensor %s has type %s in the file, %s in the form", want.Name, found.DType, want.DType)
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

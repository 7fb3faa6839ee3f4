package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/wire/onnxtest"
)

const exports = "../../../testdata/onnx"

// export is the part of the description of an exported model that these tests need, with
// the results of onnxruntime.
type export struct {
	File    string
	Batch   int
	Fields  []exportField
	Output  string
	Logit   string
	Tensor  string
	IDs     [][]int
	Values  [][]float32
	Logits  []float64
	Outputs [][]float64
}

// exportField is a field of an export. It is a list if it has a length.
type exportField struct {
	Name, Input          string
	Column, Rows, Length int
	Computed             bool
}

// isNamed reports whether a model may call the field by the given name.
func (f *exportField) isNamed(name string) bool {
	if f.Computed {
		return name == f.Name
	}
	if f.Length > 0 && name == fmt.Sprintf("%s[%d:%d]", f.Input, f.Column, f.Column+f.Length) {
		return true
	}
	return name == f.Input || f.Length == 0 && name == fmt.Sprintf("%s[%d]", f.Input, f.Column)
}

// rowsOf returns the rows of e for a model with the fields of c.
func (e *export) rowsOf(t *testing.T, c *Checkpoint) *model.Rows {
	t.Helper()
	rows := &model.Rows{Width: c.Architecture.Width(), Inputs: len(c.Architecture.Dense)}
	var fields, columns []int // the field and the column in e.IDs of each id of a row
	lengths := c.Architecture.Lengths()
	for j, name := range c.Fields {
		from, found := 0, false
		for k := range e.Fields {
			f := &e.Fields[k]
			length := max(1, f.Length)
			if found = f.isNamed(name) && length == lengths[j]; found {
				break
			}
			from += length
		}
		if !found {
			t.Fatalf("field %s is not one of %+v", name, e.Fields)
		}
		for i := range lengths[j] {
			fields, columns = append(fields, j), append(columns, from+i)
		}
	}
	offsets := c.Architecture.Offsets()
	for r, ids := range e.IDs {
		rows.Number = append(rows.Number, int64(r))
		rows.Label = append(rows.Label, float32(r%2))
		for k, j := range fields {
			rows.Features = append(rows.Features, offsets[j]+int32(ids[columns[k]]))
		}
		rows.Dense = append(rows.Dense, e.Values[r]...)
	}
	return rows
}

func readExports(t *testing.T) []export {
	t.Helper()
	files, err := filepath.Glob(exports + "/*.json")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files in %s, expected the exports: %v", len(files), exports, err)
	}
	var all []export
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var e export
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if e.Batch <= 1 {
			all = append(all, e)
		}
	}
	return all
}

// recognized lists the exported models that are of a kind other than model.Graph. All
// others are not, for any exporter.
var recognized = map[string]string{
	"deepctr-torch-dcn-matrix": "dcnv2 parallel",
	"deepctr-torch-fm":         "fm",
	"fuxictr-dcnv2-parallel":   "dcnv2 parallel",
	"fuxictr-dcnv2-stacked":    "dcnv2 stacked",
	"fuxictr-deepfm":           "deepfm",
	"fuxictr-fm":               "fm",
	"fuxictr-widedeep":         "widedeep",
	"pytorch-fm-deepfm":        "deepfm",
	"pytorch-fm-fm":            "fm",
	"recbole-dcnv2":            "dcnv2 parallel",
	"recbole-deepfm":           "deepfm",
	"recbole-fm":               "fm",
}

// kindOf returns the kind and the structure of c.
func kindOf(c *Checkpoint) string {
	return strings.TrimSpace(string(c.Architecture.Kind) + " " + c.Architecture.Structure)
}

// A model of every framework and exporter has the logits of onnxruntime, as it is read
// from the .onnx file and as it is read from the file that we write. So has the model of
// another kind that some of the graphs are.
func TestONNX(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range readExports(t) {
		name, _, _ := strings.Cut(e.File, ".")
		want := recognized[name]
		if seen[name] = true; want == "" {
			want = string(model.Graph)
		}
		o := Options{ONNX: dissect.Options{Output: e.Output}}
		t.Run(strings.TrimSuffix(e.File, ".onnx"), func(t *testing.T) {
			if got := testExport(t, &e, o); got != want {
				t.Errorf("it is a %s, expected a %s", got, want)
			}
		})
		if want == string(model.Graph) {
			continue
		}
		o.Generic = true
		t.Run(strings.TrimSuffix(e.File, ".onnx")+"-generic", func(t *testing.T) {
			if got := testExport(t, &e, o); got != string(model.Graph) {
				t.Errorf("it is a %s, expected a %s", got, model.Graph)
			}
		})
	}
	for name := range recognized {
		if !seen[name] {
			t.Errorf("there is no export of %s", name)
		}
	}
}

// Quantised files have the logits of onnxruntime, too, and a kind is recognised in them.
func TestQuantisedONNX(t *testing.T) {
	files, err := filepath.Glob(exports + "/quantised/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d quantised files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var e export
			if err := json.Unmarshal(data, &e); err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(filepath.Base(file), ".")
			want := recognized[name]
			if want == "" {
				want = string(model.Graph)
			}
			if got := testExport(t, &e, Options{ONNX: dissect.Options{Output: e.Output}}); got != want {
				t.Errorf("it is a %s, expected a %s", got, want)
			}
		})
	}
}

// testExport checks the logits of an exported model, and returns its kind.
func testExport(t *testing.T, e *export, o Options) string {
	c, err := ReadPart(filepath.Join(exports, e.File), o)
	if err != nil {
		t.Fatal(err)
	}
	if c.Recognized != (c.Architecture.Kind != model.Graph) {
		t.Errorf("a %s is recognized: %v", c.Architecture.Kind, c.Recognized)
	}
	rows := e.rowsOf(t, c)
	var data bytes.Buffer
	if _, err := c.WriteTo(&data); err != nil {
		t.Fatal(err)
	}
	again, err := Parse("copy", data.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != c.Digest() {
		t.Fatal("the digest changes when the model is written and read")
	}
	var first []float64
	for _, c := range []*Checkpoint{c, again} {
		m, err := c.Model()
		if err != nil {
			t.Fatal(err)
		}
		logits := make([]float64, rows.Len())
		m.NewScorer().Logits(logits, rows)
		for r, got := range logits {
			want := e.Logits[r]
			if e.Logit == "probability" && e.Tensor == "" { // a float32 probability says less about its logit
				got, want = 1/(1+math.Exp(-got)), e.Outputs[r][0]
			}
			if !(math.Abs(got-want) <= 2e-6*max(1, math.Abs(want))) {
				t.Fatalf("row %d: logit %v, expected %v", r, got, want)
			}
		}
		if first == nil {
			first = logits
		} else if !slices.Equal(first, logits) {
			t.Fatal("the logits change when the model is written and read")
		}
	}
	return kindOf(c)
}

// The digest of a model does not depend on where its tensors are stored: these files have
// the same weights, and the first has a file of its own for the large ones.
func TestDigestOfExternalData(t *testing.T) {
	var digests []string
	for _, name := range []string{"fuxictr-deepfm.external.onnx", "fuxictr-deepfm.dynamo.onnx"} {
		c, err := Read(filepath.Join(exports, name))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, c.Digest())
	}
	if digests[0] != digests[1] {
		t.Errorf("the digests are %v, expected the same", digests)
	}
}

// The pads of lists are those that the graph compares ids with, or 0. A user may set them,
// and files keep them.
func TestPads(t *testing.T) {
	path := filepath.Join(exports, "deepctr-torch-bags.dynamo.onnx")
	c, err := ReadPart(path, Options{Pads: map[string]int{"x[11:15]": 3}})
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	if _, err := c.WriteTo(&data); err != nil {
		t.Fatal(err)
	}
	again, err := Parse("copy", data.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Checkpoint{c, again} {
		if want := []PadSource{PadFound, PadGiven, PadAssumed}; !slices.Equal(c.PadSources(), want) {
			t.Errorf("pads are %v, expected %v", c.PadSources(), want)
		}
		for k, want := range []int{0, 3, 0} {
			if l := c.Architecture.Lists[k]; l.Pad != want || l.Length != 4 {
				t.Errorf("list %d is %+v, expected the pad %d", k, l, want)
			}
		}
	}
	if err := again.setPads(map[string]int{"x[15:19]": -1}); err != nil || again.Architecture.Lists[2].Pad != -1 {
		t.Errorf("error %v, lists %+v", err, again.Architecture.Lists)
	}
	again.graph.Pads[2] = PadBelow
	if err := again.setPads(nil); !fault.IsInput(err) || !strings.Contains(err.Error(), `--pad "x[15:19]"=none`) {
		t.Errorf("error %v, expected that the pad is below 0", err)
	}
	if err := again.setPads(map[string]int{"x[15:19]": 0}); err != nil {
		t.Error(err)
	}
	for want, pads := range map[string]map[string]int{
		`there is no list "x[0]", expected one of: "x[7:11]", "x[11:15]", "x[15:19]"`: {"x[0]": 1},
		`list "x[7:11]" has the pad id 6, expected 0 to 5`:                            {"x[7:11]": 6},
	} {
		if _, err := ReadPart(path, Options{Pads: pads}); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %s", err, want)
		}
	}
	if _, err := ReadPart(filepath.Join(exports, "fuxictr-fm.dynamo.onnx"), Options{Pads: map[string]int{"user": 1}}); !fault.IsInput(err) {
		t.Errorf("error %v, expected that there are no lists", err)
	}
}

// A table that several fields read is stored once, also if these fields are the last ones.
func TestSharedTable(t *testing.T) {
	type names = onnxtest.Names
	g := onnxtest.Graph{
		Inputs:       []onnxtest.Message{onnxtest.Value("a", 7, -1), onnxtest.Value("b", 7, -1), onnxtest.Value("c", 7, -1)},
		Outputs:      []onnxtest.Message{onnxtest.Value("y", 1, -1, 1)},
		Initializers: []onnxtest.Message{onnxtest.Floats("t", []float32{1, 2, 3, 4}, 2, 2), onnxtest.Floats("u", []float32{5, 6, 7, 8, 9, 10}, 3, 2), onnxtest.Floats("w", []float32{1, 10, 100, 1000, 10000, 100000}, 6, 1)},
		Nodes: []onnxtest.Message{
			onnxtest.Node("Gather", names{"t", "a"}, names{"ta"}), onnxtest.Node("Gather", names{"u", "b"}, names{"ub"}), onnxtest.Node("Gather", names{"u", "c"}, names{"uc"}),
			onnxtest.Node("Concat", names{"ta", "ub", "uc"}, names{"h"}, onnxtest.Attribute("axis", 1)), onnxtest.Node("MatMul", names{"h", "w"}, names{"y"}),
		},
	}
	path := filepath.Join(t.TempDir(), "shared.onnx")
	if err := os.WriteFile(path, onnxtest.Model(18, g.Message()), 0o600); err != nil {
		t.Fatal(err)
	}
	c, m, err := ReadModel(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.Architecture.Parameters() != 10 || len(c.Architecture.LookUps) != 3 {
		t.Errorf("%d parameters, look-ups %+v, expected 10 and three look-ups", c.Architecture.Parameters(), c.Architecture.LookUps)
	}
	logit := make([]float64, 1)
	m.NewScorer().Logits(logit, &model.Rows{Width: 3, Number: []int64{0}, Label: []float32{0}, Features: []int32{1, 2 + 2, 5 + 1}})
	if want := 3. + 40 + 900 + 10000 + 70000 + 800000; logit[0] != want {
		t.Errorf("logit %v, expected %v", logit[0], want)
	}
}

// A file whose lists do not fit its head or each other is refused.
func TestHostileLists(t *testing.T) {
	c, err := Read(filepath.Join(exports, "fuxictr-din.dynamo.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string][3]string{
		"the ids of field 0 has 1":   {metaGraph, `"ids":[{"field":5,`, `"ids":[{"field":0,`},
		"names input 99":             {metaGraph, `"ids":[{"field":5,"input":`, `"ids":[{"field":5,"input":99`},
		"belongs to field -1":        {metaGraph, `"ids":[{"field":5,`, `"ids":[{"field":-1,`},
		"has the pads of 1 lists":    {metaGraph, `"pads":["found",`, `"pads":[`},
		"has 16385 positions":        {metaArchitecture, `"length":4`, `"length":16385`},
		"has the pad id 11":          {metaArchitecture, `"pad":0`, `"pad":11`},
		"has 20 values, but input":   {metaArchitecture, `"length":4`, `"length":5`},
		"expected ascending numbers": {metaArchitecture, `{"field":5,"length":4`, `{"field":6,"length":4`},
	} {
		f := c.canonical()
		tensors := map[string]Tensor{}
		for _, e := range f.Entries {
			tensors[e.Key] = e.Tensor
		}
		text := strings.Replace(f.Metadata[change[0]], change[1], change[2], 1)
		if text == f.Metadata[change[0]] {
			t.Errorf("%s does not have %s: %s", change[0], change[1], text)
		}
		f.Metadata[change[0]] = text
		var data bytes.Buffer
		if _, err := tensor.NewFile(tensors, f.Metadata).WriteTo(&data); err != nil {
			t.Fatal(err)
		}
		again, err := Parse("file", data.Bytes())
		if err == nil {
			_, err = again.Model()
		}
		if !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected bad input with %q", err, want)
		}
	}
}

// A file whose head does not fit its tensors, its architecture or itself is refused with an
// error that names the metadata or the tensor.
func TestHostileGraph(t *testing.T) {
	c, err := Read(filepath.Join(exports, "ncf.dynamo.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(tensors map[string]Tensor, metadata map[string]string)
		want   string
	}{
		"kind": {func(_ map[string]Tensor, m map[string]string) {
			m[metaArchitecture] = strings.Replace(m[metaArchitecture], `"graph"`, `"fm"`, 1)
		}, "expected neither tables nor look_ups"},
		"no head": {func(_ map[string]Tensor, m map[string]string) { m[metaGraph] = "{}" }, "metadata shaver.graph"},
		"input": {func(_ map[string]Tensor, m map[string]string) {
			m[metaGraph] = strings.Replace(m[metaGraph], `"look_ups":[`, `"look_ups":[99,`, 1)
		}, "names input 99 of the head, which has 4 inputs"},
		"fields": {func(_ map[string]Tensor, m map[string]string) {
			m[metaGraph] = strings.Replace(m[metaGraph], `"fields":[`, `"fields":["x",`, 1)
		}, "names 3 fields"},
		"table": {func(tensors map[string]Tensor, _ map[string]string) {
			tensors[graphEmbedding] = tensor.FromFloat32s([]int{3}, []float32{1, 2, 3})
		}, "tensor embedding has shape [3], expected [216]"},
		"weight": {func(tensors map[string]Tensor, _ map[string]string) {
			for key := range tensors {
				if strings.HasPrefix(key, graphHead) {
					delete(tensors, key)
				}
			}
		}, "there is no tensor"},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.canonical()
			tensors := map[string]Tensor{}
			for _, e := range f.Entries {
				tensors[e.Key] = e.Tensor
			}
			test.change(tensors, f.Metadata)
			var data bytes.Buffer
			if _, err := tensor.NewFile(tensors, f.Metadata).WriteTo(&data); err != nil {
				t.Fatal(err)
			}
			again, err := Parse("file", data.Bytes())
			if err == nil {
				_, err = again.Model()
			}
			if !fault.IsInput(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, expected bad input with %q", err, test.want)
			}
		})
	}
}

package checkpoint

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/dissect"
	"shaver/internal/fault"
	"shaver/internal/model"
)

const exports = "../../testdata/onnx"

// export is the part of the description of an exported model that these tests need, with
// the results of onnxruntime.
type export struct {
	File   string
	Batch  int
	Fields []struct {
		Input        string
		Column, Rows int
	}
	Output  string
	Logit   string
	Tensor  string
	IDs     [][]int
	Values  [][]float32
	Logits  []float64
	Outputs [][]float64
}

// rowsOf returns the rows of e for a model with the fields of c.
func (e *export) rowsOf(t *testing.T, c *Checkpoint) *model.Rows {
	t.Helper()
	rows := &model.Rows{Width: c.Architecture.Fields(), Inputs: len(c.Architecture.Dense)}
	column := make([]int, rows.Width)
	for j, name := range c.Fields {
		column[j] = slices.IndexFunc(e.Fields, func(f struct {
			Input        string
			Column, Rows int
		}) bool {
			return name == f.Input || strings.HasPrefix(name, f.Input+"[") && strings.HasSuffix(name, "]") && name == f.Input+"["+itoa(f.Column)+"]"
		})
		if column[j] < 0 {
			t.Fatalf("field %s is not one of %+v", name, e.Fields)
		}
	}
	offsets := c.Architecture.Offsets()
	for r, ids := range e.IDs {
		rows.Number = append(rows.Number, int64(r))
		rows.Label = append(rows.Label, float32(r%2))
		for j, k := range column {
			rows.Features = append(rows.Features, offsets[j]+int32(ids[k]))
		}
		rows.Dense = append(rows.Dense, e.Values[r]...)
	}
	return rows
}

func itoa(n int) string { return string(mustMarshal(n)) }

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
			tensors[graphEmbedding] = float32Tensor([]int{3}, []float32{1, 2, 3})
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
			for _, e := range f.entries {
				tensors[e.key] = e.Tensor
			}
			test.change(tensors, f.metadata)
			var data bytes.Buffer
			if _, err := newFile(tensors, f.metadata).WriteTo(&data); err != nil {
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

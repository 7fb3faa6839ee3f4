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
	rows := &model.Rows{Fields: c.Architecture.Fields(), Inputs: len(c.Architecture.Dense)}
	column := make([]int, rows.Fields)
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
		rows.Label = append(rows.Label, uint8(r%2))
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

// A model of every framework and exporter has the logits of onnxruntime, as it is read
// from the .onnx file and as it is read from the file that we write.
func TestONNX(t *testing.T) {
	for _, e := range readExports(t) {
		t.Run(strings.TrimSuffix(e.File, ".onnx"), func(t *testing.T) {
			c, err := ReadPart(filepath.Join(exports, e.File), Options{ONNX: dissect.Options{Output: e.Output}})
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
			if again.Digest() != c.Digest() {
				t.Fatal("the digest changes when the model is written and read")
			}
			var first []float64
			for _, c := range []*Checkpoint{c, again} {
				m, err := c.Model()
				if err != nil {
					t.Fatal(err)
				}
				rows := e.rowsOf(t, c)
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
		})
	}
}

package checkpoint

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/onnx/dissect"
)

// A slice of an exported graph of every framework, written as a new .onnx file, has the logits of the slice and
// the same fields.
func TestWriteNewONNX(t *testing.T) {
	long.Test(t)
	written := 0
	for _, e := range readExports(t) {
		t.Run(strings.TrimSuffix(e.File, ".onnx"), func(t *testing.T) {
			c, err := ReadPart(filepath.Join(exports, e.File), Options{ONNX: dissect.Options{Output: e.Output}, Generic: true})
			if err != nil {
				t.Fatal(err)
			}
			rows := e.rowsOf(t, c)
			for _, s := range sliceCases(&c.Architecture) {
				if s.name == "field" || s.name == "columns" {
					continue
				}
				sliced, err := c.Sliced(s.slice)
				if err != nil {
					continue
				}
				small := must(sliced.Model())(t)
				path := filepath.Join(t.TempDir(), "sliced.onnx")
				if _, err := WriteNewONNX(path, sliced); err != nil {
					if !strings.Contains(err.Error(), "computes ids from others") {
						t.Fatalf("%s: %v", s.name, err)
					}
					continue
				}
				written++
				again, err := ReadPart(path, Options{Generic: true})
				if err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				if got, want := again.Architecture.Fields(), len(s.slice.Fields); got != want {
					t.Fatalf("%s: %d fields, expected %d", s.name, got, want)
				}
				m := must(again.Model())(t)
				read := without(rows, s.slice.Fields, &c.Architecture, &again.Architecture)
				got, want := make([]float64, rows.Len()), make([]float64, rows.Len())
				small.NewScorer().Logits(want, read)
				m.NewScorer().Logits(got, read)
				for i := range got {
					if !(math.Abs(got[i]-want[i]) <= 1e-6*(1+math.Abs(want[i]))) && !(math.IsNaN(got[i]) && math.IsNaN(want[i])) {
						t.Fatalf("%s: row %d has the logit %.9f, expected %.9f", s.name, i, got[i], want[i])
					}
				}
			}
		})
	}
	if written < 500 {
		t.Errorf("only %d files", written)
	}
}

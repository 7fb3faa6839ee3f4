package sweeping

import (
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
)

// The settings of the training decide the method of a model file, and which files are repeats.
func TestModelFile(t *testing.T) {
	ck, err := checkpoint.Read(filepath.Join("..", "..", "..", "testdata", "golden", "fm.pth"))
	if err != nil {
		t.Fatal(err)
	}
	recipes := map[string]string{}
	for _, c := range []struct{ training, method string }{
		{``, "model"},
		{`{"seed":1}`, "model"},
		{`{"seed":1,"table":"pep","sparsity":0.5}`, "pep"},
		{`{"seed":2,"table":"pep","sparsity":0.5,"number":7}`, "pep"},
		{`{"seed":1,"table":"pep","sparsity":0.8}`, "pep"},
		{`{"seed":1,"table":"qr:5"}`, "qr"},
		{`{"seed":1,"tune":true,"table":"pep"}`, "tuned"},
		{`{"seed":1,"table":"magnitude"}`, "model"},
	} {
		ck.Training = c.training
		method, f, err := modelFile(ck, "folder/m.safetensors")
		if err != nil || method != c.method || f.File != "m.safetensors" || f.Model != ck.Digest() || (f.Training == "") != (c.training == "") {
			t.Errorf("%s: method %s, file %+v, error %v", c.training, method, f, err)
		}
		recipes[f.Training] += c.training
	}
	if len(recipes) != 7 { // only the two seeds of one PEP are repeats
		t.Errorf("recipes %v", recipes)
	}
	for _, bad := range []string{`{`, `{"seed":-1}`, `{"sparsity":1}`} {
		ck.Training = bad
		if _, _, err := modelFile(ck, "folder/m.safetensors"); !fault.IsInput(err) || !strings.HasPrefix(err.Error(), "folder/m.safetensors: metadata shaver.training: ") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

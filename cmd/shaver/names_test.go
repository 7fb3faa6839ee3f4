package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/data/ingest"
	"shaver/internal/onnx/wire/onnxtest"
)

// A column that the import ties to a place in an input keeps its own name on all surfaces. The same columns fit the next day,
// and a model that knows the names.
func TestOwnNames(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	type names = onnxtest.Names
	g := onnxtest.Graph{
		Inputs: []onnxtest.Message{onnxtest.Value("ids", 7, -1, 2)}, Outputs: []onnxtest.Message{onnxtest.Value("y", 1, -1, 1)},
		Initializers: []onnxtest.Message{
			onnxtest.Floats("users", []float32{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2), onnxtest.Floats("items", []float32{1, 2, 3, -4, 5, 6}, 3, 2),
			onnxtest.Ints("zero", []int64{0}), onnxtest.Ints("one", []int64{1}), onnxtest.Ints("axis", []int64{1}, 1),
		},
		Nodes: []onnxtest.Message{
			onnxtest.Node("Gather", names{"ids", "zero"}, names{"user"}, onnxtest.Attribute("axis", 1)), onnxtest.Node("Gather", names{"users", "user"}, names{"u"}),
			onnxtest.Node("Gather", names{"ids", "one"}, names{"item"}, onnxtest.Attribute("axis", 1)), onnxtest.Node("Gather", names{"items", "item"}, names{"i"}),
			onnxtest.Node("Mul", names{"u", "i"}, names{"p"}), onnxtest.Node("ReduceSum", names{"p", "axis"}, names{"l"}), onnxtest.Node("Sigmoid", names{"l"}, names{"y"}),
		},
	}
	log := "click,user_id,item_id\n"
	for i := range 60 {
		log += fmt.Sprintf("%d,u%d,i%d\n", i%2, i%3, i%7%2)
	}
	for name, data := range map[string]string{
		"m.onnx": string(onnxtest.Model(18, g.Message())), "log.csv": log,
		"map.csv": "field,value,id\nuser_id,u0,0\nuser_id,u1,1\nuser_id,u2,2\nitem_id,i0,0\nitem_id,i1,1\n",
	} {
		if err := os.WriteFile(path(name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	imported := func(out, vocabulary, model, seed string) {
		t.Helper()
		command(t, "shaver", "dataset", "import", "csv", "--raw", path("log.csv"), "--label", "click", "--vocabulary", path(vocabulary), "--model", path(model),
			"--columns", "user_id=ids[0],item_id=ids[1]", "--split", "4:1:1", "--seed", seed, "--out", path(out))
	}
	own := func(what, text string) {
		t.Helper()
		if !strings.Contains(text, "user_id") || strings.Contains(text, "ids[") || strings.Contains(text, "User_id") || strings.Contains(text, "Item_id") {
			t.Errorf("%s has other names than user_id and item_id:\n%s", what, text)
		}
	}
	imported("data", "map.csv", "m.onnx", "1")
	run := func(args ...string) string { t.Helper(); return string(command(t, "shaver", args...)) }
	own("dataset inspect", run("dataset", "inspect", path("data")))
	run("score", "--model", path("m.onnx"), "--dataset", path("data"), "--estimator", "antithetic", "--out", path("s.arrow"))
	run("score", "--model", path("m.onnx"), "--dataset", path("data"), "--players", "fields", "--out", path("f.arrow"))
	own("scores inspect", run("scores", "inspect", path("s.arrow")))
	own("scores inspect of fields", run("scores", "inspect", path("f.arrow")))
	run("report", "--model", path("m.onnx"), "--scores", path("s.arrow"), "--dataset", path("data"), "--out", path("report.html"))
	page, err := os.ReadFile(path("report.html"))
	if err != nil {
		t.Fatal(err)
	}
	own("the report", string(page))
	run("model", "convert", path("m.onnx"), path("m.safetensors"), "--dataset", path("data"))
	own("model inspect", run("model", "inspect", path("m.safetensors")))
	imported("next", "data", "m.safetensors", "2")
	run("evaluate", "--model", path("m.safetensors"), "--dataset", path("data")+","+path("next"), "--split", "train")
}

// Two fields of one column, a name that a dataset cannot have, and what the vocabulary or the model knows keep their places.
// Names that are no places are the user's own.
func TestPlacesThatStay(t *testing.T) {
	f := &ingest.Format{Dense: ingest.Dense{Columns: []ingest.DenseColumn{{Name: "price"}}}}
	f.Columns = []ingest.Column{{Name: "a", As: "x[0]"}, {Name: "b", As: "x[1:3]"}, {Name: "a", As: "x[3]"}, {Name: "label", As: "x[4]"}, {Name: "price", As: "x[5]"}, {Name: "c", As: "old[6]"}, {Name: "d", As: "e"}, {Name: "g"}}
	want := []string{"", "", "x[3]", "x[4]", "x[5]", "old[6]", "e", ""}
	for i, c := range ownNames(f, []string{"old[6]"}) {
		if c.As != want[i] {
			t.Errorf("column %s is the field %q, expected %q", c.Name, c.As, want[i])
		}
	}
	k := &model.Known{Names: []string{"x[0]", "x[1]"}}
	if err := checkOrder([]ingest.Column{{Name: "b", As: "x[1]"}, {Name: "a", As: "x[0]"}}, k); err == nil {
		t.Error("places in another order than the model's are accepted")
	}
}

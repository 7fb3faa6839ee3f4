package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/onnx/wire/onnxtest"
)

// An import of encoded rows computes the ids that a graph computes. The logits are those of
// onnxruntime for the same columns, whether the model is the .onnx file or one of our own. A
// row whose id would be outside the table is malformed, and raw values are refused with what
// to do.
func TestComputedFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header string
		lists  bool   // whether the second column is one
		bad    string // row
		want   string // what the error about it says
	}{
		"buckets":   {"label,city,user,item,count", false, "1,2,7,60,5", `the id that follows from the row is 6, expected 0 to 5`},
		"last-item": {"label,user,history", true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := func(name string) string { return filepath.Join(folder, name) }
			export := filepath.Join("..", "..", "testdata", "onnx", name+".legacy.onnx")
			data, err := os.ReadFile(strings.TrimSuffix(export, ".onnx") + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var e struct {
				Raw    map[string][][]int64
				Logits []float64
			}
			if err := json.Unmarshal(data, &e); err != nil {
				t.Fatal(err)
			}
			text := c.header + "\n"
			for r := range e.Logits {
				text += fmt.Sprint(r % 2)
				for _, column := range strings.Split(c.header, ",")[1:] {
					var cell []string
					for _, v := range e.Raw[column][r] {
						cell = append(cell, strconv.FormatInt(v, 10))
					}
					text += "," + strings.Join(cell, "|")
				}
				text += "\n"
			}
			if err := os.WriteFile(path("rows.csv"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			command(t, "shaver", "model", "convert", export, path("own.safetensors"))
			for _, model := range []string{export, path("own.safetensors")} {
				command(t, "shaver", "dataset", "import", "csv", "--train", path("rows.csv"), "--test", path("rows.csv"), "--model", model, "--out", path("of "+filepath.Base(model)))
				command(t, "shaver", "evaluate", "--model", model, "--dataset", path("of "+filepath.Base(model)), "--predictions", path("p.csv"), "--force")
				f, err := os.Open(path("p.csv"))
				if err != nil {
					t.Fatal(err)
				}
				lines, err := csv.NewReader(f).ReadAll()
				f.Close()
				if err != nil {
					t.Fatal(err)
				}
				at := -1
				for i, column := range lines[0] {
					if column == "logit" {
						at = i
					}
				}
				for r, want := range e.Logits {
					got, err := strconv.ParseFloat(lines[1+r][at], 64)
					if err != nil || !(math.Abs(got-want) <= 2e-6) {
						t.Fatalf("row %d has the logit %v (%v), expected %v", r, got, err, want)
					}
				}
			}
			if c.bad == "" {
				return
			}
			if err := os.WriteFile(path("bad.csv"), []byte(c.header+"\n"+c.bad+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if message, code := failure(t, "dataset", "import", "csv", "--train", path("bad.csv"), "--model", export, "--out", path("bad")); code != 42 || !strings.Contains(message, c.want) {
				t.Errorf("exit code %d and %q, expected 42 and %q", code, message, c.want)
			}
			if message, code := failure(t, "dataset", "import", "csv", "--raw", path("rows.csv"), "--model", export, "--out", path("raw")); code == 0 || !strings.Contains(message, "import rows of ids with --train") {
				t.Errorf("exit code %d and %q, expected the remedy", code, message)
			}
		})
	}
}

// A model may compute the ids of all of its fields.
func TestAllFieldsComputed(t *testing.T) {
	t.Parallel()
	g := clickGraph()
	var nodes []onnxtest.Message
	for j, size := range []int64{3, 4, 3} {
		field, count, id := fmt.Sprint("f", j), fmt.Sprint("count", j), fmt.Sprint("id", j)
		g.Initializers = append(g.Initializers, onnxtest.Ints(count, []int64{size}))
		nodes = append(nodes, onnxtest.Node("Mod", onnxtest.Names{field, count}, onnxtest.Names{id}),
			onnxtest.Node("Gather", onnxtest.Names{fmt.Sprint("table", j), id}, onnxtest.Names{fmt.Sprint("row", j)}))
	}
	g.Nodes = append(nodes, g.Nodes[3:]...)
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	for name, data := range map[string]string{
		"model.onnx": string(onnxtest.Model(18, g.Message())),
		"rows.csv":   "label,f0,f1,f2\n0,300,7,5\n1,1,6,1000\n",
		"ids.csv":    "label,f0 % 3,f1 % 4,f2 % 3\n0,0,3,2\n1,1,2,1\n",
		"other.csv":  "label,first,f1,f2\n0,300,7,5\n1,1,6,1000\n",
	} {
		if err := os.WriteFile(path(name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var trains []string
	for _, rows := range []string{"rows.csv", "ids.csv"} {
		command(t, "shaver", "dataset", "import", "csv", "--train", path(rows), "--model", path("model.onnx"), "--out", path("of "+rows))
		data, err := os.ReadFile(filepath.Join(path("of "+rows), "train.arrow"))
		if err != nil {
			t.Fatal(err)
		}
		trains = append(trains, string(data))
	}
	if trains[0] != trains[1] {
		t.Error("the rows differ from those of the ids that the model computes")
	}
	text, _ := emulated(t.Context(), "shaver", "dataset", "import", "csv", "--train", path("other.csv"), "--model", path("model.onnx"), "--out", path("other")).CombinedOutput()
	if !strings.Contains(string(text), `expected the column (NAME=f0 takes it from column NAME), or the ids in a column "f0 % 3" (--dense)`) {
		t.Errorf("%s", text)
	}
	command(t, "shaver", "dataset", "import", "csv", "--train", path("other.csv"), "--dense", "first=f0", "--model", path("model.onnx"), "--out", path("other"))
}

// An import puts the id that a graph reads in the place of an id outside the field, in lists and in models of our own kinds too,
// and computes with all digits of a whole number. The rows are those of the ids that follow.
func TestGuardsAndLargeIDs(t *testing.T) {
	t.Parallel()
	g := clickGraph()
	g.Initializers = append(g.Initializers, onnxtest.Ints("last", []int64{2}), onnxtest.Ints("count", []int64{4}), onnxtest.Ints("zero", []int64{0}))
	clip := onnxtest.Node("Clip", onnxtest.Names{"f0", "zero", "last"}, onnxtest.Names{"id0"})
	row := func(j int, id string) onnxtest.Message {
		return onnxtest.Node("Gather", onnxtest.Names{fmt.Sprint("table", j), id}, onnxtest.Names{fmt.Sprint("row", j)})
	}
	guarded, large := g, g
	guarded.Nodes = append([]onnxtest.Message{clip, row(0, "id0")}, g.Nodes[1:]...)
	large.Nodes = append([]onnxtest.Message{clip, row(0, "id0"), onnxtest.Node("Mod", onnxtest.Names{"f1", "count"}, onnxtest.Names{"id1"}), row(1, "id1")}, g.Nodes[2:]...)
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	for name, data := range map[string]string{
		"guarded.onnx": string(onnxtest.Model(18, guarded.Message())), "large.onnx": string(onnxtest.Model(18, large.Message())),
		"guarded.csv": "label,f0,f1,f2\n0,300,3,1\n1,-5,2,0\n1,1,0,2\n", "guarded.ids.csv": "label,f0,f1,f2\n0,2,3,1\n1,0,2,0\n1,1,0,2\n",
		"large.csv": "label,f0,f2,f1\n0,300,1,9007199254740993\n1,1,2,9223372036854775807\n", "large.ids.csv": "label,f0,f2,f1\n0,2,1,1\n1,1,2,3\n",
	} {
		if err := os.WriteFile(path(name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"guarded", "large"} {
		command(t, "shaver", "model", "convert", path(name+".onnx"), path(name+".safetensors"))
		var trains []string
		for _, c := range [][2]string{{".onnx", ".csv"}, {".safetensors", ".csv"}, {".onnx", ".ids.csv"}} {
			out := path(name + c[0] + c[1] + ".data")
			command(t, "shaver", "dataset", "import", "csv", "--ids", "local", "--train", path(name+c[1]), "--model", path(name+c[0]), "--out", out)
			data, err := os.ReadFile(filepath.Join(out, "train.arrow"))
			if err != nil {
				t.Fatal(err)
			}
			trains = append(trains, string(data))
		}
		if trains[0] != trains[2] || trains[1] != trains[2] {
			t.Errorf("%s: the rows differ from those of the ids that the model reads", name)
		}
	}
}

// An id outside a field that the graph clips is not replaced if the graph also reads the ids as numbers, and the error says so.
func TestGuardOfNumbers(t *testing.T) {
	t.Parallel()
	g := clickGraph()
	g.Initializers = append(g.Initializers, onnxtest.Ints("last", []int64{2}), onnxtest.Ints("zero", []int64{0}))
	names := func(list ...string) onnxtest.Names { return list }
	g.Nodes = append([]onnxtest.Message{onnxtest.Node("Clip", names("f0", "zero", "last"), names("id0")), onnxtest.Node("Gather", names("table0", "id0"), names("found")),
		onnxtest.Node("Cast", names("f0"), names("number"), onnxtest.Attribute("to", 1)),
		onnxtest.Node("Unsqueeze", names("number", "axis"), names("numbers")), onnxtest.Node("Add", names("found", "numbers"), names("row0"))}, g.Nodes[1:]...)
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	for name, text := range map[string]string{"m.onnx": string(onnxtest.Model(18, g.Message())), "good.csv": "label,f0,f1,f2\n1,1,0,2\n0,2,0,1\n", "bad.csv": "label,f0,f1,f2\n1,1,0,2\n0,3,0,1\n"} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(rows string) string {
		text, _ := emulated(t.Context(), "shaver", "dataset", "import", "csv", "--ids", "local", "--train", path(rows), "--model", path("m.onnx"), "--out", path(rows+".data")).CombinedOutput()
		return string(text)
	}
	if text := run("good.csv"); strings.Contains(text, "shaver:") {
		t.Error(text)
	}
	if text := run("bad.csv"); !strings.Contains(text, "bad.csv:3: field 0 (f0): id 3 is outside [0,3): the model also reads the ids of this field as numbers") {
		t.Error(text)
	}
}

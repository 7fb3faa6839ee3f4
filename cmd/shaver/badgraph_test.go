package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"shaver/internal/onnx/wire/onnxtest"
)

// clickGraph returns a click model for the dataset ds: the rows of three tables, joined, and
// a product with the weights. Its output y is a Sigmoid.
func clickGraph() onnxtest.Graph {
	g := onnxtest.Graph{Outputs: []onnxtest.Message{onnxtest.Value("y", 1, -1, 1)}}
	rows := onnxtest.Names{}
	for j, size := range []int64{3, 4, 3} {
		field, table, row := fmt.Sprint("f", j), fmt.Sprint("table", j), fmt.Sprint("row", j)
		g.Inputs = append(g.Inputs, onnxtest.Value(field, 7, -1))
		g.Initializers = append(g.Initializers, onnxtest.Floats(table, make([]float32, 2*size), size, 2))
		g.Nodes = append(g.Nodes, onnxtest.Node("Gather", onnxtest.Names{table, field}, onnxtest.Names{row}))
		rows = append(rows, row)
	}
	g.Initializers = append(g.Initializers, onnxtest.Floats("w", []float32{1, 2, 3, 4, 5, 6}, 6, 1), onnxtest.Ints("axis", []int64{1}, 1))
	g.Nodes = append(g.Nodes, onnxtest.Node("Concat", rows, onnxtest.Names{"h"}, onnxtest.Attribute("axis", 1)),
		onnxtest.Node("MatMul", onnxtest.Names{"h", "w"}, onnxtest.Names{"l"}), onnxtest.Node("Sigmoid", onnxtest.Names{"l"}, onnxtest.Names{"y"}))
	return g
}

// ended returns clickGraph with other operators at its end, which read the logit l or the
// rows h and compute y.
func ended(nodes ...onnxtest.Message) onnxtest.Graph {
	g := clickGraph()
	g.Nodes = append(g.Nodes[:len(g.Nodes)-1], nodes...)
	return g
}

// graphs makes .onnx files.
func (b *badMaker) graphs() {
	type names = onnxtest.Names
	type message = onnxtest.Message
	node := onnxtest.Node
	model := func(name string, g onnxtest.Graph, more ...message) {
		b.write("g/"+name+".onnx", onnxtest.Model(18, g.Message(), more...))
	}
	sigmoid := node("Sigmoid", names{"z"}, names{"y"})
	below := ended(node("Gather", names{"table0", "hist"}, names{"past"}), node("GreaterOrEqual", names{"hist", "zero"}, names{"mask"}),
		node("Cast", names{"mask"}, names{"m"}, onnxtest.Attribute("to", 1)), node("Unsqueeze", names{"m", "last"}, names{"m2"}), node("Mul", names{"past", "m2"}, names{"kept"}),
		node("ReduceSum", names{"kept", "both"}, names{"sum"}, onnxtest.Attribute("keepdims", 0)), node("Reshape", names{"sum", "column"}, names{"s"}), node("Add", names{"l", "s"}, names{"z"}), sigmoid)
	below.Inputs = append(below.Inputs, onnxtest.Value("hist", 7, -1, 3))
	below.Initializers = append(below.Initializers, onnxtest.Ints("zero", []int64{0}), onnxtest.Ints("last", []int64{2}, 1), onnxtest.Ints("both", []int64{1, 2}, 2), onnxtest.Ints("column", []int64{-1, 1}, 2))
	model("below", below)
	above := clickGraph()
	above.Nodes = append([]message{node("Add", names{"f0", "one"}, names{"next"}), node("Gather", names{"table0", "next"}, names{"row0"})}, above.Nodes[1:]...)
	above.Initializers = append(above.Initializers, onnxtest.Ints("one", []int64{1}))
	model("above", above)
	good := onnxtest.Model(18, clickGraph().Message())
	b.write("g/good.onnx", good)
	b.write("g/empty.onnx", nil)
	b.write("g/text.onnx", []byte("This is no model.\n"))
	b.write("g/half.onnx", good[:len(good)/2])
	b.write("g/claim.onnx", binary.AppendUvarint(append(message(nil).Int(1, 8), 7<<3|2), 2<<30))
	b.write("g/opset6.onnx", onnxtest.Model(6, clickGraph().Message()))
	b.write("g/opset30.onnx", onnxtest.Model(30, clickGraph().Message()))

	model("jumps", ended(node("Round", names{"h"}, names{"r"}), node("MatMul", names{"r", "w"}, names{"z"}), sigmoid))
	model("cycle", ended(node("Add", names{"l", "v"}, names{"u"}), node("Neg", names{"u"}, names{"v"}), node("Sigmoid", names{"v"}, names{"y"})))
	model("missing", ended(node("Add", names{"l", "nobody"}, names{"z"}), sigmoid))
	model("twice", ended(node("Neg", names{"l"}, names{"h"}), node("Sigmoid", names{"h"}, names{"y"})))
	model("foreign", ended(node("Det", names{"l"}, names{"z"}), sigmoid))
	model("training", clickGraph(), message(nil).Sub(20, message(nil).Int(1, 1)))
	model("quantised", ended(node("QuantizeLinear", names{"l", "axis"}, names{"q"}), node("DequantizeLinear", names{"q", "axis"}, names{"z"}), sigmoid))
	trees := onnxtest.Domain(node("TreeEnsembleClassifier", names{"x"}, names{"label", "p"}), "ai.onnx.ml")
	model("trees", onnxtest.Graph{Nodes: []message{trees}, Inputs: []message{onnxtest.Value("x", 1, -1, 3)}, Outputs: []message{onnxtest.Value("p", 1, -1, 2)}})
	model("nodes", onnxtest.Graph{Inputs: []message{onnxtest.Value("x", 1, -1, 3)}, Outputs: []message{onnxtest.Value("x", 1, -1, 3)}})

	// Tensors whose sizes or places are wrong.
	tensor := func(name string, t message) {
		g := clickGraph()
		g.Initializers[0] = t
		model(name, g)
	}
	tensor("dims", onnxtest.Floats("table0", []float32{1}, 1<<40, 1<<40))
	tensor("negative", onnxtest.Floats("table0", []float32{1}, -3, 2))
	tensor("short", onnxtest.Floats("table0", []float32{1, 2}, 3, 2))
	tensor("string", onnxtest.Raw("table0", 8, nil, 3, 2))
	tensor("nan", onnxtest.Floats("table0", []float32{0, float32(math.NaN()), 0, 0, 0, 0}, 3, 2))
	place := func(name, location string, more ...string) {
		tensor(name, onnxtest.Outside("table0", 1, append([]string{"location", location}, more...), 3, 2))
	}
	b.write("outside.bin", make([]byte, 24))
	b.write("g/inside.bin", make([]byte, 24))
	b.write("g/folder.bin/file", nil)
	if err := os.Symlink(filepath.Join("..", "outside.bin"), b.path("g/link.bin")); err != nil {
		b.t.Skip(err) // Windows needs a privilege for this
	}
	place("parent", "../outside.bin")
	place("absolute", "/etc/passwd")
	place("link", "link.bin")
	place("nowhere", "nowhere.bin")
	place("folder", "folder.bin")
	place("length", "inside.bin", "length", "-24")
	place("far", "inside.bin", "offset", "9223372036854775807", "length", "24")
	place("long", "inside.bin", "length", "2400")

	// Graphs that are no click model, or one that is not supported.
	model("touch", withConstants(ended(node("ReduceMean", names{"l", "first"}, names{"m"}), node("Sub", names{"l", "m"}, names{"z"}), sigmoid), onnxtest.Ints("first", []int64{0}, 1)))
	model("shared", ended(node("Gather", names{"table1", "f2"}, names{"more"}), node("ReduceSum", names{"more", "axis"}, names{"sum"}), node("Add", names{"l", "sum"}, names{"z"}), sigmoid))
	list := withConstants(ended(node("Gather", names{"table0", "list"}, names{"many"}), node("ReduceSum", names{"many", "axis"}, names{"sum"}, onnxtest.Attribute("keepdims", 0)),
		node("Gather", names{"list", "first"}, names{"one"}, onnxtest.Attribute("axis", 1)), node("Gather", names{"table1", "one"}, names{"other"}),
		node("ReduceSum", names{"other", "axis"}, names{"others"}, onnxtest.Attribute("keepdims", 0)), node("Add", names{"sum", "others"}, names{"both"}),
		node("ReduceSum", names{"both", "axis"}, names{"total"}), node("Add", names{"l", "total"}, names{"z"}), sigmoid), onnxtest.Ints("first", []int64{0}, 1))
	list.Inputs = append(list.Inputs, onnxtest.Value("list", 7, -1, 5))
	model("list", list)
	list.Inputs[3] = onnxtest.Value("list", 7, -1, -1)
	model("sequence", list)
	strange := clickGraph()
	strange.Inputs[1] = onnxtest.Value("f1", 8, -1)
	model("strings", strange)
	model("tanh", ended(node("Tanh", names{"l"}, names{"y"})))
	several := clickGraph()
	several.Outputs = append(several.Outputs, onnxtest.Value("l", 1, -1, 1))
	model("several", several)
	dense := ended(node("Add", names{"l", "price"}, names{"z"}), sigmoid)
	dense.Inputs = append(dense.Inputs, onnxtest.Value("price", 1, -1, 1))
	model("dense", dense)

	// Bombs.
	model("ones", withConstants(ended(node("ConstantOfShape", names{"size"}, names{"ones"}), node("ReduceSum", names{"ones"}, names{"sum"}), node("Add", names{"l", "sum"}, names{"z"}), sigmoid), onnxtest.Ints("size", []int64{1 << 15, 1 << 15}, 2)))
	body := onnxtest.Graph{
		Nodes:  []message{node("Identity", names{"more"}, names{"more2"}), node("Exp", names{"v"}, names{"e"}), node("Neg", names{"e"}, names{"v2"})},
		Inputs: []message{onnxtest.Value("i", 7), onnxtest.Value("more", 9), onnxtest.Value("v", 1)}, Outputs: []message{onnxtest.Value("more2", 9), onnxtest.Value("v2", 1)}}
	model("loop", withConstants(ended(node("Loop", names{"turns", "yes", "l"}, names{"z"}, onnxtest.Attribute("body", body)), sigmoid), onnxtest.Ints("turns", []int64{1 << 40}), onnxtest.Raw("yes", 9, []byte{1})))
	model("square", withConstants(ended(node("MatMul", names{"l", "wide"}, names{"a"}), node("Transpose", names{"a"}, names{"t"}), node("MatMul", names{"t", "a"}, names{"c"}), node("MatMul", names{"c", "c"}, names{"d"}), node("ReduceMax", names{"d"}, names{"z"}), sigmoid), onnxtest.Floats("wide", make([]float32, 2000), 1, 2000)))
	nested := onnxtest.Graph{}
	for range 50 {
		nested = onnxtest.Graph{Nodes: []message{node("If", nil, nil, onnxtest.Attribute("then_branch", nested))}}
	}
	model("nested", nested)
	var calls []message
	for i := range 40 {
		call := func(in, out string) message {
			return onnxtest.Domain(node(fmt.Sprint("f", i+1), names{in}, names{out}), "l")
		}
		calls = append(calls, onnxtest.Function("l", fmt.Sprint("f", i), names{"a"}, names{"c"}, call("a", "b"), call("b", "c")))
	}
	model("functions", ended(onnxtest.Domain(node("f0", names{"l"}, names{"z"}), "l"), sigmoid), calls...)
	model("longname", ended(node(strings.Repeat("n", 1<<16), names{"l"}, names{"z"}), sigmoid))

	// Heads in safetensors files.
	b.shaver("model", "convert", "--dense", "g/good.onnx", "g/good.safetensors")
	b.shaver("score", "--model", "g/good.onnx", "--dataset", "ds", "--splits", "train", "--out", "g/s.arrow")
	b.shaver("prune", "--model", "g/good.onnx", "--scores", "g/s.arrow", "--sparsity", "0.5", "--out", "g/pruned.safetensors")
	head := b.read("g/good.safetensors")
	for name, edit := range map[string][2]string{
		"json": {`{\"head\":`, `[\"head\":`}, "operator": {`MatMul`, `MatMux`}, "input": {`\"look_ups\":[0`, `\"look_ups\":[7`},
		"again": {`\"look_ups\":[0,1`, `\"look_ups\":[1,1`}, "kind": {`\"kind\":\"graph\"`, `\"kind\":\"deepf\"`},
		"weight": {`"head.w"`, `"head.v"`}, "sizes": {`\"field_dims\":[3,4,3]`, `\"field_dims\":[3,4,9]`},
	} {
		b.write("g/"+name+".safetensors", b.replaced(head, edit[0], edit[1]))
	}

	model("readtoo", ended(node("Sigmoid", names{"l"}, names{"y"}), node("Neg", names{"y"}, names{"other"})))
	b.write("g/s-cut.arrow", b.read("g/s.arrow")[:900])

	// Dense inputs in datasets.
	b.write("price.csv", []byte("label,price,f0\n0,1.5,1\n1,2,2\n0,4,0\n1,1,1\n"))
	b.shaver("dataset", "import", "csv", "--raw", "price.csv", "--dense", "price:zscore", "--split", "2:1:1", "--out", "dn")
	for name, edit := range map[string][2]string{
		"version": {`shaver.dataset/2`, `shaver.dataset/1`}, "rule": {`"zscore"`, `"sqrt"`}, "deviation": {`"deviation": `, `"deviation": -`},
		"name": {`"name": "price"`, `"name": "f0"`}, "mean": {`"mean": `, `"mean": 1e999, "x": `},
	} {
		b.dataset("dn", "dn-"+name, edit[0], edit[1])
	}

	// What lies next to a checkpoint.
	fuxi := b.read("fuxi.model")
	for name, text := range map[string][]byte{"deep": bytes.Repeat([]byte("["), 100_000), "large": bytes.Repeat([]byte(" "), 2<<20), "type": []byte(`{"field_dims": "3,4,3"}`)} {
		b.write("side/"+name+".model", fuxi)
		b.write("side/"+name+".json", text)
	}
	for name, text := range map[string]string{"deep": strings.Repeat(`{"features":[`, 10_000), "list": `[]`, "features": `{"features": {"user": 1}}`} {
		b.write("fuxi-"+name+"/m.model", fuxi)
		b.write("fuxi-"+name+"/m.json", []byte(`{"activation": "relu"}`))
		b.write("fuxi-"+name+"/feature_map.json", []byte(text))
	}
}

// withConstants returns g with more initialisers.
func withConstants(g onnxtest.Graph, more ...onnxtest.Message) onnxtest.Graph {
	g.Initializers = append(g.Initializers, more...)
	return g
}

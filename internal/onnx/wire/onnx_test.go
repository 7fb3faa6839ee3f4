package wire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/wire"
	"shaver/internal/onnx/wire/onnxtest"
)

type names = onnxtest.Names

func read(data []byte) (*wire.Model, error) {
	return wire.Read("m.onnx", bytes.NewReader(data), int64(len(data)))
}

// small is a model with all kinds of parts: a function, an If, and tensors in every form.
func small() []byte {
	g := onnxtest.Graph{
		Inputs:  []onnxtest.Message{onnxtest.Value("x", 1, -1, 2), onnxtest.Value("w", 1, 2, 2)},
		Outputs: []onnxtest.Message{onnxtest.Value("y", 1, -1, 2)},
		Initializers: []onnxtest.Message{
			onnxtest.Floats("w", []float32{1, 2, 3, 4}, 2, 2),
			onnxtest.Raw("yes", 9, []byte{1}),
		},
		Nodes: []onnxtest.Message{
			onnxtest.Node("MatMul", names{"x", "w"}, names{"h"}),
			onnxtest.Domain(onnxtest.Node("Twice", names{"h"}, names{"t"}, onnxtest.Attribute("scale", float32(3))), "local"),
			onnxtest.Node("If", names{"yes"}, names{"y"},
				onnxtest.Attribute("then_branch", onnxtest.Graph{
					Nodes: []onnxtest.Message{onnxtest.Node("Relu", names{"t"}, names{"r"})}, Outputs: []onnxtest.Message{onnxtest.Value("r", 1)}}),
				onnxtest.Attribute("else_branch", onnxtest.Graph{
					Nodes: []onnxtest.Message{onnxtest.Node("Neg", names{"t"}, names{"m"})}, Outputs: []onnxtest.Message{onnxtest.Value("m", 1)}})),
		},
	}
	scale := onnxtest.Message(nil).Text(1, "alpha").Text(21, "scale").Int(20, 1)
	return onnxtest.Model(18, g.Message(), onnxtest.Function("local", "Twice", names{"a"}, names{"c"},
		onnxtest.Node("Add", names{"a", "a"}, names{"b"}),
		onnxtest.Node("Elu", names{"b"}, names{"c"}, scale)))
}

// Read returns the parts of a model. Initialisers are not inputs, and functions are
// inlined.
func TestRead(t *testing.T) {
	m, err := read(small())
	if err != nil {
		t.Fatal(err)
	}
	if m.IR != 8 || m.Opset != 18 || m.Producer != "onnxtest" {
		t.Errorf("format %d, operator set %d, producer %q", m.IR, m.Opset, m.Producer)
	}
	g := m.Graph
	want := []wire.Value{{Name: "x", Type: wire.Float, Known: true, Dims: []wire.Dim{{Size: -1, Name: "batch"}, {Size: 2}}}}
	if !reflect.DeepEqual(g.Inputs, want) {
		t.Errorf("inputs %+v, expected %+v", g.Inputs, want)
	}
	var ops []string
	for _, n := range g.Nodes {
		ops = append(ops, n.Op)
	}
	if !slices.Equal(ops, []string{"MatMul", "Add", "Elu", "If"}) {
		t.Fatalf("operators %v", ops)
	}
	add, elu := g.Nodes[1], g.Nodes[2]
	if !slices.Equal(add.Inputs, names{"h", "h"}) || !slices.Equal(elu.Outputs, names{"t"}) || add.Outputs[0] != elu.Inputs[0] {
		t.Errorf("the function became %+v and %+v", add, elu)
	}
	if a := elu.Attributes["alpha"]; a == nil || a.Float != 3 {
		t.Errorf("attribute alpha is %+v, expected the caller's 3", a)
	}
	w, err := g.Initializers[0].Floats()
	if err != nil || !slices.Equal(w, []float32{1, 2, 3, 4}) {
		t.Errorf("w is %v, %v", w, err)
	}
	row := make([]float32, 2)
	if err := g.Initializers[0].ReadFloats(row, 2); err != nil || !slices.Equal(row, []float32{3, 4}) {
		t.Errorf("row 1 of w is %v, %v", row, err)
	}
}

// packed returns a field with packed varints.
func packed(number protowire.Number, values ...uint64) onnxtest.Message {
	var data []byte
	for _, v := range values {
		data = binary.AppendUvarint(data, v)
	}
	return onnxtest.Message(nil).Text(number, string(data))
}

// Elements are read from every field and type in which ONNX stores them.
func TestTensors(t *testing.T) {
	minus := func(n int64) uint64 { return uint64(n) }
	le := func(values ...any) string {
		var b bytes.Buffer
		for _, v := range values {
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	for _, c := range []struct {
		name string
		kind int64
		data onnxtest.Message
		want any
	}{
		{"raw float32", 1, onnxtest.Message(nil).Text(9, le(float32(1.5), float32(-2))), []float32{1.5, -2}},
		{"float_data", 1, onnxtest.Message(nil).Text(4, le(float32(1.5), float32(-2))), []float32{1.5, -2}},
		{"raw float64", 11, onnxtest.Message(nil).Text(9, le(1.5, -2.0)), []float32{1.5, -2}},
		{"double_data", 11, onnxtest.Message(nil).Text(10, le(1.5, -2.0)), []float32{1.5, -2}},
		{"raw float16", 10, onnxtest.Message(nil).Text(9, le(uint16(0x3e00), uint16(0xc000))), []float32{1.5, -2}},
		{"float16 in int32_data", 10, packed(5, 0x0001, 0x7c00), []float32{5.9604645e-08, float32(math.Inf(1))}},
		{"raw bfloat16", 16, onnxtest.Message(nil).Text(9, le(uint16(0x3fc0), uint16(0xc000))), []float32{1.5, -2}},
		{"bfloat16 in int32_data", 16, packed(5, 0x3fc0, 0xc000), []float32{1.5, -2}},
		{"raw int64", 7, onnxtest.Message(nil).Text(9, le(int64(5), int64(-7))), []int64{5, -7}},
		{"int64_data", 7, packed(7, 5, minus(-7)), []int64{5, -7}},
		{"raw int32", 6, onnxtest.Message(nil).Text(9, le(int32(5), int32(-7))), []int64{5, -7}},
		{"int32_data", 6, packed(5, 5, minus(-7)), []int64{5, -7}},
		{"raw int8", 3, onnxtest.Message(nil).Text(9, le(int8(5), int8(-7))), []int64{5, -7}},
		{"raw uint8", 2, onnxtest.Message(nil).Text(9, le(uint8(5), uint8(249))), []int64{5, 249}},
		{"raw int16", 5, onnxtest.Message(nil).Text(9, le(int16(5), int16(-7))), []int64{5, -7}},
		{"uint64_data", 13, packed(11, 5, 1<<40), []int64{5, 1 << 40}},
		{"raw bool", 9, onnxtest.Message(nil).Text(9, "\x01\x00"), []bool{true, false}},
		{"bool in int32_data", 9, packed(5, 0, 1), []bool{false, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tensor := append(onnxtest.Message(nil).Int(1, 2).Int(2, c.kind).Text(8, "v"), c.data...)
			m, err := read(onnxtest.Model(18, onnxtest.Graph{Initializers: []onnxtest.Message{tensor}}.Message()))
			if err != nil {
				t.Fatal(err)
			}
			v := m.Graph.Initializers[0]
			var got any
			switch c.want.(type) {
			case []float32:
				got, err = v.Floats()
			case []int64:
				got, err = v.Ints()
			case []bool:
				got, err = v.Bools()
			}
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("elements %v, %v, expected %v", got, err, c.want)
			}
		})
	}
}

// A number of varints that does not fit the shape is refused when the elements are read.
func TestVarintCount(t *testing.T) {
	for _, data := range []onnxtest.Message{packed(7, 1<<40), packed(7, 1, 2, 3)} {
		tensor := append(onnxtest.Message(nil).Int(1, 2).Int(2, 7).Text(8, "v"), data...)
		m, err := read(onnxtest.Model(18, onnxtest.Graph{Initializers: []onnxtest.Message{tensor}}.Message()))
		if err != nil {
			t.Fatal(err)
		}
		if v, err := m.Graph.Initializers[0].Ints(); err == nil || !fault.IsInput(err) {
			t.Errorf("elements %v, %v, expected an error", v, err)
		}
	}
}

// Varints that cross the chunks of a file are read whole.
func TestManyVarints(t *testing.T) {
	var values []uint64
	for i := range 100000 {
		values = append(values, uint64(i)<<(i%40))
	}
	tensor := append(onnxtest.Message(nil).Int(1, int64(len(values))).Int(2, 7).Text(8, "v"), packed(7, values...)...)
	m, err := read(onnxtest.Model(18, onnxtest.Graph{Initializers: []onnxtest.Message{tensor}}.Message()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Graph.Initializers[0].Ints()
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if got[i] != int64(v) {
			t.Fatalf("element %d is %d, expected %d", i, got[i], v)
		}
	}
}

// hostile returns files that must be refused, each with a part of the error.
func hostile() map[string]struct {
	data []byte
	want string
} {
	type file = struct {
		data []byte
		want string
	}
	model := func(g onnxtest.Graph, more ...onnxtest.Message) []byte {
		return onnxtest.Model(18, g.Message(), more...)
	}
	nodes := func(list ...onnxtest.Message) []byte { return model(onnxtest.Graph{Nodes: list}) }
	tensor := func(t onnxtest.Message) []byte {
		return model(onnxtest.Graph{Initializers: []onnxtest.Message{t}})
	}
	nested := onnxtest.Graph{}
	for range 50 {
		nested = onnxtest.Graph{Nodes: []onnxtest.Message{onnxtest.Node("If", nil, nil, onnxtest.Attribute("then_branch", nested))}}
	}
	var expanding []onnxtest.Message
	for i := range 40 {
		call := onnxtest.Domain(onnxtest.Node(fmt.Sprint("f", i+1), names{"a"}, names{"b"}), "l")
		second := onnxtest.Domain(onnxtest.Node(fmt.Sprint("f", i+1), names{"b"}, names{"c"}), "l")
		expanding = append(expanding, onnxtest.Function("l", fmt.Sprint("f", i), names{"a"}, names{"c"}, call, second))
	}
	wide := []onnxtest.Message{onnxtest.Function("l", "f0", names{"a"}, names{"b"}, onnxtest.Node("Neg", names{"a"}, names{"b"}))}
	for i := range 12 {
		var calls []onnxtest.Message
		for k := range 10 {
			calls = append(calls, onnxtest.Domain(onnxtest.Node(fmt.Sprint("f", i), names{fmt.Sprint("v", k)}, names{fmt.Sprint("v", k+1)}), "l"))
		}
		wide = append(wide, onnxtest.Function("l", fmt.Sprint("f", i+1), names{"v0"}, names{"v10"}, calls...))
	}
	x := []onnxtest.Message{onnxtest.Value("x", 1, 1)}
	return map[string]file{
		"empty":                 {nil, "lacks a graph"},
		"text":                  {[]byte("This is not a model."), ""},
		"no format":             {onnxtest.Message(nil).Sub(7, nil), "version of the format"},
		"two graphs":            {append(nodes(), onnxtest.Message(nil).Sub(7, nil)...), "two graphs"},
		"old operator set":      {onnxtest.Model(6, nil), "version 6"},
		"new operator set":      {onnxtest.Model(99, nil), "version 99"},
		"training":              {append(nodes(), onnxtest.Message(nil).Sub(20, nil)...), "training"},
		"sparse":                {onnxtest.Model(18, onnxtest.Message(nil).Sub(15, nil)), "sparse"},
		"quantisation":          {onnxtest.Model(18, onnxtest.Message(nil).Sub(14, nil)), "quantised"},
		"sparse attribute":      {nodes(onnxtest.Node("Constant", nil, names{"y"}, onnxtest.Message(nil).Text(1, "sparse_value").Sub(22, nil))), "node n_y (Constant): attribute sparse_value: it is a sparse tensor"},
		"quantised operator":    {nodes(onnxtest.Node("QuantizeLinear", nil, names{"q"})), "node n_q: operator QuantizeLinear belongs to a quantised model"},
		"trees":                 {nodes(onnxtest.Domain(onnxtest.Node("TreeEnsembleClassifier", nil, names{"y"}), "ai.onnx.ml")), "node n_y: operator TreeEnsembleClassifier of domain ai.onnx.ml"},
		"cycle":                 {nodes(onnxtest.Node("Neg", names{"b"}, names{"a"}), onnxtest.Node("Neg", names{"a"}, names{"b"})), "a cycle: each of the nodes n_a, n_b reads what another one of them computes"},
		"own output":            {nodes(onnxtest.Node("Neg", names{"a"}, names{"a"})), "a cycle: each of the nodes n_"},
		"missing output":        {model(onnxtest.Graph{Outputs: []onnxtest.Message{onnxtest.Value("y", 1)}}), "output y"},
		"same output twice":     {model(onnxtest.Graph{Inputs: x, Nodes: []onnxtest.Message{onnxtest.Node("Neg", names{"x"}, names{"a", "a"})}}), "in use"},
		"output is an input":    {model(onnxtest.Graph{Inputs: x, Nodes: []onnxtest.Message{onnxtest.Node("Neg", names{"x"}, names{"x"})}}), "in use"},
		"same initialiser":      {model(onnxtest.Graph{Initializers: []onnxtest.Message{onnxtest.Floats("a", nil, 0), onnxtest.Floats("a", nil, 0)}}), "in use"},
		"same attribute":        {nodes(onnxtest.Node("Neg", nil, nil, onnxtest.Attribute("a", 1), onnxtest.Attribute("a", 1))), "occurs twice"},
		"attribute's type":      {nodes(onnxtest.Node("Neg", nil, nil, onnxtest.Message(nil).Text(1, "a").Int(3, 1).Int(20, 1))), "attribute a"},
		"huge dims":             {tensor(onnxtest.Floats("t", nil, 1<<40, 1<<40)), "tensor t"},
		"overflowing dims":      {tensor(onnxtest.Floats("t", nil, 1<<32, 1<<32, 1<<32)), "tensor t"},
		"negative dims":         {tensor(onnxtest.Floats("t", []float32{1}, -1)), "tensor t"},
		"claims too much":       {tensor(onnxtest.Floats("t", []float32{1}, 1<<20)), "tensor t of type float32 has the shape [1048576], but 4 bytes"},
		"claims too little":     {tensor(onnxtest.Floats("t", []float32{1, 2, 3}, 2)), "12 bytes"},
		"nothing":               {tensor(onnxtest.Floats("t", nil, 2)), "0 bytes"},
		"many axes":             {tensor(onnxtest.Floats("t", nil, make([]int64, 20)...)), "axes"},
		"two payloads":          {tensor(append(onnxtest.Floats("t", []float32{1}, 1), onnxtest.Message(nil).Text(4, "abcd")...)), "several pieces"},
		"wrong payload":         {tensor(append(onnxtest.Message(nil).Int(2, 1).Text(8, "t"), packed(7, 1)...)), "another type"},
		"segments":              {tensor(onnxtest.Floats("t", nil, 0).Sub(3, nil)), "segments"},
		"external in memory":    {tensor(onnxtest.Outside("t", 1, []string{"location", "w"}, 1)), "one file"},
		"nested graphs":         {onnxtest.Model(18, nested.Message()), "nested"},
		"functions that expand": {model(onnxtest.Graph{Inputs: x, Nodes: []onnxtest.Message{onnxtest.Domain(onnxtest.Node("f0", names{"x"}, names{"y"}), "l")}}, expanding...), "deep"},
		"functions that expand wide": {model(onnxtest.Graph{Inputs: x, Nodes: []onnxtest.Message{
			onnxtest.Domain(onnxtest.Node("f12", names{"x"}, names{"y"}), "l")}}, wide...), "MiB of memory"},
		"recursive function": {model(onnxtest.Graph{Inputs: x, Nodes: []onnxtest.Message{onnxtest.Domain(onnxtest.Node("f", names{"x"}, names{"y"}), "l")}},
			onnxtest.Function("l", "f", names{"a"}, names{"b"}, onnxtest.Domain(onnxtest.Node("f", names{"a"}, names{"b"}), "l"))), "deep"},
		"function twice":  {model(onnxtest.Graph{}, onnxtest.Function("l", "f", nil, nil), onnxtest.Function("l", "f", nil, nil)), "defined twice"},
		"long name":       {nodes(onnxtest.Node(strings.Repeat("N", 1<<13), nil, nil)), "a string has 8192 bytes"},
		"not UTF-8":       {nodes(onnxtest.Node("\xff", nil, nil)), "UTF-8"},
		"group":           {[]byte{0x3b, 0x3c}, "wire type"},
		"negative length": {[]byte{0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, "claims"},
		"huge length":     {[]byte{0x3a, 0xff, 0xff, 0xff, 0xff, 0x7f}, "claims"},
		"many nodes":      {onnxtest.Model(18, bytes.Repeat([]byte{0x0a, 0}, 1<<20)), "MiB of memory"},
		"many tensors":    {onnxtest.Model(18, bytes.Repeat([]byte{0x2a, 0}, 1<<21)), ""},
		"many strings":    {nodes(onnxtest.Node("Neg", nil, nil, onnxtest.Message(bytes.Repeat([]byte{0x4a, 0}, 1<<22)))), "MiB of memory"},
		"many inputs":     {nodes(onnxtest.Message(bytes.Repeat([]byte{0x0a, 0}, 1<<22))), "MiB of memory"},
		"many numbers":    {nodes(onnxtest.Node("Neg", nil, nil, onnxtest.Message(nil).Text(8, string(make([]byte, 1<<23))))), "MiB of memory"},
	}
}

// Hostile files are refused with one line that says what is wrong, within bounded memory.
func TestHostile(t *testing.T) {
	for name, c := range hostile() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m, err := read(c.data)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatalf("no error, but the model %+v", m)
			}
			if !fault.IsInput(err) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 2000 || !strings.HasPrefix(err.Error(), "m.onnx: ") {
				t.Errorf("error %q, expected one line of bad input that names the file", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, expected %q", err, c.want)
			}
			// The description may take 64 MiB; growing slices are allocated several times.
			if took := after.TotalAlloc - before.TotalAlloc; took > 1<<28 {
				t.Errorf("%d MiB were allocated for a file of %d bytes", took>>20, len(c.data))
			}
		})
	}
}

// A file that is cut after any byte is refused or gives a whole model. A file in which any
// byte has changed does not crash Read.
func TestTruncated(t *testing.T) {
	data := small()
	for n := range data {
		if m, err := read(data[:n]); err == nil {
			if len(m.Graph.Nodes) < 3 {
				t.Errorf("%d of %d bytes give the nodes %+v", n, len(data), m.Graph.Nodes)
			}
		} else if !fault.IsInput(err) {
			t.Errorf("%d of %d bytes: %v is not bad input", n, len(data), err)
		}
	}
	for i := range data {
		changed := slices.Clone(data)
		changed[i] ^= 0x55
		if _, err := read(changed); err != nil && !fault.IsInput(err) {
			t.Errorf("byte %d changed: %v is not bad input", i, err)
		}
	}
}

// outsideModel writes a model whose table is in another file.
func outsideModel(t *testing.T, folder string, settings []string, dims ...int64) string {
	t.Helper()
	g := onnxtest.Graph{Initializers: []onnxtest.Message{onnxtest.Outside("t", 1, settings, dims...)}}
	path := filepath.Join(folder, "m.onnx")
	if err := os.WriteFile(path, onnxtest.Model(18, g.Message()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Tensors in other files are read from the model's folder only, and only within the file.
func TestExternalData(t *testing.T) {
	parent := t.TempDir()
	folder := filepath.Join(parent, "model")
	if err := os.MkdirAll(filepath.Join(folder, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 16)
	for i := range 4 {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(i)))
	}
	for _, path := range []string{"model/w.data", "model/sub/w.data", "secret", "model/..data"} {
		if err := os.WriteFile(filepath.Join(parent, path), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	links := os.Symlink("../secret", filepath.Join(folder, "out")) == nil &&
		os.Symlink("..", filepath.Join(folder, "up")) == nil && os.Symlink("sub/w.data", filepath.Join(folder, "in")) == nil
	secret, err := filepath.Abs(filepath.Join(parent, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		settings []string
		dims     []int64
		want     string // part of the error; "" = none
		link     bool
	}{
		{[]string{"location", "w.data", "offset", "4", "length", "8"}, []int64{2}, "", false},
		{[]string{"location", "w.data", "offset", "4"}, []int64{2}, "", false},
		{[]string{"location", "sub/w.data", "offset", "4", "length", "8", "checksum", "x"}, []int64{2}, "", false},
		{[]string{"location", "..data", "offset", "4", "length", "8"}, []int64{2}, "", false},
		{[]string{"location", "in", "offset", "4", "length", "8"}, []int64{2}, "", true},
		{[]string{"location", "out", "offset", "4", "length", "8"}, []int64{2}, "expected a file in the folder", true},
		{[]string{"location", "up/secret", "offset", "4", "length", "8"}, []int64{2}, "expected a file in the folder", true},
		{[]string{"location", "../secret", "length", "16"}, []int64{4}, "expected a file in the folder", false},
		{[]string{"location", "sub/../../secret", "length", "16"}, []int64{4}, "expected a file in the folder", false},
		{[]string{"location", "sub/../w.data", "length", "16"}, []int64{4}, "expected a file in the folder", false},
		{[]string{"location", `..\secret`, "length", "16"}, []int64{4}, "expected a file in the folder", false},
		{[]string{"location", secret, "length", "16"}, []int64{4}, "expected a file in the folder", false},
		{[]string{"location", "", "length", "16"}, []int64{4}, "expected a file in the folder", false},
		{[]string{"location", ".", "length", "16"}, []int64{4}, "not a regular file", false},
		{[]string{"location", "sub", "length", "16"}, []int64{4}, "not a regular file", false},
		{[]string{"location", "missing", "length", "16"}, []int64{4}, "expected a file in the folder", false},
		{[]string{"location", "w.data", "offset", "-4", "length", "8"}, []int64{2}, "offset", false},
		{[]string{"location", "w.data", "offset", "4", "length", "-8"}, []int64{2}, "length", false},
		{[]string{"location", "w.data", "offset", "12", "length", "8"}, []int64{2}, "has 16 bytes", false},
		{[]string{"location", "w.data", "offset", "9223372036854775807", "length", "8"}, []int64{2}, "has 16 bytes", false},
		{[]string{"location", "w.data", "offset", "4", "length", "9223372036854775807"}, []int64{2}, "has 16 bytes", false},
		{[]string{"location", "w.data", "offset", "1e3", "length", "8"}, []int64{2}, "offset", false},
		{[]string{"location", "w.data"}, []int64{1 << 20, 1 << 20}, "has 16 bytes", false},
		{[]string{"location", "w.data", "length", "8"}, []int64{3}, "8 bytes", false},
	} {
		if c.link && !links {
			continue // Windows lets only administrators make links
		}
		m, err := wire.Open(outsideModel(t, folder, c.settings, c.dims...))
		if c.want != "" {
			if err == nil || !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: error %v, expected %q", c.settings, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", c.settings, err)
			continue
		}
		if got, err := m.Graph.Initializers[0].Floats(); err != nil || !slices.Equal(got, []float32{1, 2}) {
			t.Errorf("%v: elements %v, %v", c.settings, got, err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A path that is not a regular file is refused.
func TestNotRegular(t *testing.T) {
	if _, err := wire.Open(t.TempDir()); err == nil || !fault.IsInput(err) {
		t.Errorf("a folder gives the error %v", err)
	}
	if _, err := wire.Open(filepath.Join(t.TempDir(), "missing.onnx")); err == nil || fault.IsInput(err) {
		t.Errorf("a missing file gives the error %v", err)
	}
}

// hole is a file with a head and zeros after it, such as a sparse file.
type hole struct {
	head []byte
	size int64
}

func (h *hole) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	if at < int64(len(h.head)) {
		copy(b, h.head[at:])
	}
	return int(min(int64(len(b)), h.size-at)), nil
}

// A table of 8 GiB in the file takes no memory, and its last row is read in place.
func TestLargeTable(t *testing.T) {
	const rows, dim = 1 << 27, 16
	const bytes = rows * dim * 4
	table := onnxtest.Message(nil).Int(1, rows).Int(1, dim).Int(2, 1).Text(8, "t")
	table = append(table, 0x4a)
	table = binary.AppendUvarint(table, bytes)
	g := append(onnxtest.Message{0x2a}, binary.AppendUvarint(nil, uint64(len(table))+bytes)...)
	g = append(g, table...)
	head := onnxtest.Message(nil).Int(1, 8).Sub(8, onnxtest.Message(nil).Int(2, 18))
	head = append(head, 0x3a)
	head = binary.AppendUvarint(head, uint64(len(g))+bytes)
	head = append(head, g...)
	f := &hole{head, int64(len(head)) + bytes}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := wire.Read("large.onnx", f, f.size)
	if err != nil {
		t.Fatal(err)
	}
	row := []float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	if err := m.Graph.Initializers[0].ReadFloats(row, (rows-1)*dim); err != nil || slices.Max(row) != 0 {
		t.Errorf("the last row is %v, %v", row, err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("%d bytes were allocated for a table that stays in the file", took)
	}
}

// The memory of a model with many nodes is at most eight times the size of its file.
func TestMemory(t *testing.T) {
	var nodes []onnxtest.Message
	last := "x"
	for i := range 20000 {
		next := fmt.Sprint("value_with_a_name_of_usual_length_", i)
		nodes = append(nodes, onnxtest.Node("Add", names{last, "x"}, names{next}))
		last = next
	}
	data := onnxtest.Model(18, onnxtest.Graph{Inputs: []onnxtest.Message{onnxtest.Value("x", 1, 1)}, Nodes: nodes}.Message())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	m, err := read(data)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > int64(8*len(data)) {
		t.Errorf("the model takes %d bytes, and the file has %d", took, len(data))
	}
	runtime.KeepAlive(m)
}

// Any bytes, and every tensor in them, are read or refused as bad input.
func FuzzOpen(f *testing.F) {
	f.Add(small())
	for _, file := range []string{"fuxictr-deepfm.nbits", "deepctr-torch-din.2-bit", "deepctr-torch-din.axis"} {
		data, err := os.ReadFile("../../../testdata/onnx/quantised/" + file + ".onnx")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, c := range hostile() {
		if len(c.data) < 1<<12 {
			f.Add(c.data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := read(data)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("%v is not bad input", err)
			}
			return
		}
		for _, v := range m.Graph.Initializers {
			var err error
			switch {
			case v.Type.Floating():
				_, err = v.Floats()
			case v.Type == wire.Bool:
				_, err = v.Bools()
			default:
				_, err = v.Ints()
			}
			if err != nil && !fault.IsInput(err) {
				t.Fatalf("%v is not bad input", err)
			}
		}
	})
}

// Nodes are sorted, also those of functions and those that bodies read. Others keep their order.
func TestUnsorted(t *testing.T) {
	body := func(in, out string) onnxtest.Graph {
		return onnxtest.Graph{Nodes: []onnxtest.Message{onnxtest.Node("Neg", names{in}, names{out})}, Outputs: []onnxtest.Message{onnxtest.Value(out, 1)}}
	}
	m, err := read(onnxtest.Model(25, onnxtest.Graph{
		Inputs: []onnxtest.Message{onnxtest.Value("x", 1, -1)}, Outputs: []onnxtest.Message{onnxtest.Value("y", 1, -1)}, Initializers: []onnxtest.Message{onnxtest.Raw("yes", 9, []byte{1})},
		Nodes: []onnxtest.Message{
			onnxtest.Node("If", names{"yes"}, names{"y"}, onnxtest.Attribute("then_branch", body("b", "t")), onnxtest.Attribute("else_branch", body("a", "e"))),
			onnxtest.Node("Abs", names{"a"}, names{"b"}), onnxtest.Node("Relu", names{"x"}, names{"a"}),
		},
	}.Message()))
	if err != nil {
		t.Fatal(err)
	}
	var ops []string
	for _, n := range m.Graph.Nodes {
		ops = append(ops, n.Op)
	}
	if want := []string{"Relu", "Abs", "If"}; !slices.Equal(ops, want) {
		t.Errorf("nodes %v, expected %v", ops, want)
	}
}

package wire_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/wire"
	"shaver/internal/onnx/wire/onnxtest"
)

const (
	uint8Type, int8Type, float16Type = 2, 3, 10
	int4Type, int2Type               = 22, 26
)

// pack returns numbers of some bits, several to a byte, the first one in the lowest bits. Each row begins a byte.
func pack(numbers []int, bits, row int) []byte {
	var out []byte
	for i, n := range numbers {
		at := i % row * bits
		if at%8 == 0 {
			out = append(out, 0)
		}
		out[len(out)-1] |= byte(n&(1<<bits-1)) << (at % 8)
	}
	return out
}

// quarters returns scales that are whole numbers of quarters, which float16 holds, and the numbers.
func quarters(random *rand.Rand, n int) (raw []byte, scales []float32) {
	half := []uint16{0x3400, 0x3800, 0x3a00, 0x3c00} // .25 .5 .75 1
	for range n {
		k := random.IntN(4)
		raw, scales = binary.LittleEndian.AppendUint16(raw, half[k]), append(scales, .25*float32(k+1))
	}
	return raw, scales
}

func random(r *rand.Rand, n, from, to int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = from + r.IntN(to-from)
	}
	return out
}

// nearHalf returns the number of 11 significant bits that is nearest to x.
func nearHalf(x float64) float32 {
	fraction, exponent := math.Frexp(x)
	return float32(math.Ldexp(math.RoundToEven(math.Ldexp(fraction, 11)), exponent-11))
}

// Quantised constants have the values (code - zero) * scale, and the nodes that read them become ONNX's own operators.
func TestQuantised(t *testing.T) {
	const rows, columns = 7, 12
	size := int64(rows * columns)
	r := rand.New(rand.NewPCG(1, 2))
	eight, four, two := random(r, rows*columns, -128, 128), random(r, rows*columns, -8, 8), random(r, rows*columns, -2, 2)
	codes4, codes2 := random(r, rows*columns, 0, 16), random(r, rows*columns, 0, 4)
	_, scales := quarters(r, 60)
	halves, halfScales := quarters(r, rows*3)
	zeros := random(r, 60, -2, 2)
	zeros4, zeros2 := random(r, rows*3, 0, 16), random(r, rows*3, 0, 4)
	// The scales of blocks of four columns, and of eight.
	blocks := func(i int) int { return i/columns*3 + i%columns/4 }
	pairs := func(i int) int { return i/columns*2 + i%columns/8 }
	wide := make([]int, rows*16) // rows of two blocks of eight codes, of which the last four are not read
	for i := range wide {
		if c := i % 16; c < columns {
			wide[i] = codes4[i/16*columns+c]
		} else {
			wide[i] = 15
		}
	}
	sequence := onnxtest.Ints("ids", []int64{3, 0}, 2)
	var bytes []uint64
	for _, b := range pack(four, 4, rows*columns) {
		bytes = append(bytes, uint64(b))
	}
	packedInts := append(onnxtest.Message(nil).Int(1, rows).Int(1, columns).Int(2, int4Type).Text(8, "q"), packed(5, bytes...)...)
	floats := func(n int, dims ...int64) onnxtest.Message { return onnxtest.Floats("s", scales[:n], dims...) }
	linear := func(in ...string) []onnxtest.Message {
		return []onnxtest.Message{onnxtest.Node("DequantizeLinear", in, []string{"y"}, onnxtest.Attribute("axis", 1))}
	}
	contrib := func(op string, in onnxtest.Names, attributes ...onnxtest.Message) []onnxtest.Message {
		return []onnxtest.Message{onnxtest.Domain(onnxtest.Node(op, in, []string{"y"}, attributes...), "com.microsoft")}
	}
	lookUp := func(bits int, in ...string) []onnxtest.Message {
		return contrib("GatherBlockQuantized", in, onnxtest.Attribute("bits", bits), onnxtest.Attribute("block_size", 4), onnxtest.Attribute("gather_axis", 0), onnxtest.Attribute("quantize_axis", 1))
	}
	product := func(bits int, in ...string) []onnxtest.Message {
		return contrib("MatMulNBits", in, onnxtest.Attribute("bits", bits), onnxtest.Attribute("block_size", 8), onnxtest.Attribute("N", rows), onnxtest.Attribute("K", columns))
	}
	x := onnxtest.Floats("x", make([]float32, columns), 1, columns)
	for _, c := range []struct {
		name      string
		nodes     []onnxtest.Message
		constants []onnxtest.Message
		want      func(i int) float32
		tensor    string
		operators string
	}{
		{"int8, one scale", linear("q", "s", "z"), []onnxtest.Message{onnxtest.Raw("q", int8Type, pack(eight, 8, 1), rows, columns), floats(1), onnxtest.Raw("z", int8Type, pack(zeros[:1], 8, 1))},
			func(i int) float32 { return float32(eight[i]-zeros[0]) * scales[0] }, "y", ""},
		{"a scale for each column", linear("q", "s", "z"), []onnxtest.Message{onnxtest.Raw("q", int8Type, pack(eight, 8, 1), rows, columns), floats(columns, columns), onnxtest.Raw("z", int8Type, pack(zeros[:columns], 8, 1), columns)},
			func(i int) float32 { return float32(eight[i]-zeros[i%columns]) * scales[i%columns] }, "y", ""},
		{"a scale for each row", []onnxtest.Message{onnxtest.Node("DequantizeLinear", []string{"q", "s"}, []string{"y"}, onnxtest.Attribute("axis", -2))}, []onnxtest.Message{onnxtest.Raw("q", int8Type, pack(eight, 8, 1), rows, columns), floats(rows, rows)},
			func(i int) float32 { return float32(eight[i]) * scales[i/columns] }, "y", ""},
		{"blocks of int4", []onnxtest.Message{onnxtest.Node("DequantizeLinear", []string{"q", "s", "z"}, []string{"y"}, onnxtest.Attribute("axis", 1), onnxtest.Attribute("block_size", 4))},
			[]onnxtest.Message{onnxtest.Raw("q", int4Type, pack(four, 4, rows*columns), rows, columns), floats(rows*3, rows, 3), onnxtest.Raw("z", int4Type, pack(zeros[:rows*3], 4, rows*3), rows, 3)},
			func(i int) float32 { return float32(four[i]-zeros[blocks(i)]) * scales[blocks(i)] }, "y", ""},
		{"blocks of rows", []onnxtest.Message{onnxtest.Node("DequantizeLinear", []string{"q", "s"}, []string{"y"}, onnxtest.Attribute("axis", 0), onnxtest.Attribute("block_size", 2))},
			[]onnxtest.Message{onnxtest.Raw("q", int4Type, pack(four, 4, rows*columns), rows, columns), floats(4*columns, 4, columns)},
			func(i int) float32 { return float32(four[i]) * scales[i/columns/2*columns+i%columns] }, "y", ""},
		{"scales of float16 and a result of float32", []onnxtest.Message{onnxtest.Node("DequantizeLinear", []string{"q", "s"}, []string{"y"}, onnxtest.Attribute("output_dtype", 1))}, []onnxtest.Message{onnxtest.Raw("q", int8Type, pack(eight, 8, 1), rows, columns), onnxtest.Raw("s", float16Type, []byte{0x55, 0x35})},
			func(i int) float32 { return float32(eight[i]) * .333251953125 }, "y", ""},
		{"scales and a result of float16", linear("q", "s"), []onnxtest.Message{onnxtest.Raw("q", int8Type, pack(eight, 8, 1), rows, columns), onnxtest.Raw("s", float16Type, []byte{0x55, 0x35})},
			func(i int) float32 { return nearHalf(float64(eight[i]) * .333251953125) }, "y", ""},
		{"int4 in int32_data", linear("q", "s"), []onnxtest.Message{packedInts, floats(1)}, func(i int) float32 { return float32(four[i]) * scales[0] }, "y", ""},
		{"int2", linear("q", "s"), []onnxtest.Message{onnxtest.Raw("q", int2Type, pack(two, 2, rows*columns), rows, columns), floats(1)}, func(i int) float32 { return float32(two[i]) * scales[0] }, "y", ""},
		{"codes that are looked up", []onnxtest.Message{onnxtest.Node("Gather", []string{"q", "ids"}, []string{"rows"}), onnxtest.Node("DequantizeLinear", []string{"rows", "s"}, []string{"y"})},
			[]onnxtest.Message{sequence, onnxtest.Raw("q", int8Type, pack(eight, 8, 1), rows, columns), floats(1)}, func(i int) float32 { return float32(eight[i]) * scales[0] }, "q.values", "Gather"},
		{"GatherBlockQuantized, 4 bits", lookUp(4, "q", "ids", "s", "z"), []onnxtest.Message{sequence, onnxtest.Raw("q", uint8Type, pack(codes4, 4, columns), rows, columns/2), onnxtest.Raw("s", float16Type, halves, rows, 3), onnxtest.Raw("z", uint8Type, pack(zeros4, 4, 3), rows, 2)},
			func(i int) float32 { return float32(codes4[i]-zeros4[blocks(i)]) * halfScales[blocks(i)] }, "q.values", "Gather"},
		{"GatherBlockQuantized, 2 bits", lookUp(2, "q", "ids", "s", "z"), []onnxtest.Message{sequence, onnxtest.Raw("q", uint8Type, pack(codes2, 2, columns), rows, columns/4), floats(rows*3, rows, 3), onnxtest.Raw("z", uint8Type, pack(zeros2, 2, 3), rows, 1)},
			func(i int) float32 { return float32(codes2[i]-zeros2[blocks(i)]) * scales[blocks(i)] }, "q.values", "Gather"},
		{"GatherBlockQuantized without zero points", lookUp(2, "q", "ids", "s"), []onnxtest.Message{sequence, onnxtest.Raw("q", uint8Type, pack(codes2, 2, columns), rows, columns/4), floats(rows*3, rows, 3)},
			func(i int) float32 { return float32(codes2[i]-2) * scales[blocks(i)] }, "q.values", "Gather"},
		{"GatherBlockQuantized of int4", lookUp(4, "q", "ids", "s"), []onnxtest.Message{sequence, onnxtest.Raw("q", int4Type, pack(four, 4, rows*columns), rows, columns), floats(rows*3, rows, 3)},
			func(i int) float32 { return float32(four[i]) * scales[blocks(i)] }, "q.values", "Gather"},
		{"MatMulNBits", product(4, "x", "q", "s"), []onnxtest.Message{x, onnxtest.Raw("q", uint8Type, pack(wide, 4, 16), rows, 2, 4), floats(rows*2, rows*2)},
			func(i int) float32 { return float32(codes4[i]-8) * scales[pairs(i)] }, "q.values", "Transpose MatMul"},
		{"MatMulNBits, 8 bits", product(8, "x", "q", "s"), []onnxtest.Message{x, onnxtest.Raw("q", uint8Type, pack(wide, 8, 1), rows, 2, 8), floats(rows*2, rows, 2)},
			func(i int) float32 { return float32(codes4[i]-128) * scales[pairs(i)] }, "q.values", "Transpose MatMul"},
		{"MatMulNBits with zero points and a bias", product(4, "x", "q", "s", "z", "", "b"), []onnxtest.Message{x, onnxtest.Raw("q", uint8Type, pack(wide, 4, 16), rows, 2, 4), floats(rows*2, rows*2), onnxtest.Raw("z", uint8Type, pack(zeros4[:rows*2], 4, 2), rows), onnxtest.Floats("b", make([]float32, rows), rows)},
			func(i int) float32 { return float32(codes4[i]-zeros4[pairs(i)]) * scales[pairs(i)] }, "q.values", "Transpose MatMul Add"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := read(onnxtest.Model(21, onnxtest.Graph{Nodes: c.nodes, Initializers: c.constants, Outputs: []onnxtest.Message{onnxtest.Value("y", 1)}}.Message()))
			if err != nil {
				t.Fatal(err)
			}
			var operators []string
			for _, n := range m.Graph.Nodes {
				operators = append(operators, n.Op)
			}
			if got := strings.Join(operators, " "); got != c.operators {
				t.Errorf("nodes %q, expected %q", got, c.operators)
			}
			at := slices.IndexFunc(m.Graph.Initializers, func(t *wire.Tensor) bool { return t.Name == c.tensor })
			if at < 0 {
				t.Fatalf("no tensor %s", c.tensor)
			}
			table := m.Graph.Initializers[at]
			if !slices.Equal(table.Dims, []int{rows, columns}) {
				t.Fatalf("shape %v", table.Dims)
			}
			for first := range int(size) {
				part := make([]float32, (int(size)-first+1)/2)
				if err := table.ReadFloats(part, first); err != nil {
					t.Fatal(err)
				}
				for k, v := range part {
					if want := c.want(first + k); v != want {
						t.Fatalf("element %d is %v, expected %v", first+k, v, want)
					}
				}
			}
		})
	}
}

// Nodes that look up one quantised table share it.
func TestSharedQuantised(t *testing.T) {
	node := func(out string) onnxtest.Message {
		return onnxtest.Domain(onnxtest.Node("GatherBlockQuantized", []string{"q", "ids", "s"}, []string{out}, onnxtest.Attribute("bits", 8), onnxtest.Attribute("block_size", 16)), "com.microsoft")
	}
	m, err := read(onnxtest.Model(21, onnxtest.Graph{Nodes: []onnxtest.Message{node("y"), node("w")},
		Initializers: []onnxtest.Message{onnxtest.Ints("ids", []int64{1}, 1), onnxtest.Raw("q", uint8Type, make([]byte, 32), 2, 16), onnxtest.Floats("s", []float32{1, 2}, 2, 1)}}.Message()))
	if err != nil {
		t.Fatal(err)
	}
	if n := m.Graph.Nodes; len(n) != 2 || n[0].Inputs[0] != n[1].Inputs[0] || n[0].Attributes["axis"].Int != 0 {
		t.Errorf("nodes %+v", n)
	}
}

// Constants of nodes may have no names, and are different tables all the same.
func TestUnnamedQuantised(t *testing.T) {
	constant := func(out string, tensor onnxtest.Message) onnxtest.Message {
		return onnxtest.Node("Constant", nil, []string{out}, onnxtest.Attribute("value", tensor))
	}
	var nodes []onnxtest.Message
	for _, name := range []string{"a", "b"} {
		data := slices.Repeat([]byte(name), 16)
		nodes = append(nodes, constant(name, onnxtest.Raw("", uint8Type, data, 1, 16)), constant(name+"s", onnxtest.Floats("", []float32{1}, 1, 1)),
			onnxtest.Domain(onnxtest.Node("GatherBlockQuantized", []string{name, "ids", name + "s"}, []string{name + "y"}, onnxtest.Attribute("bits", 8), onnxtest.Attribute("block_size", 16)), "com.microsoft"))
	}
	m, err := read(onnxtest.Model(21, onnxtest.Graph{Nodes: nodes, Initializers: []onnxtest.Message{onnxtest.Ints("ids", []int64{0}, 1)}}.Message()))
	if err != nil {
		t.Fatal(err)
	}
	for k, name := range []string{"a.values", "b.values"} {
		at := slices.IndexFunc(m.Graph.Initializers, func(t *wire.Tensor) bool { return t.Name == name })
		if at < 0 {
			t.Fatalf("no tensor %s", name)
		}
		if values, err := m.Graph.Initializers[at].Floats(); err != nil || values[0] != float32('a'+k-128) {
			t.Errorf("%s is %v: %v", name, values, err)
		}
	}
}

// Quantised constants that do not fit together, and computations with rounded numbers, are refused.
func TestQuantisedRefused(t *testing.T) {
	codes, ids := onnxtest.Raw("q", uint8Type, make([]byte, 32), 2, 16), onnxtest.Ints("ids", []int64{1}, 1)
	scales := func(n int, dims ...int64) onnxtest.Message { return onnxtest.Floats("s", make([]float32, n), dims...) }
	linear := func(attributes ...onnxtest.Message) onnxtest.Message {
		return onnxtest.Node("DequantizeLinear", []string{"q", "s"}, []string{"y"}, attributes...)
	}
	contrib := func(op string, in onnxtest.Names, attributes ...onnxtest.Message) onnxtest.Message {
		return onnxtest.Domain(onnxtest.Node(op, in, []string{"y"}, attributes...), "com.microsoft")
	}
	huge := int64(math.MaxInt64)
	for _, c := range []struct {
		name      string
		node      onnxtest.Message
		constants []onnxtest.Message
		want      string
	}{
		{"other scales", linear(), []onnxtest.Message{codes, scales(3, 3)}, "the scales s have the shape [3], expected [16]"},
		{"no such axis", linear(onnxtest.Attribute("axis", 2)), []onnxtest.Message{codes, scales(3, 3)}, "axis 2 of a tensor of the shape [2 16]"},
		{"a huge block", linear(onnxtest.Attribute("block_size", huge)), []onnxtest.Message{codes, scales(3, 3)}, "expected [2 1]"},
		{"codes of float32", linear(), []onnxtest.Message{onnxtest.Floats("q", []float32{1}, 1), scales(1)}, "the codes q are of float32"},
		{"codes of int64", linear(), []onnxtest.Message{onnxtest.Ints("q", []int64{1}, 1), scales(1)}, "the codes q are of int64"},
		{"a look-up with two readers", onnxtest.Node("DequantizeLinear", []string{"rows", "s"}, []string{"y"}), []onnxtest.Message{ids, codes, scales(1)}, "operator DequantizeLinear belongs to a quantised model"},
		{"scales of int64", linear(), []onnxtest.Message{codes, onnxtest.Ints("s", []int64{1})}, "the scales s are of int64"},
		{"no codes", linear(), []onnxtest.Message{onnxtest.Raw("q", uint8Type, nil, 0, 16), scales(16, 16)}, "the codes q or their scales are empty"},
		{"other zero points", onnxtest.Node("DequantizeLinear", []string{"q", "s", "z"}, []string{"y"}), []onnxtest.Message{codes, scales(16, 16), onnxtest.Raw("z", uint8Type, make([]byte, 3), 3)}, "the zero points z have the shape [3]"},
		{"zero points of int8", onnxtest.Node("DequantizeLinear", []string{"q", "s", "z"}, []string{"y"}), []onnxtest.Message{codes, scales(1), onnxtest.Raw("z", int8Type, make([]byte, 1))}, "of int8, expected uint8"},
		{"scales of float64", linear(), []onnxtest.Message{codes, onnxtest.Raw("s", 11, make([]byte, 8))}, "the scales s are of float64"},
		{"another column order", contrib("MatMulNBits", []string{"s", "q", "s", "", "ids"}), []onnxtest.Message{ids, codes, scales(2, 2)}, "g_idx"},
		{"several scales behind a look-up", onnxtest.Node("DequantizeLinear", []string{"rows", "s"}, []string{"y"}), []onnxtest.Message{ids, codes, scales(16, 16)}, "expected one scale"},
		{"3 bits", contrib("GatherBlockQuantized", []string{"q", "ids", "s"}, onnxtest.Attribute("bits", 3)), []onnxtest.Message{ids, codes, scales(2, 2, 1)}, "bits is 3, expected 2, 4 or 8"},
		{"scales of the row", contrib("GatherBlockQuantized", []string{"q", "ids", "ids"}), []onnxtest.Message{ids, codes}, "expected [2 1]"},
		{"no product", contrib("MatMulNBits", []string{"s", "q", "s"}, onnxtest.Attribute("N", 2), onnxtest.Attribute("K", 16), onnxtest.Attribute("block_size", huge)), []onnxtest.Message{codes, scales(2, 2)}, "does not fit N = 2"},
		{"another operator", contrib("QAttention", []string{"q", "s"}), []onnxtest.Message{codes, scales(1)}, "operator QAttention of domain com.microsoft"},
		{"rounded activations", onnxtest.Node("QuantizeLinear", []string{"s", "s"}, []string{"y"}), []onnxtest.Message{scales(1)}, "operator QuantizeLinear belongs to a quantised model"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := []onnxtest.Message{c.node}
			if strings.Contains(c.name, "look-up") {
				nodes = []onnxtest.Message{onnxtest.Node("Gather", []string{"q", "ids"}, []string{"rows"}), c.node}
				if strings.Contains(c.name, "two readers") {
					nodes = append(nodes, onnxtest.Node("Neg", []string{"rows"}, []string{"w"}))
				}
			}
			_, err := read(onnxtest.Model(21, onnxtest.Graph{Nodes: nodes, Initializers: c.constants}.Message()))
			if !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected %q", err, c.want)
			}
		})
	}
}

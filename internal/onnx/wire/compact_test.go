package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/wire/onnxtest"
)

// array is a tensor of ONNX. Its numbers are those of float32 or int32.
type array struct {
	dims []int
	v    []float64
}

func (a array) size() int { return len(a.v) }

// at returns the element that an array has at a position of a larger shape to which it is broadcast.
func (a array) at(dims []int, i int) float64 {
	k, stride := 0, 1
	for axis := len(dims) - 1; axis >= 0; axis-- {
		position := i % dims[axis]
		i /= dims[axis]
		if own := axis - len(dims) + len(a.dims); own >= 0 {
			k += position % a.dims[own] * stride
			stride *= a.dims[own]
		}
	}
	return a.v[k]
}

// broadcast applies f to the elements of some arrays, by ONNX's rules for shapes.
func broadcast(f func(x ...float64) float64, all ...array) array {
	var dims []int
	for _, a := range all {
		for len(dims) < len(a.dims) {
			dims = slices.Insert(dims, 0, 1)
		}
		for i := range a.dims {
			d := &dims[len(dims)-len(a.dims)+i]
			*d = max(*d, a.dims[i])
		}
	}
	n := 1
	for _, size := range dims {
		n *= size
	}
	y := array{dims: dims}
	for i := range n {
		var x []float64
		for _, a := range all {
			x = append(x, a.at(dims, i))
		}
		y.v = append(y.v, f(x...))
	}
	return y
}

// along splits an array at an axis: before, on and behind it.
func (a array) along(axis int) (outer, size, inner int) {
	outer, inner = 1, 1
	for i, d := range a.dims {
		switch {
		case i < axis:
			outer *= d
		case i > axis:
			inner *= d
		}
	}
	return outer, a.dims[axis], inner
}

// apply computes a node by the definition of its operator.
func apply(t *testing.T, n *Node, in []array) array {
	t.Helper()
	float32s := func(f func(x, y float64) float64) func(x ...float64) float64 {
		return func(x ...float64) float64 { return float64(float32(f(x[0], x[1]))) }
	}
	ints := func(name string, otherwise int64) int { return int(n.int(name, otherwise)) }
	x := in[0]
	switch n.Op {
	case "Cast":
		return x
	case "Add":
		return broadcast(float32s(func(x, y float64) float64 { return x + y }), in...)
	case "Mul":
		return broadcast(float32s(func(x, y float64) float64 { return x * y }), in...)
	case "Div":
		return broadcast(func(x ...float64) float64 { return math.Trunc(x[0] / x[1]) }, in...)
	case "Sub":
		return broadcast(func(x ...float64) float64 { return x[0] - x[1] }, in...)
	case "Mod":
		return broadcast(func(x ...float64) float64 { return math.Mod(x[0], x[1]) }, in...)
	case "Where":
		return broadcast(func(x ...float64) float64 { return map[bool]float64{true: x[1], false: x[2]}[x[0] != 0] }, in...)
	case "Range":
		var v []float64
		for i := x.v[0]; i < in[1].v[0]; i += in[2].v[0] {
			v = append(v, i)
		}
		return array{[]int{len(v)}, v}
	case "Expand":
		return broadcast(func(x ...float64) float64 { return x[0] }, x, array{[]int{int(in[1].v[0])}, make([]float64, int(in[1].v[0]))})
	case "Reshape":
		rest, dims := x.size(), []int{}
		for _, d := range in[1].v {
			if dims = append(dims, int(d)); d > 0 {
				rest /= int(d)
			}
		}
		for i, d := range dims {
			if d < 0 {
				dims[i] = rest
			}
		}
		return array{dims, x.v}
	case "Slice":
		return array{[]int{int(in[2].v[0] - in[1].v[0])}, x.v[int(in[1].v[0]):int(in[2].v[0])]}
	case "Concat":
		y := array{dims: slices.Clone(x.dims)}
		y.dims[0] = 0
		for _, a := range in {
			y.dims[0] += a.dims[0]
			y.v = append(y.v, a.v...)
		}
		return y
	case "ReduceSum":
		if (n.Opset >= 13) != (len(in) == 2) {
			t.Fatalf("ReduceSum of operator set %d has %d inputs", n.Opset, len(in))
		}
		axis := 0
		if len(in) > 1 {
			axis = int(in[1].v[0])
		} else {
			axis = int(n.Attributes["axes"].Ints[0])
		}
		outer, size, inner := x.along(axis)
		y := array{slices.Clone(x.dims), make([]float64, outer*inner)}
		if y.dims[axis] = 1; ints("keepdims", 1) == 0 {
			y.dims = slices.Delete(y.dims, axis, axis+1)
		}
		for i, v := range x.v {
			y.v[i/inner/size*inner+i%inner] += v
		}
		return y
	case "CumSum":
		_, size, inner := x.along(int(in[1].v[0]))
		y := array{x.dims, make([]float64, x.size())}
		for i := range x.v {
			if i/inner%size > 0 {
				y.v[i] = y.v[i-inner]
				if ints("exclusive", 0) == 1 {
					y.v[i] += x.v[i-inner]
				}
			}
			if ints("exclusive", 0) == 0 {
				y.v[i] += x.v[i]
			}
		}
		return y
	case "TopK": // the indices of the smallest numbers, which differ
		var v []float64
		for i := range x.v {
			v = append(v, float64(i))
		}
		slices.SortFunc(v, func(i, j float64) int { return cmp.Compare(x.v[int(i)], x.v[int(j)]) })
		n := int(in[1].v[0])
		return array{[]int{n}, v[:n]}
	case "ScatterElements":
		y := array{x.dims, slices.Clone(x.v)}
		for i, at := range in[1].v {
			y.v[int(at)] = in[2].v[i]
		}
		return y
	case "Gather":
		length := x.size() / x.dims[0]
		y := array{dims: append(slices.Clone(in[1].dims), x.dims[1:]...)}
		for _, i := range in[1].v {
			row := int(i)
			if row < 0 {
				row += x.dims[0]
			}
			y.v = append(y.v, x.v[row*length:(row+1)*length]...)
		}
		return y
	}
	t.Fatalf("operator %s", n.Op)
	return array{}
}

// compute returns the output of a graph for some ids.
func compute(t *testing.T, g *Graph, ids array) array {
	t.Helper()
	values := map[string]array{g.Inputs[0].Name: ids}
	for _, c := range g.Initializers {
		a := array{dims: c.Dims}
		err := c.each(0, c.Elements(), func(_ int, bits uint64) error {
			if c.Type.Floating() {
				a.v = append(a.v, float64(c.Type.float(bits)))
			} else {
				a.v = append(a.v, float64(int64(bits)))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		values[c.Name] = a
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		var in []array
		for _, name := range n.Inputs {
			in = append(in, values[name])
		}
		values[n.Outputs[len(n.Outputs)-1]] = apply(t, n, in)
	}
	return values[g.Outputs[0].Name]
}

// shape says which table a test makes.
type shape struct {
	rows, columns int
	keep          float64 // portion of rows that keep an entry
	bits          []int
	spans         []WordSpan
}

// random returns a compact table and its values.
func (s shape) random(r *rand.Rand) (*Compact, []float32) {
	n := s.rows * s.columns
	c := &Compact{Dropped: make([]bool, n), Rows: make([]uint8, s.rows), Word: make([]uint8, s.rows), Spans: s.spans}
	for _, bits := range s.bits {
		q := Quantizer{Bits: bits}
		if bits <= 8 {
			q.Origin, q.Step = r.Float32()-1, r.Float32()/8
		}
		c.Quantizers = append(c.Quantizers, q)
	}
	values := make([]float32, n)
	row, first := 0, 0
	for _, span := range s.spans {
		for range span.Words * s.columns {
			c.Words = append(c.Words, r.Float32())
		}
		for range span.Rows {
			c.Word[row], c.Rows[row] = uint8(r.IntN(span.Words)), uint8(r.IntN(len(c.Quantizers)))
			q, listed := c.Quantizers[c.Rows[row]], r.Float64() < s.keep
			for i := row * s.columns; i < (row+1)*s.columns; i++ {
				if c.Dropped[i] = !listed || r.IntN(3) > 0; c.Dropped[i] {
					values[i] = c.Words[(first+int(c.Word[row]))*s.columns+i%s.columns]
					continue
				}
				number := uint32(r.IntN(min(1<<q.Bits, 0x7c00)))
				switch q.Bits {
				case 16:
					values[i] = half(uint16(number))
				case 32:
					number = math.Float32bits(r.Float32())
					values[i] = math.Float32frombits(number)
				default:
					values[i] = q.Origin + float32(q.Step*float32(number))
				}
				c.Numbers = append(c.Numbers, number)
			}
			row++
		}
		first += span.Words
	}
	return c, values
}

// lookedUp is a file with a look-up of a table t of zeros.
func lookedUp(opset int64, rows, columns int) []byte {
	return onnxtest.Model(opset, onnxtest.Graph{
		Inputs:       []onnxtest.Message{onnxtest.Value("ids", 7, -1, 2)},
		Outputs:      []onnxtest.Message{onnxtest.Value("y", 1, -1, 2, int64(columns))},
		Initializers: []onnxtest.Message{onnxtest.Floats("t", make([]float32, rows*columns), int64(rows), int64(columns))},
		Nodes:        []onnxtest.Message{onnxtest.Node("Gather", onnxtest.Names{"t", "ids"}, onnxtest.Names{"y"})},
	}.Message())
}

// The nodes of a compact table compute its values, by the definitions of ONNX's operators, and a reader of the file gets the same.
func TestCompactNodes(t *testing.T) {
	t.Parallel()
	one := func(rows int) []WordSpan { return []WordSpan{{rows, 1}} }
	for name, s := range map[string]shape{
		"exact":       {400, 8, .3, []int{32}, one(400)},
		"one width":   {400, 8, .3, []int{4}, one(400)},
		"all widths":  {1200, 8, .5, []int{8, 2, 32, 3, 16, 4, 2}, one(1200)},
		"halves":      {400, 5, .4, []int{16, 16}, one(400)},
		"few rows":    {9000, 4, .004, []int{2, 3}, one(9000)},
		"every row":   {800, 7, 1, []int{3, 8}, one(800)},
		"nothing":     {3000, 6, 0, []int{2}, []WordSpan{{1000, 1}, {2000, 1}}},
		"nothing, 1":  {40000, 24, 0, []int{2}, one(40000)},
		"words":       {900, 8, .3, []int{2, 4}, []WordSpan{{300, 16}, {500, 1}, {100, 5}}},
		"many words":  {2000, 16, .2, []int{2}, []WordSpan{{1000, 256}, {1000, 12}}},
		"wide":        {300, 300, .3, []int{4, 8}, one(300)},
		"one column":  {4000, 1, .2, []int{2, 4, 8}, []WordSpan{{4000, 3}}},
		"uneven rows": {1003, 3, .05, []int{2}, one(1003)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, opset := range []int64{11, 18} {
				r := rand.New(rand.NewPCG(1, uint64(s.rows)))
				c, want := s.random(r)
				m, err := Read("m.onnx", bytes.NewReader(lookedUp(opset, s.rows, s.columns)), int64(len(lookedUp(opset, s.rows, s.columns))))
				if err != nil {
					t.Fatal(err)
				}
				w, err := m.Rewrite([]Table{{m.Graph.Initializers[0], want, c}}, Options{})
				if err != nil || w.Compact != 1 {
					t.Fatalf("%+v, %v", w, err)
				}
				var file bytes.Buffer
				if _, err := w.WriteTo(&file); err != nil {
					t.Fatal(err)
				}
				if want, grown := m.CompactBytes(c, m.Graph.Initializers[0], 0, 1), w.Bytes-m.Size()+int64(4*len(want)); w.TableBytes != want || grown > want+60 || grown < want-40 {
					t.Errorf("%d bytes, of which the file has %d, expected %d", w.TableBytes, grown, want)
				}
				read := func(data []byte) *Model {
					m, err := Read("m.onnx", bytes.NewReader(data), int64(len(data)))
					if err != nil {
						t.Fatal(err)
					}
					return m
				}
				ids := array{[]int{s.rows / 2, 2}, nil}
				for range ids.dims[0] * 2 {
					ids.v = append(ids.v, float64(r.IntN(s.rows)-r.IntN(2)*s.rows)) // negative ids count from the end
				}
				nodes := read(bytes.Replace(file.Bytes(), []byte(compactKey), []byte("shaver.kepx"), 1))
				y := compute(t, nodes.Graph, ids)
				if !slices.Equal(y.dims, []int{s.rows / 2, 2, s.columns}) {
					t.Fatalf("the output has the shape %v", y.dims)
				}
				for i, v := range y.v {
					row := (int(ids.v[i/s.columns]) + s.rows) % s.rows
					if w := want[row*s.columns+i%s.columns]; float32(v) != w {
						t.Fatalf("opset %d: id %v, column %d is %v, expected %v", opset, ids.v[i/s.columns], i%s.columns, v, w)
					}
				}
				again := read(file.Bytes())
				table := again.Graph.Initializers[0]
				if len(again.Graph.Nodes) != 1 || len(again.Graph.Initializers) != 1 || !slices.Equal(again.Graph.Nodes[0].Inputs, []string{"t", "ids"}) {
					t.Fatalf("%d nodes and %d tensors", len(again.Graph.Nodes), len(again.Graph.Initializers))
				}
				if got, err := table.Floats(); err != nil || !slices.Equal(got, want) {
					t.Fatalf("a reader gets other values: %v", err)
				}
				part := make([]float32, min(3*s.columns, 2*s.columns+1))
				if err := table.ReadFloats(part, 5*s.columns-1); err != nil || !slices.Equal(part, want[5*s.columns-1:5*s.columns-1+len(part)]) {
					t.Errorf("a part has other values: %v", err)
				}
			}
		})
	}
}

// compactFile returns a file with a random compact table.
func compactFile(t testing.TB, s shape) []byte {
	t.Helper()
	c, values := s.random(rand.New(rand.NewPCG(3, 4)))
	return fileOf(t, s, c, values)
}

// fileOf returns a file with a compact table.
func fileOf(t testing.TB, s shape, c *Compact, values []float32) []byte {
	t.Helper()
	dense := lookedUp(18, s.rows, s.columns)
	m, err := Read("m.onnx", bytes.NewReader(dense), int64(len(dense)))
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Rewrite([]Table{{m.Graph.Initializers[0], values, c}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := w.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// A file in which another node reads what the nodes of a compact table compute is refused.
func TestOtherReader(t *testing.T) {
	t.Parallel()
	g := looked(onnxtest.Floats("t", sparse(), 500, 4), onnxtest.Node("Neg", onnxtest.Names{"e"}, onnxtest.Names{"other.1"}), onnxtest.Node("Abs", onnxtest.Names{"other.1"}, onnxtest.Names{"n"}))
	w := rewriteFile(t, save(t, onnxtest.Model(18, g.Message())), Options{}, map[string][]float32{"t": sparse()}, keptOf(sparse()))
	at := bytes.LastIndex(w.main, []byte("other.1"))
	copy(w.main[at:], "shv0.10")
	if _, err := Read("m.onnx", bytes.NewReader(w.main), int64(len(w.main))); !fault.IsInput(err) || !strings.Contains(err.Error(), "shv0.10 is not as shaver writes it") {
		t.Error(err)
	}
}

// A quantizer whose origin is -0 has the values of one whose origin is 0.
func TestNegativeZero(t *testing.T) {
	t.Parallel()
	s := shape{600, 8, .3, []int{2}, []WordSpan{{600, 1}}}
	c, values := s.random(rand.New(rand.NewPCG(1, 2)))
	for i, k := 0, 0; i < len(values); i++ {
		if !c.Dropped[i] {
			values[i], k = c.Quantizers[0].Step*float32(c.Numbers[k]), k+1
		}
	}
	c.Quantizers[0].Origin = float32(math.Copysign(0, -1))
	file := fileOf(t, s, c, values)
	m, err := Read("m.onnx", bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Graph.Initializers[0].Floats(); err != nil || !slices.Equal(got, values) {
		t.Errorf("other values: %v", err)
	}
}

// A file with a compact table, changed in any way, is read or refused as bad input.
func FuzzCompact(f *testing.F) {
	f.Add(compactFile(f, shape{600, 8, .3, []int{2, 8}, []WordSpan{{600, 5}}}))
	f.Add(compactFile(f, shape{4000, 4, .004, []int{3, 16, 32}, []WordSpan{{4000, 1}}}))
	f.Add(compactFile(f, shape{3000, 6, 0, []int{2}, []WordSpan{{1000, 1}, {2000, 1}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read("m.onnx", bytes.NewReader(data), int64(len(data)))
		if err == nil {
			for _, c := range m.Graph.Initializers {
				if c.form == compacted && err == nil {
					_, err = c.Floats()
				}
			}
		}
		if err != nil && !fault.IsInput(err) {
			t.Fatalf("%v is not bad input", err)
		}
	})
}

// A file whose compact table is not as Rewrite writes it is refused, when it is opened or when its rows are read.
func TestHostileCompactTable(t *testing.T) {
	t.Parallel()
	file := compactFile(t, shape{600, 8, .3, []int{2, 8}, []WordSpan{{600, 5}}})
	m, err := Read("m.onnx", bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	text := m.Metadata[compactKey]
	for name, change := range map[string]func(data []byte) []byte{
		"an operator": func(b []byte) []byte { return bytes.Replace(b, []byte("CumSum"), []byte("CumSun"), 1) },
		"a constant": func(b []byte) []byte {
			return replaceLast(b, []byte{1, 0, 0, 0, 4, 0, 0, 0, 16, 0, 0, 0}, []byte{1, 0, 0, 0, 5, 0, 0, 0, 16, 0, 0, 0})
		},
		"the rows":           func(b []byte) []byte { return bytes.Replace(b, []byte(`"rows":600`), []byte(`"rows":599`), 1) },
		"the listed rows":    func(b []byte) []byte { return edited(b, text, `"listed":{"marked":`, `"listed":{"marked":9`) },
		"a number of bits":   func(b []byte) []byte { return bytes.Replace(b, []byte(`"bits":2`), []byte(`"bits":5`), 1) },
		"words of a span":    func(b []byte) []byte { return bytes.Replace(b, []byte(`"words":5`), []byte(`"words":0`), 1) },
		"no JSON":            func(b []byte) []byte { return bytes.Replace(b, []byte(`[{"table"`), []byte(`[["table"`), 1) },
		"null":               func(b []byte) []byte { return bytes.Replace(b, []byte(text), padded("[null]", len(text)), 1) },
		"a list of listed":   func(b []byte) []byte { return flip(b, "shv0.listed", 40) },
		"kept entries":       func(b []byte) []byte { return flip(b, "shv0.kept", 40) },
		"a row's quantizer":  func(b []byte) []byte { return flip(b, "shv0.quantizers", 40) },
		"a row's word":       func(b []byte) []byte { return bytes.Replace(b, []byte(`"words":5`), []byte(`"words":4`), 1) },
		"more columns":       func(b []byte) []byte { return edited(b, text, `"columns":8`, `"columns":80`) },
		"a table of a name":  func(b []byte) []byte { return bytes.Replace(b, []byte(`"table":"t"`), []byte(`"table":"y"`), 1) },
		"the name of a node": func(b []byte) []byte { return bytes.Replace(b, []byte("\x06shv0.9"), []byte("\x06shv0.x"), 1) },
	} {
		data := change(slices.Clone(file))
		if bytes.Equal(data, file) {
			t.Fatalf("%s: nothing changed", name)
		}
		m, err := Read("m.onnx", bytes.NewReader(data), int64(len(data)))
		if err == nil {
			_, err = m.Graph.Initializers[0].Floats()
		}
		text := map[string]string{"the listed rows": "listed rows of 600", "more columns": "shv0.words is not as shaver writes it"}[name]
		if !fault.IsInput(err) || !strings.Contains(fmt.Sprint(err), "m.onnx") || !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func padded(text string, length int) []byte {
	return append([]byte(text), bytes.Repeat([]byte(" "), length-len(text))...)
}

// edited inserts a digit into the metadata, and drops one elsewhere, so that lengths stay.
func edited(b []byte, text, old, new string) []byte {
	change := strings.Replace(text, old, new, 1)
	change = strings.Replace(change, `"table":"t"`, `"table":""`, 1)
	return bytes.Replace(b, []byte(text), []byte(change), 1)
}

func replaceLast(b, old, new []byte) []byte {
	at := bytes.LastIndex(b, old)
	return slices.Concat(b[:at], new, b[at+len(old):])
}

// flip inverts a byte of the elements that follow the description of a constant.
func flip(b []byte, name string, behind int) []byte {
	at := bytes.LastIndex(b, []byte(name+"J")) + len(name) + behind
	b[at] ^= 0xff
	return b
}

// The scales of a quantised tensor stay in float32.
func TestWeights8Scales(t *testing.T) {
	t.Parallel()
	data := onnxtest.Model(21, onnxtest.Graph{
		Inputs:       []onnxtest.Message{onnxtest.Value("x", 1, -1, 128)},
		Outputs:      []onnxtest.Message{onnxtest.Value("y", 1, -1, 128)},
		Initializers: []onnxtest.Message{onnxtest.Floats("s", make([]float32, 4*128), 4, 128), onnxtest.Raw("q", 3, make([]byte, 16*128), 16, 128)},
		Nodes: []onnxtest.Message{
			onnxtest.Node("DequantizeLinear", onnxtest.Names{"q", "s"}, onnxtest.Names{"w"}, onnxtest.Attribute("axis", 0), onnxtest.Attribute("block_size", 4)),
			onnxtest.Node("Add", onnxtest.Names{"x", "w"}, onnxtest.Names{"y"}),
		},
	}.Message())
	m, err := Read("m.onnx", bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if q, err := m.NewWeight8(m.Graph.Initializers[0]); q != nil || err != nil {
		t.Errorf("scales are in 8 bits: %v", err)
	}
}

// A weight in 8 bits has the values of its codes and scales, by the definitions of the operators and for a reader.
func TestWeights8(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	values := make([]float32, 40*30)
	for i := range values {
		values[i] = float32(r.NormFloat64()) * float32(1+i%30)
	}
	data := onnxtest.Model(18, onnxtest.Graph{
		Inputs:       []onnxtest.Message{onnxtest.Value("x", 1, -1, 30)},
		Outputs:      []onnxtest.Message{onnxtest.Value("y", 1, -1, 30)},
		Initializers: []onnxtest.Message{onnxtest.Floats("w", values, 40, 30), onnxtest.Floats("b", make([]float32, 30), 30)},
		Nodes:        []onnxtest.Message{onnxtest.Node("Add", onnxtest.Names{"x", "w"}, onnxtest.Names{"y"})},
	}.Message())
	read := func(data []byte) *Model {
		m, err := Read("m.onnx", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := read(data)
	if q, err := m.NewWeight8(m.Graph.Initializers[1]); q != nil || err != nil {
		t.Errorf("a bias is in 8 bits: %v", err)
	}
	q, err := m.NewWeight8(m.Graph.Initializers[0])
	if err != nil || q == nil || q.Axis != 1 { // along which the sizes differ
		t.Fatalf("%+v, %v", q, err)
	}
	for i, v := range q.Values() {
		most := float32(0)
		for row := range 40 {
			most = max(most, values[row*30+i%30], -values[row*30+i%30])
		}
		if e := math.Abs(float64(v) - float64(values[i])); e > float64(most)/253 {
			t.Errorf("element %d is %v, expected %v", i, v, values[i])
		}
	}
	w, err := m.Rewrite(nil, Options{Weights8: []*Weight8{q}})
	var file bytes.Buffer
	if err == nil {
		_, err = w.WriteTo(&file)
	}
	if err != nil || int64(len(data)-file.Len()) < q.Saved() || int64(len(data)-file.Len()) > q.Saved()+100 {
		t.Fatalf("the file has %d bytes and had %d, expected %d less: %v", file.Len(), len(data), q.Saved(), err)
	}
	again := read(file.Bytes())
	if len(again.Graph.Nodes) != 1 || len(again.Graph.Initializers) != 2 || !slices.Equal(floatsOf(t, again, "w"), q.Values()) {
		t.Errorf("a reader gets another weight, or other nodes: %d nodes, %d tensors", len(again.Graph.Nodes), len(again.Graph.Initializers))
	}
	plain := read(bytes.Replace(file.Bytes(), []byte(int8Key), []byte("shaver.int9"), 1))
	y := compute(t, plain.Graph, array{[]int{1, 1}, []float64{0}})
	for i, v := range q.Values() {
		if float32(y.v[i]) != v {
			t.Fatalf("element %d is %v, expected %v", i, y.v[i], v)
		}
	}
	var twice bytes.Buffer
	if w, err = again.Rewrite(nil, Options{}); err == nil {
		_, err = w.WriteTo(&twice)
	}
	if err != nil || !bytes.Equal(twice.Bytes(), file.Bytes()) {
		t.Errorf("a file has other bytes when it is written again: %v", err)
	}
	for _, c := range [][2]string{{"Mul", "Add"}, {`"axis":1`, `"axis":0`}, {`"axis":1`, `"axis":7`}, {"shv0.codes", "shv0.kodes"}, {`[{"tensor`, `{[{"tenso`}} {
		data := bytes.Replace(file.Bytes(), []byte(c[0]), []byte(c[1]), 1)
		if m, err := Read("m.onnx", bytes.NewReader(data), int64(len(data))); !fault.IsInput(err) {
			t.Errorf("%s became %s: %v, %v", c[0], c[1], m, err)
		}
	}
}

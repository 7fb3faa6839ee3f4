package graph

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// program builds a graph from bytes. Every byte string is a program.
type program struct {
	data []byte
	g    *Graph
}

func (p *program) next() int {
	if len(p.data) == 0 {
		return 0
	}
	b := p.data[0]
	p.data = p.data[1:]
	return int(b)
}

// number returns a whole number, which is often small and sometimes extreme.
func (p *program) number() int64 {
	extreme := []int64{math.MinInt64, math.MaxInt64, math.MinInt32, math.MaxInt32, 1 << 40, 1 << 20, 1 << 16, 1000}
	switch b := p.next(); {
	case b >= 248:
		return extreme[b-248]
	case b >= 128:
		return int64(b) - 248 + 116 // -4 to 115
	default:
		return int64(b%8) - 2
	}
}

func (p *program) numbers() []int64 {
	out := make([]int64, p.next()%5)
	for i := range out {
		out[i] = p.number()
	}
	return out
}

func (p *program) shape() []int {
	shape := make([]int, p.next()%4)
	for i := range shape {
		shape[i] = p.next() % 5
	}
	return shape
}

// value adds an input or a constant of a type, or returns a value that exists.
func (p *program) value(t Type) Value {
	switch b := p.next(); {
	case b < 100 && len(p.g.Values) > 0:
		return Value(b % len(p.g.Values))
	case b < 150:
		return p.g.AddInput("x", t, p.shape())
	case b < 200 && t == Int:
		list := p.numbers()
		return p.g.AddConstant(NewInts(list, len(list)))
	case b < 220 && t == Int:
		return p.g.AddConstant(NewInts([]int64{p.number()}))
	case b < 230:
		return Absent
	}
	c := newTensor(t, p.shape())
	for i := range c.Floats {
		c.Floats[i] = float32(p.number())
	}
	for i := range c.Ints {
		c.Ints[i] = p.number()
	}
	for i := range c.Bools {
		c.Bools[i] = p.next()%2 == 1
	}
	return p.g.AddConstant(c)
}

// node adds a node.
func (p *program) node() ([]Value, error) {
	names := Operators()
	n := Node{Op: names[p.next()%len(names)], Attributes: Attributes{}}
	o := operators[n.Op]
	types := map[byte]Type{'f': Float, 'i': Int, 'b': Bool}
	for word := range strings.FieldsSeq(o.inputs) {
		t := types[word[0]]
		if t == 0 {
			t = Type(p.next()%3) + Float
			if word[0] == 'A' || word[0] == 'N' {
				types[word[0]] = t
			}
		}
		n.Inputs = append(n.Inputs, p.value(t))
		if strings.Contains(word, "*") && p.next()%2 == 1 {
			n.Inputs = append(n.Inputs, p.value(t))
		}
	}
	for word := range strings.FieldsSeq(o.attributes) {
		name, kind, _ := strings.Cut(word, ":")
		if p.next()%2 == 0 {
			continue
		}
		switch kind {
		case "i":
			n.Attributes[name] = p.number()
		case "f":
			n.Attributes[name] = float32(p.number()) / 4
		case "is":
			n.Attributes[name] = p.numbers()
		case "fs":
			n.Attributes[name] = []float32{float32(p.number())}
		case "s":
			texts := []string{"ab,bc->ac", "...a,...b->...ab", "ii", "a...->...", "ab,b", "tanh", "none", "->", ",", "a,b->ba"}
			n.Attributes[name] = texts[p.next()%len(texts)]
		case "t":
			n.Attributes[name] = newTensor(Type(p.next()%3)+Float, p.shape())
		}
	}
	return p.g.Add(n)
}

// A node of any kind, with any attributes and constants, is refused or gives a result of
// the inferred type and shape. Folding stays within its limits. Relabel emits as many
// elements as the result has.
func FuzzAdd(f *testing.F) {
	for i := range 200 {
		f.Add([]byte{byte(i), 101, 2, 1, 3, 160, 2, 1, 1, 1, 0, 1, 1, 7, 120, 3, 1, 2, 3, 210, 1, 1})
		f.Add([]byte{byte(i), 0, 240, 2, 2, 3, 1, 2, 3, 4, 5, 6, 240, 2, 3, 2, 7, 8, 9, 1, 2, 3, 1, 2, 1, 4, byte(i), 0, 1, 2, 3})
		f.Add([]byte{byte(i), 0, 130, 1, 4, 170, 1, byte(248 + i%8), 1, byte(248 + i/8%8)})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &program{data: data[:min(len(data), 300)], g: &Graph{}}
		start := time.Now()
		for len(p.data) > 0 {
			out, err := p.node()
			if err != nil {
				continue
			}
			p.g.Output = out[0]
		}
		if taken := time.Since(start); taken > 30*time.Second {
			t.Errorf("folding takes %v", taken)
		}
		folded := 0
		for _, info := range p.g.Values {
			if c := info.Constant; c != nil {
				if err := c.Check(); err != nil {
					t.Fatal(err)
				}
				if c.Type != info.Type || !slices.Equal(c.Shape, info.Shape) {
					t.Fatalf("%v%v is a constant %v%v", info.Type, info.Shape, c.Type, c.Shape)
				}
				folded += c.Len()
			}
		}
		if int64(folded) > 2*maxFolded+8*p.g.given {
			t.Errorf("the constants have %d elements", folded)
		}
		if len(p.g.Nodes) == 0 || p.g.varied > 1<<16 || p.g.rowWork > 1<<20 {
			return
		}
		p.g.Trim()
		var inputs []*Tensor
		for _, v := range p.g.Inputs {
			in := newTensor(p.g.Values[v].Type, p.g.Values[v].Shape)
			for i := range in.Floats {
				in.Floats[i] = float32(i) - 1
			}
			inputs = append(inputs, in)
		}
		out, err := p.g.Run(inputs)
		if err != nil {
			return // an index, or a division by 0
		}
		if info := p.g.Values[p.g.Output]; out.Type != info.Type || !slices.Equal(out.Shape, info.Shape) {
			t.Fatalf("%v%v, inferred %v%v", out.Type, out.Shape, info.Type, info.Shape)
		}
		if err := out.Check(); err != nil {
			t.Fatal(err)
		}
		for _, n := range p.g.Nodes {
			p.relabel(t, &n)
		}
		for e, y := range out.Floats[:min(len(out.Floats), 16)] {
			slack := 1e-3 * (1 + math.Abs(float64(y))) // of rounding
			if x := p.g.Bounds(p.g.Output, e); !math.IsInf(float64(y), 0) && (float64(y) < x.Low-slack || float64(y) > x.High+slack) {
				t.Errorf("element %d is %v, and its bounds are %v", e, y, x)
			}
		}
	})
}

// relabel checks that Relabel emits an existing element for each element of the outputs.
func (p *program) relabel(t *testing.T, n *Node) {
	t.Helper()
	emitted := make([]int, len(n.Outputs))
	ok := p.g.Relabel(n, func(output, input, element int) {
		emitted[output]++
		if input != Nothing && element >= count(p.g.Values[n.Inputs[input]].Shape) {
			t.Fatalf("%s: element %d of %v", n.Op, element, p.g.Values[n.Inputs[input]].Shape)
		}
	})
	for i, v := range n.Outputs {
		if want := count(p.g.Values[v].Shape); ok && emitted[i] != want {
			t.Errorf("%s: %d elements of output %d, expected %d", n.Op, emitted[i], i, want)
		}
	}
}

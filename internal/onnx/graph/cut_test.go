package graph

import (
	"math"
	"strings"
	"testing"
)

// parts returns what stays of each input, chosen by the bytes of p.
func (p *program) parts() []Part {
	parts := make([]Part, len(p.g.Inputs))
	for i, v := range p.g.Inputs {
		info := &p.g.Values[v]
		if p.next()%8 == 7 {
			parts[i].Constant = newTensor(info.Type, info.Shape)
			continue
		}
		parts[i].Axes = make([][]int, len(info.Shape))
		for a, size := range info.Shape {
			mask := p.next()
			if mask%2 == 0 {
				continue
			}
			parts[i].Axes[a] = []int{}
			for at := range size {
				if mask>>(1+at%7)&1 == 1 {
					parts[i].Axes[a] = append(parts[i].Axes[a], at)
				}
			}
		}
	}
	return parts
}

// split returns an input with zeros in place of what goes, and what stays of it, or nil if none does.
func split(in *Tensor, p *Part) (zeros, stays *Tensor) {
	zeros = newTensor(in.Type, in.Shape)
	if p.Constant != nil {
		return zeros, nil
	}
	k := kept{axes: p.Axes}
	stays = newTensor(in.Type, k.shape(in.Shape))
	next, step := 0, strides(in.Shape)
	for at := range in.Len() {
		stay := true
		for a, list := range p.Axes {
			stay = stay && (list == nil || indices(list, []int{at / step[a] % in.Shape[a]})[0] >= 0)
		}
		if stay {
			zeros.set(at, in, at)
			stays.set(next, in, at)
			next++
		}
	}
	if next == 0 {
		return zeros, nil
	}
	return zeros, stays
}

// A condition may keep only positions that the result does not have.
func TestCutApart(t *testing.T) {
	g := &Graph{}
	is, x, y := g.AddInput("is", Bool, []int{2, 2}), g.AddInput("x", Float, []int{2, 2}), g.AddInput("y", Float, []int{2, 2})
	out, err := g.Add(Node{Op: "Where", Inputs: []Value{is, x, y}})
	if err != nil {
		t.Fatal(err)
	}
	g.Output = out[0]
	inputs := []*Tensor{NewBools([]bool{true, false, true, true}, 2, 2), NewFloats([]float32{2, 3, 4, 5}, 2, 2), NewFloats([]float32{6, 7, 8, 9}, 2, 2)}
	first, second := [][]int{{0}, nil}, [][]int{{1}, nil}
	if checkCut(t, g, inputs, []Part{{Axes: second}, {Axes: first}, {Axes: first}}) == nil {
		t.Error("the graph was not cut")
	}
}

// finite reports whether all values of g that are computed from the inputs are finite.
func finite(g *Graph, inputs []*Tensor) bool {
	last := *g
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			last.Output = v
			out, err := last.Run(inputs)
			if err != nil {
				return false
			}
			for _, x := range out.Floats {
				if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
					return false
				}
			}
		}
	}
	return true
}

// checkCut checks that the graph without some elements of the inputs gives what g gives if these are 0. It returns
// the smaller graph.
func checkCut(t *testing.T, g *Graph, inputs []*Tensor, parts []Part) *Graph {
	t.Helper()
	var zeros, stay []*Tensor
	for i, in := range inputs {
		z, s := split(in, &parts[i])
		if zeros = append(zeros, z); s != nil {
			stay = append(stay, s)
		}
	}
	if !finite(g, zeros) {
		return nil
	}
	small, err := g.Cut(parts)
	if err != nil {
		if !strings.Contains(err.Error(), "no longer depends on the row") {
			t.Fatal(err)
		}
		return nil
	}
	want, err := g.Run(zeros)
	if err != nil {
		t.Fatal(err)
	}
	got, err := small.Run(stay)
	if err != nil {
		t.Fatal(err)
	}
	if got.Type != want.Type || count(got.Shape) != count(want.Shape) {
		t.Fatalf("%v%v, expected %v%v", got.Type, got.Shape, want.Type, want.Shape)
	}
	for i := range want.Len() {
		same := true
		switch want.Type {
		case Float:
			same = math.Abs(got.float(i)-want.float(i)) <= 1e-5*(1+math.Abs(want.float(i)))
		case Int:
			same = got.Ints[i] == want.Ints[i]
		case Bool:
			same = got.Bools[i] == want.Bools[i]
		}
		if !same {
			t.Fatalf("element %d is %v, expected %v, of %v without %v", i, got, want, g.Nodes, parts)
		}
	}
	return small
}

// A graph of any operators without any elements of its inputs gives what the whole graph gives with zeros.
func FuzzCut(f *testing.F) {
	for i := range 200 {
		f.Add([]byte{byte(i), 101, 2, 1, 3, 160, 2, 1, 1, 1, 0, 1, 1, 7, 120, 3, 1, 2, 3, 210, 1, 1}, []byte{1, 5, 3, byte(i)})
		f.Add([]byte{byte(i), 120, 2, 2, 3, 1, 0, 130, 2, 3, 2, 7, 8, 9, 1, 2, 3, 1, 2, 1, 4, byte(i), 0, 1, 2, 3}, []byte{0, 5, 7, byte(i), 11, 13})
	}
	f.Fuzz(func(t *testing.T, data, which []byte) {
		p := &program{data: data[:min(len(data), 200)], g: &Graph{}}
		for len(p.data) > 0 {
			if out, err := p.node(); err == nil {
				p.g.Output = out[0]
			}
		}
		if len(p.g.Nodes) == 0 || p.g.Values[p.g.Output].Constant != nil || p.g.varied > 1<<12 || p.g.rowWork > 1<<16 {
			return
		}
		var inputs []*Tensor
		for _, v := range p.g.Inputs {
			in := newTensor(p.g.Values[v].Type, p.g.Values[v].Shape)
			for i := range in.Floats {
				in.Floats[i] = float32(i%7) - 2.5
			}
			for i := range in.Bools {
				in.Bools[i] = i%2 == 0
			}
			inputs = append(inputs, in)
		}
		p.data = which
		checkCut(t, p.g, inputs, p.parts())
	})
}

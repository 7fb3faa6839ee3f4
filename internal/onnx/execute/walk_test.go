package execute_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/execute"
	"shaver/internal/onnx/graph"
)

// walkHead is a head whose walks update linear layers.
type walkHead struct {
	build   func(b *builder) (players []graph.Value)
	updates int // number of layers that a Walker updates
}

// fields adds an input of n vectors, 16 elements each, and returns it and the players.
func (b *builder) fields(n int) (x graph.Value, players []graph.Value) {
	x = b.AddInput("x", graph.Float, []int{1, n, 16})
	return x, []graph.Value{x}
}

func (b *builder) flat(v graph.Value, n int) graph.Value {
	return b.node("Reshape", nil, v, b.ints(1, int64(n)))
}

// layer adds a linear layer with weights of the usual size.
func (b *builder) layer(v graph.Value, in, out int, relu bool) graph.Value {
	w := b.tensor([]int{in, out})
	for i := range w.Floats {
		w.Floats[i] /= float32(math.Sqrt(float64(in)))
	}
	v = b.node("Add", nil, b.node("MatMul", nil, v, b.AddConstant(w)), b.constant(out))
	if relu {
		v = b.node("Relu", nil, v)
	}
	return v
}

var walkHeads = map[string]walkHead{
	"MLP": {func(b *builder) []graph.Value {
		x, players := b.fields(20)
		b.sum(b.layer(b.layer(b.flat(x, 320), 320, 40, true), 40, 30, true))
		return players
	}, 1},
	"normalised": {func(b *builder) []graph.Value { // what reaches the layer is moved, scaled and added
		x, players := b.fields(20)
		v := b.node("Add", nil, b.node("Mul", nil, x, b.constant(16)), b.node("Neg", nil, b.node("Transpose", attribute("perm", []int64{0, 1, 2}), x)))
		b.sum(b.layer(b.flat(v, 320), 320, 40, true))
		return players
	}, 1},
	"attention": {func(b *builder) []graph.Value { // three projections of each vector
		x, players := b.fields(20)
		query, key, value := b.layer(x, 16, 64, false), b.layer(x, 16, 64, false), b.layer(x, 16, 64, true)
		scores := b.node("Softmax", nil, b.node("MatMul", nil, query, b.node("Transpose", attribute("perm", []int64{0, 2, 1}), key)))
		b.sum(b.layer(b.flat(b.node("MatMul", nil, scores, value), 20*64), 20*64, 10, true))
		return players
	}, 3},
	"dots": {func(b *builder) []graph.Value { // some inputs depend on many players, and always change
		x, players := b.fields(20)
		dots := b.node("MatMul", nil, x, b.node("Transpose", attribute("perm", []int64{0, 2, 1}), x))
		dots = b.flat(b.node("Slice", nil, dots, b.ints(0), b.ints(6), b.ints(1)), 120)
		all := b.node("Concat", attribute("axis", int64(1)), b.flat(x, 320), dots, b.node("ReduceSum", nil, b.flat(x, 320), b.ints(1)))
		b.sum(b.layer(all, 441, 40, true))
		return players
	}, 1},
	"history": {func(b *builder) []graph.Value { // each vector is compared with one that is in all products, and a mask belongs to the row
		x := b.AddInput("history", graph.Float, []int{1, 20, 16})
		mask := b.AddInput("mask", graph.Float, []int{1, 20, 1})
		item := b.AddInput("item", graph.Float, []int{1, 1, 16})
		shape := b.ints(1, 20, 16)
		target := b.node("Expand", nil, item, shape)
		masked := b.node("Mul", nil, x, mask)
		pairs := b.node("Concat", attribute("axis", int64(2)), target, masked, b.node("Sub", nil, target, masked), b.node("Mul", nil, target, masked))
		weight := b.node("Sigmoid", nil, b.layer(b.layer(pairs, 64, 36, true), 36, 1, false))
		pooled := b.node("ReduceSum", attribute("keepdims", int64(0)), b.node("Mul", nil, masked, weight), b.ints(1))
		mean := b.node("ReduceMean", attribute("keepdims", int64(0)), x, b.ints(1))
		b.sum(b.layer(b.node("Concat", attribute("axis", int64(1)), pooled, mean, b.flat(item, 16)), 48, 40, true))
		return []graph.Value{item, x}
	}, 1},
	"softmax": {func(b *builder) []graph.Value { // each input depends on a few players
		x, players := b.fields(20)
		y := b.node("Softmax", nil, b.node("Reshape", nil, x, b.ints(1, 80, 4)))
		b.sum(b.layer(b.flat(y, 320), 320, 40, true))
		return players
	}, 1},
	"exponential": {func(b *builder) []graph.Value { // an input may be large in some states
		x, players := b.fields(20)
		b.sum(b.layer(b.flat(b.node("Exp", nil, x), 320), 320, 40, true))
		return players
	}, 0},
	"quotient": {func(b *builder) []graph.Value {
		x, players := b.fields(20)
		b.sum(b.layer(b.flat(b.node("Div", nil, x, b.node("Abs", nil, x)), 320), 320, 40, true))
		return players
	}, 0},
	"small": {func(b *builder) []graph.Value { // a block of steps changes everything
		x, players := b.fields(3)
		b.sum(b.layer(b.flat(x, 48), 48, 40, true))
		return players
	}, 0},
}

// follower follows walks of a program with a Walker and with a Runner.
type follower struct {
	p      *execute.Program
	w      *execute.Walker
	plain  *execute.Runner
	x      []float32
	others []float32
}

func newFollower(b *builder, p *execute.Program) *follower {
	f := &follower{p, p.NewWalker(), p.NewRunner(), b.tensor([]int{p.Players()}).Floats, b.tensor([]int{p.Others()}).Floats}
	f.prepare()
	return f
}

// prepare sets the constants of the row.
func (f *follower) prepare() {
	for _, r := range []*execute.Runner{f.w.Runner, f.plain} {
		for i, v := range f.others {
			spread(r.Others().Element(i), v)
		}
		r.Prepare(kernel.States)
	}
}

func spread(states []float32, v float32) {
	for t := range states {
		states[t] = v
	}
}

// walk follows a walk of 20 blocks and returns the outputs of the walker and of Run. at is
// called before each block.
func (f *follower) walk(seed uint64, at func(block int)) (got, want []float64) {
	r, x := rand.New(rand.NewPCG(seed, 7)), slices.Clone(f.x)
	for k, v := range x {
		spread(f.w.Players().Element(k), v)
	}
	f.w.Return()
	for block := range 20 {
		at(block)
		for k, v := range x {
			spread(f.w.Players().Element(k), v)
		}
		states := 1 + r.IntN(kernel.States)
		var changed []int32
		for t := range states {
			for range 1 + r.IntN(2) {
				k := r.IntN(len(x))
				x[k] = float32(r.NormFloat64())
				spread(f.w.Players().Element(k)[t:], x[k])
				changed = append(changed, int32(k))
			}
		}
		copy(f.plain.Players(), f.w.Players())
		dst := make([]float64, states)
		f.w.Continue(dst, changed)
		got = append(got, dst...)
		f.plain.Run(dst)
		want = append(want, dst...)
	}
	return got, want
}

// check compares a walk with Run, and with a second walk. tolerance is relative to the largest
// output.
func (f *follower) check(t *testing.T, tolerance float64) {
	t.Helper()
	for k, v := range f.x {
		f.w.Players().Element(k)[0], f.plain.Players().Element(k)[0] = v, v
	}
	var empty [1]float64
	f.plain.Run(empty[:])
	if start := f.w.Start(); start != empty[0] && start == start {
		t.Fatalf("the walk starts at %v, Run has %v", start, empty[0])
	}
	got, want := f.walk(1, func(int) {})
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(v))
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= tolerance*largest) && want[i] == want[i] {
			t.Fatalf("state %d: %v, expected %v", i, got[i], want[i])
		}
	}
	scratch := make([]float64, kernel.States)
	again, _ := f.walk(1, func(block int) { // other evaluations in between
		if block%3 == 0 {
			for i := range f.w.Others() {
				f.w.Others()[i] = float32(i)
			}
			for i := range f.w.Players() {
				f.w.Players()[i] = float32(block)
			}
			f.w.Prepare(kernel.States)
			f.w.Run(scratch)
			f.prepare()
		}
	})
	if !slices.EqualFunc(got, again, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }) {
		t.Error("a second walk has other bits")
	}
}

// Walks of heads with and without layers to update agree with Run, and do not depend on what
// was evaluated before.
func TestWalks(t *testing.T) {
	for name, head := range walkHeads {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(t, 5)
			players := head.build(b)
			p, err := execute.Compile(b.Graph, players)
			if err != nil {
				t.Fatal(err)
			}
			if p.Updates() != head.updates || (p.WalkProducts() < p.Products()) != (head.updates > 0) {
				t.Errorf("%d updates with %d of %d products, expected %d", p.Updates(), p.WalkProducts(), p.Products(), head.updates)
			}
			f := newFollower(b, p)
			f.check(t, 1e-5)
			changed, dst := []int32{3, 40, 7}, make([]float64, 3)
			if n := testing.AllocsPerRun(5, func() { f.w.Return(); f.w.Continue(dst, changed); f.w.Start() }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// Walks of random graphs agree with Run if all layers are updated that may be.
func TestRandomWalks(t *testing.T) {
	updates := 0
	for seed := range uint64(100) {
		b := newBuilder(t, seed)
		players := b.randomHead(5 + b.r.IntN(25))[:1+b.r.IntN(2)]
		p, err := execute.CompileEager(b.Graph, players)
		if err != nil {
			t.Fatal(err)
		}
		updates += p.Updates()
		newFollower(b, p).check(t, 1e-2)
		if t.Failed() {
			t.Fatalf("graph %d", seed)
		}
	}
	if updates < 100 {
		t.Errorf("%d updates", updates)
	}
}

package dissect

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// maxBound bounds the number of inputs that are offsets of bags.
const maxBound = 1 << 10

// dissect repeats attempt until no more inputs are found to be the offsets of bags.
func dissect(m *wire.Model, o Options) (*Network, error) {
	bound, all := map[string]bool{}, newCommon()
	for {
		n, err := attempt(m, o, bound, all)
		var found *bindError
		if !errors.As(err, &found) {
			return n, err
		}
		if bound[found.input] || len(bound) == maxBound {
			return nil, fault.Inputf("%w", err)
		}
		bound[found.input] = true
	}
}

// maxWork bounds the multiplications of the rows of a build, in addition to 256 for each
// element of the tensors that the file has. graph.Graph.Run does a few hundred million in a
// second.
const maxWork = 1 << 27

// attempt takes m apart. bound is the set of inputs that are known to be the offsets of
// bags.
func attempt(m *wire.Model, o Options, bound map[string]bool, all *common) (*Network, error) {
	p, err := newPlan(m, o, bound, all)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(p.inputs, func(in input) bool { return in.axis >= 0 }) {
		return p.dynamic(o)
	}
	n, err := p.single(o)
	var several *severalError
	if !errors.As(err, &several) {
		return n, err
	}
	// The file may have been exported for a fixed number of rows.
	if q, other := newPlan(m, o, bound, all); other == nil && q.fix(several.count) {
		if n, other := q.several(o); other == nil {
			n.Notes = append(n.Notes, fmt.Sprintf("the file was exported for batches of %d rows", several.count))
			return n, nil
		}
	}
	return nil, err
}

// single takes apart a file that has no batch axis, or one of size 1.
func (p *plan) single(o Options) (*Network, error) {
	one, err := p.probe(1)
	if err != nil {
		return nil, err
	}
	return one.finish(o)
}

// several takes apart a file that was exported for a fixed number of rows.
func (p *plan) several(o Options) (*Network, error) {
	all, err := p.probe(p.fixed)
	if err != nil {
		return nil, err
	}
	return p.compared(all, all, o)
}

// dynamic takes apart a file whose batch axis has no fixed size.
func (p *plan) dynamic(o Options) (*Network, error) {
	three, err := p.probe(3)
	var two *probe
	if err == nil {
		two, err = p.probe(2)
	}
	if err == nil {
		return p.compared(two, three, o)
	}
	var found *bindError
	if errors.As(err, &found) {
		return nil, err
	}
	clear(p.decisions)
	n, failure := p.single(o)
	if failure != nil {
		return nil, failure
	}
	n.Notes = append(n.Notes, fmt.Sprintf("the graph computes one row at a time only, although the batch axis has no fixed size (%v)", err))
	return n, nil
}

// compared returns the network for one row, if it agrees with two and three (compare).
func (p *plan) compared(two, three *probe, o Options) (*Network, error) {
	one, err := p.probe(1)
	if err != nil {
		return nil, err
	}
	if err := compare(one, two, three); err != nil {
		return nil, err
	}
	return one.finish(o)
}

// probe is a build for some rows with the outputs of the file.
type probe struct {
	*builder
	values []*value // the outputs
}

// probe builds the head for a number of rows.
func (p *plan) probe(batch int) (*probe, error) {
	b, values, err := p.build(batch)
	if err != nil {
		return nil, err
	}
	all := &probe{b, values}
	for i, v := range values {
		p.take(i)
		if err := b.materialise(v, &step{name: b.output, op: "output"}); err != nil {
			return nil, err
		}
		all.take(i)
	}
	_, given := b.head.Folded()
	if most := maxWork + 256*given; b.head.Work(most) > most {
		return nil, fault.Inputf("output %s takes more than %d multiplications, expected a click model", wire.Quote(b.output), most)
	}
	return all, nil
}

// take makes output i that of the head.
func (p *probe) take(i int) {
	p.plan.take(i)
	p.head.Output = p.values[i].head
}

// shape returns the shape of the output of the head.
func (p *probe) shape() []int { return p.head.Values[p.head.Output].Shape }

// finish makes the logit the output of the head, and describes the network.
func (p *probe) finish(o Options) (*Network, error) {
	var texts []string
	var logits []graph.Value
	for i, v := range p.values {
		p.take(i)
		text, err := p.logit(v, o)
		if err != nil {
			return nil, err
		}
		texts, logits = append(texts, text), append(logits, p.head.Output)
	}
	if len(logits) > 1 {
		if err := p.joinTasks(logits); err != nil {
			return nil, err
		}
	}
	n, err := p.network()
	if err != nil {
		return nil, err
	}
	n.Logit = strings.Join(texts, "; ")
	return n, nil
}

// joinTasks makes the logit of all tasks the output of the head; see Network.Tasks.
func (b *builder) joinTasks(logits []graph.Value) error {
	c := &chances{builder: b}
	for t, z := range logits {
		s := b.head.AddInput(TaskInput(t), graph.Float, []int{1, 1})
		b.selector = append(b.selector, s)
		logits[t] = c.do("Mul", c.do("Reshape", z, b.head.AddConstant(graph.NewInts([]int64{1, 1}, 2))), s)
	}
	b.head.Output = c.do("Sum", logits...)
	b.end = wire.End{Output: b.names(), Op: "Sum"} // which no calibration changes
	return c.err
}

// run computes the output for rows whose contents are drawn from seeds, one for each row.
func (p *probe) run(seeds ...uint64) (*graph.Tensor, error) {
	places := map[graph.Value]place{}
	offsets := map[graph.Value]int{}
	for _, l := range p.lookUps {
		places[l.value], offsets[l.value] = l.place, 1+l.offset
	}
	type interval struct{ first, count int }
	whole := map[graph.Value]interval{} // ids and other whole numbers
	ids := map[place]bool{}
	for _, l := range p.lookUps {
		ids[l.place] = true
	}
	for _, d := range p.numbers {
		places[d.value] = d.place
		if ids[d.place] {
			whole[d.value] = interval{0, 3}
		} else if !p.inputs[d.input].Type.Floating() {
			whole[d.value] = interval{1, 2} // an empty list may have no last item
		}
	}
	inputs := make([]*graph.Tensor, len(p.head.Inputs))
	for i, v := range p.head.Inputs {
		at := places[v]
		shape := p.head.Values[v].Shape
		count, err := graph.Count(shape)
		if err != nil {
			return nil, err
		}
		random := rand.New(rand.NewPCG(seeds[at.row], uint64(at.input)<<40+uint64(at.column)<<20+uint64(offsets[v])))
		t := graph.NewFloats(make([]float32, count), shape...)
		for k := range t.Floats {
			t.Floats[k] = float32(random.Float64() - 0.5)
			if w, ok := whole[v]; ok {
				t.Floats[k] = float32(w.first + random.IntN(w.count))
			}
		}
		inputs[i] = t
	}
	return p.head.Run(inputs)
}

// compare checks that the rows of a batch do not depend on each other. Each row of the
// output must equal the output for this row alone. two and three are probes of several rows,
// and may be the same.
func compare(one, two, three *probe) error {
	for i := range one.values {
		one.take(i)
		two.take(i)
		three.take(i)
		if err := compareOutput(one, two, three); err != nil {
			return err
		}
	}
	return nil
}

// compareOutput is compare for the outputs of the heads.
func compareOutput(one, two, three *probe) error {
	name := wire.Quote(one.output)
	axis := -1
	alone, pair, triple := one.shape(), two.shape(), three.shape()
	if len(alone) == len(pair) && len(alone) == len(triple) {
		for i := range alone {
			if alone[i] == 1 && pair[i] == two.batch && triple[i] == three.batch && axis < 0 {
				axis = i
			} else if alone[i] != pair[i] || alone[i] != triple[i] {
				axis = len(alone)
			}
		}
	}
	if axis < 0 || axis == len(alone) {
		return fault.Inputf("output %s has the shapes %v, %v and %v for 1, %d and %d rows, expected an axis with the rows, and rows that do not depend on each other",
			name, alone, pair, triple, two.batch, three.batch)
	}
	const a, b, c = 1, 2, 3
	var results [3][2][]float64 // of the rows a and b, a and c, b and a
	for i, seeds := range [][]uint64{{a, b}, {a, c}, {b, a}} {
		for len(seeds) < two.batch {
			seeds = append(seeds, c)
		}
		t, err := two.run(seeds...)
		if err != nil {
			return fault.Inputf("computing several rows: %w", err)
		}
		results[i] = [2][]float64{slice(t, axis, 0), slice(t, axis, 1)}
	}
	t, err := one.run(a)
	if err != nil {
		return fault.Inputf("computing one row: %w", err)
	}
	for _, other := range [][]float64{results[0][0], results[1][0], results[2][1]} {
		for i, want := range slice(t, axis, 0) {
			if math.Abs(other[i]-want) > 1e-4*max(1, math.Abs(want)) || math.IsNaN(other[i]) != math.IsNaN(want) {
				return fault.Inputf("output %s of a row depends on the other rows of its batch (%v alone, %v with another row), expected independent rows", name, want, other[i])
			}
		}
	}
	if !slices.EqualFunc(results[0][0], results[1][0], func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) }) {
		return fault.Inputf("output %s of a row depends on the other rows of its batch, expected independent rows", name)
	}
	return nil
}

// slice returns the elements of t at position at of an axis.
func slice(t *graph.Tensor, axis, at int) []float64 {
	inner := 1
	for _, size := range t.Shape[axis+1:] {
		inner *= size
	}
	var out []float64
	for i := range t.Len() {
		if i/inner%t.Shape[axis] != at {
			continue
		}
		switch t.Type {
		case graph.Float:
			out = append(out, float64(t.Floats[i]))
		case graph.Int:
			out = append(out, float64(t.Ints[i]))
		case graph.Bool:
			if t.Bools[i] {
				out = append(out, 1)
			} else {
				out = append(out, 0)
			}
		}
	}
	return out
}

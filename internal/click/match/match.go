// Package match finds out whether a graph computes the logit of an FM, DeepFM, WideDeep or
// DCNv2, and returns its weights if so.
//
// It reads the graph as algebra and not as a pattern of nodes: each element of a value is a
// polynomial in the elements of look-ups and in the outputs of linear layers and ReLUs. The
// logit's polynomial then shows what the model is, in whatever order and with whatever
// operators an exporter wrote it. The last step evaluates both on some rows.
package match

import (
	"errors"
	"fmt"
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/onnx/graph"
)

// Samples is the number of rows of LookUp.Sample.
const Samples = 6

// LookUp is a look-up whose values are an input of a head, of shape [1, dim].
type LookUp struct {
	Field  int
	Player bool        // whether its values are players; the others are first-order weights
	Value  graph.Value // input of the head
	Sample []float32   // [Samples, dim], rows of its table, for the comparison
}

// Network is a model of a kind of package model, without its tables. Its matrices may share
// memory with the graph.
type Network struct {
	Kind      model.Kind
	Structure string // of a DCNv2
	Dim       int
	// Embedding has the look-up of each field.
	Embedding []int
	// FirstOrder has the factor of each look-up's values as first-order weights, or is nil
	// if the model has none.
	FirstOrder []float64
	Bias       float32
	Linear     []float32 // [D]; may be nil
	Hidden     []Layer
	Output     model.Linear
	Cross      []model.Linear
}

// Layer is a hidden layer.
type Layer struct {
	model.Linear
	Norm *Norm // BatchNorm after it; may be nil
}

// Norm is a BatchNorm with the epsilon of package model.
type Norm struct{ Gamma, Beta, Mean, Variance []float32 }

// Find returns the model that g computes, for a number of fields. The error says why it is
// of no kind of package model; it is no defect of the graph. The values of lookUps are all
// inputs of g, in their order.
func Find(g *graph.Graph, fields int, lookUps []LookUp) (*Network, error) {
	if len(lookUps) != len(g.Inputs) {
		return nil, errors.New("it has dense inputs")
	}
	m := &matcher{reader: reader{g: g, values: map[graph.Value][]polynomial{}, places: []place{{}}, used: map[*graph.Tensor]bool{}}, lookUps: lookUps}
	n := &m.Network
	n.Embedding = slices.Repeat([]int{-1}, fields)
	for k, l := range lookUps {
		size, err := graph.Count(g.Values[l.Value].Shape)
		if err != nil || g.Inputs[k] != l.Value || g.Values[l.Value].Type != graph.Float {
			return nil, errors.New("its inputs are not its look-ups")
		}
		if m.values[l.Value], err = m.atoms(&source{lookUp: k}, size); err != nil {
			return nil, err
		}
		switch {
		case !l.Player && size != 1:
			return nil, errors.New("a table of first-order weights has several columns")
		case !l.Player:
			continue
		case n.Embedding[l.Field] >= 0:
			return nil, fmt.Errorf("field %d has several embeddings", l.Field)
		case n.Dim != 0 && n.Dim != size:
			return nil, errors.New("the embeddings have different widths")
		}
		n.Dim, n.Embedding[l.Field] = size, k
	}
	if j := slices.Index(n.Embedding, -1); j >= 0 {
		return nil, fmt.Errorf("field %d has no embedding", j)
	}
	if err := m.read(); err != nil {
		return nil, err
	}
	if err := m.logit(); err != nil {
		return nil, err
	}
	return n, n.compare(g, lookUps)
}

// matcher recognises the parts of a model.
type matcher struct {
	reader
	Network
	lookUps []LookUp
	linear  []float64 // [D]
	bias    float64   // of the whole logit
}

// players returns D.
func (m *matcher) players() int { return len(m.Embedding) * m.Dim }

// player returns the number of the player that a is, or -1.
func (m *matcher) player(a atom) int {
	p := m.places[a]
	if a == 0 || !p.source.isInput() || !m.lookUps[p.source.lookUp].Player {
		return -1
	}
	return m.lookUps[p.source.lookUp].Field*m.Dim + p.element
}

func (s *source) isInput() bool { return s.linear == nil && s.norm == nil && !s.relu }

var errUnknown = errors.New("its logit is a sum that no kind has")

// logit recognises the output.
func (m *matcher) logit() error {
	elements, err := m.elements(m.g.Output)
	if err != nil || len(elements) != 1 {
		return errUnknown
	}
	m.FirstOrder, m.linear = make([]float64, len(m.lookUps)), make([]float64, m.players())
	network := &sum{}
	pairs := 0
	for _, t := range elements[0] {
		atoms := t.monomial.atoms()
		switch t.monomial.degree() {
		case 0:
			m.bias += t.factor
		case 1:
			if s := m.places[atoms[0]].source; s.isInput() {
				m.single(atoms[0], t.factor)
			} else if s.linear == nil || s.linear.out != 1 || t.factor != 1 {
				return errUnknown
			} else {
				m.last(s, network)
			}
		case 2:
			p, q := m.player(atoms[0]), m.player(atoms[1])
			if p < 0 || q < 0 || p == q || p%m.Dim != q%m.Dim || t.factor != 1 {
				return errUnknown
			}
			pairs++
		default:
			return errUnknown
		}
	}
	if fields := len(m.Embedding); pairs != 0 && pairs != fields*(fields-1)/2*m.Dim {
		return errors.New("it has some pairs of fields, but not all")
	}
	if m.Kind = model.FM; len(network.inputs) > 0 {
		if err := m.deep(network); err != nil {
			return err
		}
	} else if pairs == 0 {
		return errors.New("it has neither pairs of fields nor hidden layers")
	}
	switch {
	case m.Kind == model.DCNv2 && pairs > 0:
		return errors.New("it has pairs of fields and cross layers")
	case m.Kind == model.WideDeep && pairs > 0:
		m.Kind = model.DeepFM
	}
	m.Bias = float32(m.bias)
	if hasValue(m.linear) {
		for _, f := range m.linear {
			m.Linear = append(m.Linear, float32(f))
		}
	}
	if needed := m.Kind == model.FM || m.Kind != model.DCNv2 && m.Linear == nil; !needed && !hasValue(m.FirstOrder) {
		m.FirstOrder = nil
	}
	return nil
}

func hasValue(list []float64) bool {
	return slices.ContainsFunc(list, func(f float64) bool { return f != 0 })
}

// single adds an element of a look-up, times a factor, to the logit.
func (m *matcher) single(a atom, factor float64) {
	if p := m.player(a); p >= 0 {
		m.linear[p] += factor
	} else {
		m.FirstOrder[m.places[a].source.lookUp] += factor
	}
}

// sum is a linear layer with one output.
type sum struct {
	inputs []polynomial
	weight []float32
	bias   float64
}

// last adds a linear layer with one output to the logit. What it reads of the network goes
// to network.
func (m *matcher) last(s *source, network *sum) {
	before := len(network.inputs)
	for i, p := range s.inputs {
		if a := p.atom(); a != 0 && m.places[a].source.isInput() {
			m.single(a, float64(s.linear.weight[i]))
			continue
		}
		network.inputs, network.weight = append(network.inputs, p), append(network.weight, s.linear.weight[i])
	}
	switch {
	case s.linear.bias == nil:
	case len(network.inputs) == before:
		m.bias += float64(s.linear.bias[0])
	default:
		network.bias += float64(s.linear.bias[0])
	}
}

// deep recognises the hidden layers and cross layers that network reads.
func (m *matcher) deep(network *sum) error {
	var units, crossed sum
	for i, p := range network.inputs {
		into := &crossed
		if a := p.atom(); a != 0 && m.places[a].source.relu {
			into = &units
		}
		into.inputs, into.weight = append(into.inputs, p), append(into.weight, network.weight[i])
	}
	if len(units.inputs) == 0 {
		return errors.New("it has no hidden layers with ReLU")
	}
	m.Output = model.Linear{In: len(units.inputs), Out: 1, Weight: units.weight, Bias: []float32{float32(network.bias)}}
	next, inputs := &m.Output, units.inputs
	for {
		layer, below, err := m.hidden(next, inputs)
		if err != nil {
			return err
		}
		m.Hidden = append(m.Hidden, layer)
		if next, inputs = &m.Hidden[len(m.Hidden)-1].Linear, below; len(inputs) == 0 {
			return errors.New("a layer reads nothing")
		}
		if a := inputs[0].atom(); a == 0 || !m.places[a].source.relu {
			break
		}
		if len(m.Hidden) > maxLayers {
			return errors.New("it has too many layers")
		}
	}
	m.Kind = model.WideDeep
	switch order, err := m.direct(inputs); {
	case err == nil && len(crossed.inputs) == 0:
		reorder(next, order)
	case err == nil:
		reorder(next, order)
		m.Kind, m.Structure = model.DCNv2, model.Parallel
		order, err := m.crossed(crossed.inputs)
		if err != nil {
			return err
		}
		side := model.Linear{In: len(order), Out: 1, Weight: crossed.weight}
		reorder(&side, order)
		m.Output.Weight = append(slices.Clone(side.Weight), m.Output.Weight...)
		m.Output.In += side.In
	case len(crossed.inputs) > 0, !slices.ContainsFunc(inputs, func(p polynomial) bool { return len(p) > 1 }):
		return err
	default:
		m.Kind, m.Structure = model.DCNv2, model.Stacked
		if order, err = m.crossed(inputs); err != nil {
			return err
		}
		reorder(next, order)
	}
	slices.Reverse(m.Hidden)
	return nil
}

// maxLayers bounds the hidden layers.
const maxLayers = 1 << 10

// reorder moves column i of l to order[i], which is a permutation.
func reorder(l *model.Linear, order []int) {
	if slices.IsSorted(order) {
		return
	}
	weight := make([]float32, len(l.Weight))
	for o := range l.Out {
		for i, to := range order {
			weight[o*l.In+to] = l.Weight[o*l.In+i]
		}
	}
	l.Weight = weight
}

// permutation reports whether order has every number below n once.
func permutation(order []int, n int) bool {
	if len(order) != n {
		return false
	}
	seen := make([]bool, n)
	for _, i := range order {
		if i < 0 || i >= n || seen[i] {
			return false
		}
		seen[i] = true
	}
	return true
}

// hidden recognises the layer whose units after ReLU are inputs, in any order, and orders
// the columns of next, which reads them. It returns the layer and what it reads.
func (m *matcher) hidden(next *model.Linear, inputs []polynomial) (layer Layer, below []polynomial, err error) {
	unknown := errors.New("the units of a hidden layer are not ReLUs of one linear layer")
	var from, normed *source
	order := make([]int, len(inputs))
	scale, shift := make([]float64, len(inputs)), make([]float64, len(inputs)) // by input
	scaled := false
	for i, p := range inputs {
		a := p.atom()
		relu := m.places[a]
		if a == 0 || !relu.source.relu {
			return layer, nil, unknown
		}
		var s, t float64
		if a, s, t = relu.source.inputs[relu.element].affine(); a == 0 {
			return layer, nil, unknown
		}
		at := m.places[a]
		var norm *source
		if at.source.norm != nil {
			norm = at.source
			element := at.element
			if a = norm.inputs[element].atom(); a == 0 || s != 1 || t != 0 {
				return layer, nil, unknown
			}
			if at = m.places[a]; at.element != element {
				return layer, nil, unknown
			}
		}
		if at.source.linear == nil || i > 0 && (at.source != from || norm != normed) {
			return layer, nil, unknown
		}
		from, normed = at.source, norm
		order[i], scale[i], shift[i] = at.element, s, t
		scaled = scaled || s != 1 || t != 0
	}
	if from == nil || !permutation(order, from.linear.out) {
		return layer, nil, unknown
	}
	reorder(next, order)
	layer.Linear = model.Linear{In: len(from.inputs), Out: from.linear.out, Weight: from.linear.weight, Bias: from.linear.bias}
	if layer.Bias == nil {
		layer.Bias = make([]float32, layer.Out)
	}
	if normed != nil {
		if layer.Norm, err = normed.norm.like(); err != nil {
			return layer, nil, err
		}
	}
	if scaled {
		layer.Weight, layer.Bias = slices.Clone(layer.Weight), slices.Clone(layer.Bias)
		for i, o := range order {
			for k, w := range layer.Weight[o*layer.In : (o+1)*layer.In] {
				layer.Weight[o*layer.In+k] = float32(float64(w) * scale[i])
			}
			layer.Bias[o] = float32(float64(layer.Bias[o])*scale[i] + shift[i])
		}
	}
	return layer, from.inputs, nil
}

// like returns n with the epsilon of package model.
func (n *norm) like() (*Norm, error) {
	out := &Norm{n.gamma, n.beta, n.mean, n.variance}
	if n.epsilon == model.BatchNormEpsilon {
		return out, nil
	}
	out.Variance = make([]float32, len(n.variance))
	for i, v := range n.variance {
		changed := float64(v) + float64(n.epsilon) - model.BatchNormEpsilon
		if changed < 0 {
			return nil, errors.New("a BatchNorm has a variance too small for another epsilon")
		}
		out.Variance[i] = float32(changed)
	}
	return out, nil
}

// direct returns the players that inputs are, if these are all players.
func (m *matcher) direct(inputs []polynomial) ([]int, error) {
	order := make([]int, len(inputs))
	for i, p := range inputs {
		order[i] = m.player(p.atom())
	}
	if !permutation(order, m.players()) {
		return nil, errors.New("the hidden layers read neither the embeddings of all fields nor a layer of the network")
	}
	return order, nil
}

// crossed recognises the cross layers whose outputs are inputs, in any order, and returns
// the player of each. The output for player p is p + the sum over the layers of
// p * (W x + b)_p, where x is the output of the layers before.
func (m *matcher) crossed(inputs []polynomial) ([]int, error) {
	unknown := errors.New("it multiplies values, but not as in the cross layers of a DCNv2")
	order := make([]int, len(inputs))
	outputs := make([]polynomial, m.players()) // of all layers, by player
	type row struct {
		source *source
		player int
	}
	rows := map[row]int{} // row of a layer's matrix
	sizes := map[*source]int{}
	for i, p := range inputs {
		player := -1
		for _, t := range p {
			if t.monomial.degree() == 1 {
				player = m.player(atom(t.monomial)) // there is one at the start of p
			}
		}
		if order[i] = player; player < 0 {
			return nil, unknown
		}
		outputs[player] = p
		for _, t := range p {
			atoms := t.monomial.atoms()
			switch t.monomial.degree() {
			case 1:
				if t.factor != 1 || m.player(atoms[0]) != player {
					return nil, unknown
				}
			case 2:
				if m.player(atoms[0]) != player {
					atoms[0], atoms[1] = atoms[1], atoms[0]
				}
				at := m.places[atoms[1]]
				if t.factor != 1 || m.player(atoms[0]) != player || at.source.linear == nil || at.source.linear.out != m.players() {
					return nil, unknown
				}
				rows[row{at.source, player}] = at.element
				sizes[at.source]++
			default:
				return nil, unknown
			}
		}
	}
	if !permutation(order, m.players()) || len(sizes) == 0 {
		return nil, unknown
	}
	known := make([]polynomial, m.players()) // outputs of the layers so far
	for player := range known {
		known[player] = polynomial{outputs[player][0]}
	}
	for range len(sizes) {
		var layer *source
		columns := make([]int, m.players())
		for s := range sizes { // exactly one reads what is known, because the outputs of all layers differ
			if m.reads(s, known, columns) {
				layer = s
				break
			}
		}
		if layer == nil || sizes[layer] != m.players() {
			return nil, unknown
		}
		delete(sizes, layer)
		l := model.Linear{In: m.players(), Out: m.players(), Weight: layer.linear.weight, Bias: layer.linear.bias}
		if l.Bias == nil {
			l.Bias = make([]float32, l.Out)
		}
		reorder(&l, columns)
		units := make([]int, m.players()) // row of each player
		for player := range units {
			units[player] = rows[row{layer, player}]
		}
		if !permutation(units, m.players()) {
			return nil, unknown
		}
		if !slices.IsSorted(units) {
			weight, bias := make([]float32, 0, len(l.Weight)), make([]float32, 0, l.Out)
			for _, o := range units {
				weight, bias = append(weight, l.Weight[o*l.In:(o+1)*l.In]...), append(bias, l.Bias[o])
			}
			l.Weight, l.Bias = weight, bias
		}
		m.Cross = append(m.Cross, l)
		for player, p := range known {
			known[player] = m.extend(p, outputs[player], layer)
		}
	}
	return order, nil
}

// reads reports whether the inputs of a layer are what is known, in any order, and sets
// columns to the player of each input.
func (m *matcher) reads(s *source, known []polynomial, columns []int) bool {
	if len(s.inputs) != len(known) {
		return false
	}
	for i, p := range s.inputs {
		if len(p) == 0 || p[0].monomial > maxAtom {
			return false
		}
		columns[i] = m.player(atom(p[0].monomial))
		if columns[i] < 0 || !slices.Equal(p, known[columns[i]]) {
			return false
		}
	}
	return permutation(columns, len(known))
}

// extend returns p with the terms of all that have an output of a layer.
func (m *matcher) extend(p, all polynomial, layer *source) polynomial {
	terms := slices.Clone(p)
	for _, t := range all {
		for _, a := range t.monomial.atoms() {
			if a != 0 && m.places[a].source == layer {
				terms = append(terms, t)
			}
		}
	}
	return collect(terms)
}

package execute

import (
	"slices"

	"shaver/internal/num/kernel"
)

// kinks finds the units whose ReLU may switch when a single player changes, for which kink
// terms can be computed (see kernel.Kinks). These are the units of a Relu whose input is a
// linear layer that reads players. Both the players and the results of the layer may be
// multiplied by constants first, as by a batch normalization.
type kinks struct {
	*compiler
	layers []kinkLayer
	weight []float32 // [units, players], over all layers; each begins at a multiple of kernel.Columns, after weights of 0
}

// kinkLayer is a Relu that belongs to the kinks.
type kinkLayer struct {
	relu   *applyOp
	pre    []int32 // adjacent rows before relu
	slopes []int32 // adjacent rows of the derivatives with respect to the results of relu
}

// source is a row that is factor times a player plus a constant.
type source struct {
	player int32
	factor float32
}

// unit is a row that is factor times a result of a linear layer plus a constant.
type unit struct {
	layer  *linearOp
	number int // of the result
	factor float32
}

// findKinks returns the kinks of the instructions so far. It takes the Relu out of linear
// layers that belong to them, because kink terms need what the layer computes before it.
func (c *compiler) findKinks() *kinks {
	k := &kinks{compiler: c}
	sources, units := map[int32]source{}, map[int32]unit{} // by row
	for p := range int32(c.p.players) {
		sources[p] = source{p, 1}
	}
	var each []instruction
	for _, in := range c.each {
		switch o := in.(type) {
		case *linearOp:
			if o.vectors != 1 || !slices.ContainsFunc(o.x, func(row int32) bool { _, ok := sources[row]; return ok }) {
				break
			}
			layer := o
			if o.relu {
				layer = &linearOp{o.m, c.allocate(len(o.out), o.x), o.x, 1, false}
				each, in = append(each, layer), &applyOp{f: kernel.ReLU, out: o.out, x: layer.out}
			}
			for i, row := range layer.out {
				units[row] = unit{layer, i, 1}
			}
			if o.relu {
				k.add(in.(*applyOp), units, sources)
			}
		case *applyOp:
			switch o.f {
			case kernel.Copy:
				for i, row := range o.x {
					if s, ok := sources[row]; ok {
						sources[o.out[i]] = s
					}
				}
			case kernel.ReLU:
				k.add(o, units, sources)
			}
		case *affineOp:
			for i, row := range o.x {
				if s, ok := sources[row]; ok {
					sources[o.out[i]] = source{s.player, s.factor * o.scale[i]}
				}
				if u, ok := units[row]; ok {
					units[o.out[i]] = unit{u.layer, u.number, u.factor * o.scale[i]}
				}
			}
		}
		each = append(each, in)
	}
	c.each = each
	if len(k.weight) > 2*c.p.products { // kink terms would take longer than all else
		k.layers, k.weight = nil, nil
	}
	return k
}

// add adds a Relu if all its inputs are units.
func (k *kinks) add(relu *applyOp, units map[int32]unit, sources map[int32]source) {
	players := k.p.players
	from := kernel.Pad(len(k.weight)/players) * players
	if from+len(relu.x)*players > maxShared || slices.ContainsFunc(relu.x, func(row int32) bool { return units[row].layer == nil }) {
		return
	}
	k.layers = append(k.layers, kinkLayer{relu: relu})
	k.weight = append(k.weight, make([]float32, from+len(relu.x)*players-len(k.weight))...)
	for i, row := range relu.x {
		u, weight := units[row], k.weight[from+i*players:][:players]
		for input, row := range u.layer.x {
			if s, ok := sources[row]; ok {
				weight[s.player] += u.layer.m.Weight(u.number, input) * s.factor * u.factor
			}
		}
	}
}

// keep remembers the derivatives with respect to the results of in, if it belongs to the
// kinks. d must not have followed in yet.
func (k *kinks) keep(d *differentiator, in instruction) {
	for i := range k.layers {
		if l := &k.layers[i]; instruction(l.relu) == in {
			l.slopes = k.adjacent(d.filled(d.slopes(l.relu.out)))
			l.pre = k.adjacent(l.relu.x)
		}
	}
}

// adjacent returns the rows, or copies of them if they are not adjacent.
func (c *compiler) adjacent(rows []int32) []int32 {
	if c.contiguous(rows) {
		return rows
	}
	return c.gather(rows)
}

// rows returns the rows that Units reads.
func (k *kinks) rows() []int32 {
	var rows []int32
	for _, l := range k.layers {
		rows = append(append(rows, l.pre...), l.slopes...)
	}
	return rows
}

// finish sets what the program needs for kink terms. at returns the places of rows.
func (k *kinks) finish(at func([]int32) []int32) {
	if len(k.layers) == 0 {
		return
	}
	units := len(k.weight) / k.p.players
	k.p.kinks = &programKinks{Kinks: kernel.NewKinks(k.weight, k.p.players, units), weight: k.weight}
	for _, l := range k.layers {
		k.p.kinks.layers = append(k.p.kinks.layers, kinkRows{at(l.pre[:1])[0], at(l.slopes[:1])[0], len(l.pre)})
	}
}

// programKinks is what a program needs for kink terms.
type programKinks struct {
	*kernel.Kinks
	weight []float32 // [units, players]
	layers []kinkRows
}

// kinkRows is where the units of a layer are in the arena, one after the other.
type kinkRows struct {
	pre, slope int32 // first of the rows before the Relu, and of the derivatives with respect to the rows after it
	units      int
}

// Kinks returns the layer for whose units kink terms can be computed, or nil if the program
// has none. Its inputs are the players. weight, [Out, In], are its weights, which the caller
// must not change.
func (p *Program) Kinks() (layer *kernel.Kinks, weight []float32) {
	if p.kinks == nil {
		return nil, nil
	}
	return p.kinks.Kinks, p.kinks.weight
}

// Units sets what kernel.Kinks.Terms needs, for the states that the last calls of Run and
// Differentiate have computed: pre, [States, units], to the units before the Relu, and slope,
// [States, units], to the derivatives with respect to the units after it. Both tiles must have
// a row more. There must be no other call since Differentiate, and the program must have kink
// terms.
func (r *Runner) Units(pre, slope kernel.Tile, states int) {
	from := 0
	for _, l := range r.p.kinks.layers {
		from = kernel.Pad(from) // ToTile writes whole vectors
		kernel.ToTile(columns(pre, from), r.arena[int(l.pre)*kernel.States:], states, l.units)
		kernel.ToTile(columns(slope, from), r.arena[int(l.slope)*kernel.States:], states, l.units)
		from += l.units
		for t := range states { // what ToTile wrote beyond the units
			clear(pre.Row(t)[from:kernel.Pad(from)])
			clear(slope.Row(t)[from:kernel.Pad(from)])
		}
	}
}

// columns returns the columns of the first kernel.States rows of t from a column on.
func columns(t kernel.Tile, from int) kernel.Tile {
	t.Values = t.Values[from:][:kernel.States*t.Stride]
	return t
}

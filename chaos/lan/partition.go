package lan

import "math/rand/v2"

// Partition is a list of sides. Hosts of different sides do not reach each other. Hosts
// that are on no side reach all others.
type Partition []Set

// SplitMinority draws a partition that separates one node from the others. About half of
// the clients are on one of the two sides.
func (h *Hosts) SplitMinority(pick uint32) Partition {
	r := rand.New(rand.NewPCG(uint64(pick), 0))
	alone := SetOf(r.IntN(h.nodes))
	p := Partition{alone, h.cluster() &^ alone}
	for i := h.nodes; i < h.console(); i++ {
		if side := r.IntN(4); side < 2 {
			p[side] |= SetOf(i)
		}
	}
	return p
}

// SplitMajority returns the partition in which no side has more than one node. A single
// node is separated from all clients.
func (h *Hosts) SplitMajority() (p Partition) {
	for i := range h.nodes {
		p = append(p, SetOf(i))
	}
	if h.nodes == 1 {
		p = append(p, h.everyone()&^h.cluster())
	}
	return p
}

// Split begins a partition. undo ends it.
func (h *Hosts) Split(p Partition) (undo func()) {
	var undos []func()
	for i := range p {
		for j := range i {
			undos = append(undos, h.Disturb(Disturbance{From: p[i], To: p[j], Back: true, Weather: Weather{Hole: true}}))
		}
	}
	return func() {
		for _, undo := range undos {
			undo()
		}
	}
}

// OneWay draws a disturbance that loses all packets from one side to the other, but none
// on the way back. One side is a node. The other is all other nodes, or one client.
func (h *Hosts) OneWay(pick uint32) Disturbance {
	r := rand.New(rand.NewPCG(uint64(pick), 0))
	node := SetOf(r.IntN(h.nodes))
	other := h.cluster() &^ node
	if other == 0 || r.IntN(2) == 0 {
		other = SetOf(h.nodes + r.IntN(h.console()-h.nodes))
	}
	d := Disturbance{From: node, To: other, Weather: Weather{Hole: true}}
	if r.IntN(2) == 0 {
		d.From, d.To = d.To, d.From
	}
	return d
}

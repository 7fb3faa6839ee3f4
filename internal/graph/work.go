package graph

// Folded returns how many multiplications the constants took that folding computed, and
// the elements of the tensors that AddConstant was given.
func (g *Graph) Folded() (work, given int64) { return g.work, g.given }

// Work returns about how many multiplications Run does, or copies of elements where it
// does not multiply. It stops counting after most.
func (g *Graph) Work(most int64) int64 {
	total := int64(0)
	for _, n := range g.Nodes {
		c, err := newCall(n.Op, n.Attributes, g.infos(n.Inputs))
		if err != nil {
			continue // Run refuses the node
		}
		infos, elements, err := c.infer()
		if err != nil {
			continue
		}
		if total += c.cost(infos, elements); total > most || total < 0 {
			return most + 1
		}
	}
	return total
}

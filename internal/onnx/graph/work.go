package graph

// Folded returns the number of multiplications that folding did, and the number of elements
// of all tensors from AddConstant and Constant nodes.
func (g *Graph) Folded() (work, given int64) { return g.work, g.given }

// Work estimates the number of multiplications in Run. A node that only moves elements
// counts with the number of its elements. Work returns most + 1 if the number exceeds most.
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

// Products returns the number of multiplications of a row in products of matrices: MatMul, Gemm, Conv and Einsum.
func (g *Graph) Products() int64 {
	total := int64(0)
	for _, n := range g.Nodes {
		if _, ok := products[n.Op]; !ok {
			continue
		}
		c, err := newCall(n.Op, n.Attributes, g.infos(n.Inputs))
		if err != nil {
			continue // Run refuses the node
		}
		if infos, elements, err := c.infer(); err == nil {
			total += c.cost(infos, elements)
		}
	}
	return total
}

package execute

import "shaver/internal/graph"

// CompileApart is Compile, except that each result has rows of its own. Only one step
// computes a row.
func CompileApart(g *graph.Graph, players []graph.Value) (*Program, error) {
	c, err := newCompiler(g, players)
	if err != nil {
		return nil, err
	}
	for i := range g.Nodes {
		if err := c.node(i); err != nil {
			return nil, err
		}
		for _, r := range c.owner {
			if r != nil && r.values < forever {
				r.values += forever
			}
		}
		c.free = nil
	}
	return c.finish()
}

// forever is added to the number of values of a region, so that it is never freed.
const forever = 1 << 40

// Rows returns the number of rows of the arena.
func (p *Program) Rows() int { return p.rows }

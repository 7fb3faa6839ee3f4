package execute

import "shaver/internal/graph"

// CompileApart is Compile, except that each result has rows of its own. Only one step
// computes a row.
func CompileApart(g *graph.Graph, players []graph.Value) (*Program, error) {
	return compile(g, players, false, false)
}

// CompileGradientApart is CompileGradient, except that each result has rows of its own.
func CompileGradientApart(g *graph.Graph, players []graph.Value) (*Program, error) {
	return compile(g, players, true, false)
}

// Rows returns the number of rows of the arena.
func (p *Program) Rows() int { return p.rows }

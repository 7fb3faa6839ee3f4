package execute

import "shaver/internal/onnx/graph"

// CompileApart is Compile, except that each result has rows of its own. Only one step
// computes a row.
func CompileApart(g *graph.Graph, players []graph.Value) (*Program, error) {
	return compile(g, players, options{apart: true})
}

// CompileGradientApart is CompileGradient, except that each result has rows of its own.
func CompileGradientApart(g *graph.Graph, players []graph.Value) (*Program, error) {
	return compile(g, players, options{gradient: true, apart: true})
}

// Rows returns the number of rows of the arena.
func (p *Program) Rows() int { return p.rows }

// CompileEager is Compile, except that a Walker updates all linear layers that it may update.
func CompileEager(g *graph.Graph, players []graph.Value) (*Program, error) {
	return compile(g, players, options{eager: true})
}

// Updates returns the number of linear layers that a Walker updates.
func (p *Program) Updates() int { return len(p.updates) }

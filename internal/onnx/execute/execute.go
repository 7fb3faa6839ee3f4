// Package execute computes the graph of a model for up to 48 states at a time. A state is
// one setting of the graph's inputs, such as a row of a batch or a step of a walk.
//
// All values are in one kernel.Block, the arena. A row of the arena holds one element of a
// value in all states. Operators that only move elements, such as Transpose, Slice or
// Concat, become lists of row numbers when the graph is compiled. They take no time in Run.
// Products with constant matrices use kernel.Linear. To the last bit, the result of a state
// depends on that state alone.
//
// Inputs are of two kinds. The elements of the players' inputs differ from state to state.
// The other inputs are constants of a row of data. Values that depend only on these are
// computed once for each row of data.
package execute

import (
	"fmt"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/graph"
)

// maxRows bounds the rows of an arena, which then takes at most 192 MiB.
const maxRows = 1 << 20

// Program is a compiled graph. It is read-only and may be shared by all goroutines.
type Program struct {
	players   int // number of players
	others    int // number of elements of the other inputs
	rows      int // number of rows of the arena
	constants []constant
	once      []step        // steps whose results depend on no player
	each      []step        // steps whose results depend on a player, up to the output
	back      []step        // steps that compute the slopes; only from CompileGradient
	output    int32         // row of the output
	slopes    int32         // first of the adjacent rows of the slopes, one for each player
	products  int           // see Products
	jumps     bool          // see Jumps
	kinks     *programKinks // nil if there are no kink terms; only from CompileGradient

	// For walks; not from CompileGradient.
	updates []update // in the order of the steps
	walked  int      // see WalkProducts
}

// constant is a row of the arena with the same value in all states.
type constant struct {
	row   int32
	value float32
}

// step computes some rows of an arena from others.
type step interface {
	// run computes the first states of the arena. It may also change the other states of the
	// rows that it computes.
	run(arena kernel.Block, states int)
}

// Players returns the number of elements of the players' inputs.
func (p *Program) Players() int { return p.players }

// Others returns the number of elements of the other inputs.
func (p *Program) Others() int { return p.others }

// Products returns the number of multiplications in the products of matrices for a state,
// including those for derivatives. It leaves out products that depend on no player.
func (p *Program) Products() int { return p.products }

// Jumps reports whether the output may jump where a player changes, because an operator rounds,
// compares or ranks what depends on a player. Most functions that compare, such as Relu, Clip
// and Max, do not jump and do not count, unless the graph has them as a Where.
func (p *Program) Jumps() bool { return p.jumps }

// Compile returns a program that computes the output of g, which must have one element of
// type Float. players are the inputs whose elements are the players, in order. All other
// inputs are constants of a row. The program shares g's constants. Compile does not change
// g. An error names the node that cannot be compiled.
func Compile(g *graph.Graph, players []graph.Value) (*Program, error) {
	return compile(g, players, options{})
}

// CompileGradient is like Compile, but the program also computes the derivatives of the
// output with respect to the players. It needs more memory, because values that derivatives
// need are kept. The outputs are the same to the last bit.
//
// Operators that pass no derivative, such as comparisons and rounding, have the derivative
// 0. The documentation of differentiator defines the derivatives at kinks.
func CompileGradient(g *graph.Graph, players []graph.Value) (*Program, error) {
	return compile(g, players, options{gradient: true})
}

// options are those of compile. The last two are for tests.
type options struct {
	gradient bool // whether to compute derivatives
	apart    bool // whether every value has rows of its own
	eager    bool // whether a Walker also updates layers that are faster to compute
}

// compile is Compile or CompileGradient.
func compile(g *graph.Graph, players []graph.Value, o options) (*Program, error) {
	c, err := newCompiler(g, players)
	if err != nil {
		return nil, err
	}
	for i := range g.Nodes {
		if err := c.node(i); err != nil {
			n := &g.Nodes[i]
			return nil, fmt.Errorf("node %s (%s): %w", n.Name, n.Op, err)
		}
	}
	return c.finish(o)
}

// Runner evaluates a program. Only one goroutine may use it at a time. It allocates no
// memory after NewRunner.
type Runner struct {
	p     *Program
	arena kernel.Block
}

// NewRunner returns a runner for p.
func (p *Program) NewRunner() *Runner {
	r := &Runner{p, make(kernel.Block, (p.rows+slack)*kernel.States)}
	for _, c := range p.constants {
		fill(r.arena.Element(int(c.row)), c.value)
	}
	return r
}

// slack is the number of rows of an arena after those of its program. At levels with digits,
// kernel.Outputs.Product reads blocks of 64 inputs, and may therefore read these rows.
const slack = 64

// Players returns the elements of the players' inputs, in order. The caller sets them
// before Run, which does not change them.
func (r *Runner) Players() kernel.Block {
	return r.arena[:r.p.players*kernel.States]
}

// Others returns the elements of the other inputs, in the order of the graph's inputs. The
// caller sets them before Prepare, in all states that Run computes.
func (r *Runner) Others() kernel.Block {
	return r.arena[r.p.players*kernel.States : (r.p.players+r.p.others)*kernel.States]
}

// Prepare computes the values that depend only on Others, in the given number of states. It
// must be called after NewRunner, and whenever the elements of Others have changed.
func (r *Runner) Prepare(states int) {
	for _, s := range r.p.once {
		s.run(r.arena, states)
	}
}

// Run sets dst[t] to the output of state t. dst has at most kernel.States elements.
func (r *Runner) Run(dst []float64) {
	if len(dst) == 0 {
		return
	}
	for _, s := range r.p.each {
		s.run(r.arena, len(dst))
	}
	r.output(dst)
}

// output sets dst[t] to the output of state t.
func (r *Runner) output(dst []float64) {
	for t, v := range r.arena.Element(int(r.p.output))[:len(dst)] {
		dst[t] = float64(v)
	}
}

// Differentiate computes the slopes of the states that the last Run has computed. There
// must be no other call since then. The program must be from CompileGradient.
func (r *Runner) Differentiate(states int) {
	for _, s := range r.p.back {
		s.run(r.arena, states)
	}
}

// Slopes returns the derivatives of the output with respect to the players, in order. They
// are those of the last call of Differentiate, until the next call of Prepare or Run. At
// least 64 elements without a meaning follow.
func (r *Runner) Slopes() kernel.Block { return r.arena[int(r.p.slopes)*kernel.States:] }

func fill(row []float32, v float32) {
	for t := range row {
		row[t] = v
	}
}

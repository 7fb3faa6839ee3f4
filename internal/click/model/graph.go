package model

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/execute"
	"shaver/internal/onnx/graph"
)

// GraphHead is the head of a model of Kind Graph: a graph that computes the logit from the
// values of look-ups and from dense inputs. Each input of the graph belongs to exactly one
// look-up or dense input.
type GraphHead struct {
	Graph *graph.Graph
	// LookUps has the input of each of the architecture's look-ups, or of each field if the
	// architecture is plain. The input of a list has the rows of its positions one after the
	// other. The elements of these inputs are the players, except that elements which read the
	// same entry of a table are one player.
	LookUps   []graph.Value
	Constants []ConstantLookUp
	Dense     []graph.Value // input of each of Architecture.Dense, of one element
	IDs       []IDInput     // inputs that read ids as numbers
}

// IDInput is an input of a head that reads the local ids of a field as numbers, for example
// to compare them with the pad id. They are constants of the row.
type IDInput struct {
	Field int         // index into Architecture.FieldDims; the field has at most 2^24 features, which float32 holds
	Input graph.Value // input of the graph, a Float with one element for each position of the field
}

// ConstantLookUp reads one row of a table whose entries are not players, such as a table
// of first-order weights, for each id of a field. What it reads is a constant of the row.
type ConstantLookUp struct {
	Name   string      // name of the table, for people
	Field  int         // index into Architecture.FieldDims
	Dim    int         // number of columns
	Values []float32   // [FieldDims[Field], Dim], by local id
	Input  graph.Value // input of the graph, with Dim elements for each position of the field
}

// check returns an error for the first part of h that does not fit a.
func (h *GraphHead) check(a *Architecture) error {
	lookUps, tables := a.lookUps(), a.tables()
	if len(h.LookUps) != len(lookUps) || len(h.Dense) != len(a.Dense) {
		return fmt.Errorf("the head has inputs for %d look-ups and %d dense inputs, expected %d and %d", len(h.LookUps), len(h.Dense), len(lookUps), len(a.Dense))
	}
	seen := map[graph.Value]bool{}
	input := func(v graph.Value, what string, size int) error {
		if !slices.Contains(h.Graph.Inputs, v) || seen[v] {
			return fmt.Errorf("%s has value %d of the head: expected an input that nothing else has", what, v)
		}
		seen[v] = true
		info := &h.Graph.Values[v]
		n, err := graph.Count(info.Shape)
		if err != nil || n != size || info.Type != graph.Float {
			return fmt.Errorf("%s has %d values, but input %s of the head is a %v of shape %v", what, size, info.Name, info.Type, info.Shape)
		}
		return nil
	}
	lengths := a.Lengths()
	for k, v := range h.LookUps {
		if err := input(v, fmt.Sprintf("look-up %d", k), lengths[lookUps[k].Field]*tables[lookUps[k].Table].Dim); err != nil {
			return err
		}
	}
	for _, c := range h.Constants {
		if c.Field < 0 || c.Field >= len(a.FieldDims) || c.Dim < 1 || len(c.Values) != a.FieldDims[c.Field]*c.Dim {
			return fmt.Errorf("constant table %s has %d values in %d columns for field %d, which does not fit the fields", c.Name, len(c.Values), c.Dim, c.Field)
		}
		if err := input(c.Input, "constant table "+c.Name, lengths[c.Field]*c.Dim); err != nil {
			return err
		}
		for i, v := range c.Values {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				return fmt.Errorf("constant table %s has the value %v at position %d: weights must be finite", c.Name, v, i)
			}
		}
	}
	for k, v := range h.Dense {
		if err := input(v, "dense input "+a.Dense[k], 1); err != nil {
			return err
		}
	}
	for _, id := range h.IDs {
		if id.Field < 0 || id.Field >= len(a.FieldDims) || a.FieldDims[id.Field] > 1<<24 {
			return fmt.Errorf("input %d of ids belongs to field %d: expected one of %d fields, with at most %d features", id.Input, id.Field, len(a.FieldDims), 1<<24)
		}
		if err := input(id.Input, fmt.Sprintf("the ids of field %d", id.Field), lengths[id.Field]); err != nil {
			return err
		}
	}
	if len(seen) != len(h.Graph.Inputs) {
		return fmt.Errorf("the head has %d inputs, of which look-ups, ids and dense inputs give %d", len(h.Graph.Inputs), len(seen))
	}
	return nil
}

// AdviceNaN follows the words that a logit is NaN.
const AdviceNaN = ", expected a number: if the model masks with -inf, a list of which it masks all positions gives NaN, so leave out such rows, or replace NaN in the model"

// graphCore is the core of a model of Kind Graph.
type graphCore struct {
	program  *execute.Program
	gradient func() (*execute.Program, error) // program with derivatives, made at the first call
	fields   []idRange                        // ids of each field in a row
	others   []source                         // by input of the program that is a constant of the row
}

// idRange is the ids of a field in a row.
type idRange struct {
	from, to int // indices of the ids in the row
	feature  int // global id of the field's first feature
}

// source is where an input that is a constant of the row comes from.
type source struct {
	constant *ConstantLookUp // nil = ids as numbers, or a dense input
	before   int             // number of columns of the field's earlier tables of constants
	ids      *IDInput        // nil = a table of constants, or a dense input
	dense    int             // number of the dense input
}

func newGraphCore(a *Architecture, h *GraphHead) (*graphCore, error) {
	program, err := execute.Compile(h.Graph, h.LookUps)
	if err != nil {
		return nil, err
	}
	c := &graphCore{program: program, gradient: sync.OnceValues(func() (*execute.Program, error) {
		return execute.CompileGradient(h.Graph, h.LookUps)
	})}
	lengths := a.Lengths()
	first := Offsets(lengths)
	for j, offset := range a.Offsets() {
		c.fields = append(c.fields, idRange{int(first[j]), int(first[j]) + lengths[j], int(offset)})
	}
	for _, v := range h.Graph.Inputs {
		if k := slices.Index(h.Dense, v); k >= 0 {
			c.others = append(c.others, source{dense: k})
		}
		for i := range h.Constants {
			if h.Constants[i].Input == v {
				before := 0
				for _, earlier := range h.Constants[:i] {
					if earlier.Field == h.Constants[i].Field {
						before += earlier.Dim
					}
				}
				c.others = append(c.others, source{constant: &h.Constants[i], before: before})
			}
		}
		for i := range h.IDs {
			if h.IDs[i].Input == v {
				c.others = append(c.others, source{ids: &h.IDs[i]})
			}
		}
	}
	return c, nil
}

// fill sets the constants of row r of rows in the states [from, to). absent is that of the model.
func (c *graphCore) fill(absent *absentReader, others kernel.Block, from, to int, rows *Rows, r int) {
	row := rows.Row(r)
	for _, s := range c.others {
		switch {
		case s.constant != nil:
			field, dim := c.fields[s.constant.Field], s.constant.Dim
			for i, f := range row[field.from:field.to] {
				id, without := absent.read(field.from+i, f)
				values := s.constant.Values[(int(id)-field.feature)*dim:][:dim]
				if without {
					values = absent.constants[field.from+i][s.before:][:dim]
				}
				others = others.From(fillStates(others, from, to, values))
			}
		case s.ids != nil:
			field := c.fields[s.ids.Field]
			for i, f := range row[field.from:field.to] {
				id, _ := absent.read(field.from+i, f)
				others = others.From(fillStates(others, from, to, []float32{float32(int(id) - field.feature)}))
			}
		default:
			others = others.From(fillStates(others, from, to, rows.DenseRow(r)[s.dense:][:1]))
		}
	}
}

// fillStates sets the first elements of b to values in the states [from, to), and returns
// their number.
func fillStates(b kernel.Block, from, to int, values []float32) int {
	for k, v := range values {
		states := b.Element(k)[from:to]
		for t := range states {
			states[t] = v
		}
	}
	return len(values)
}

// graphScorer evaluates the rows of a batch as the states of a runner.
type graphScorer struct {
	m      *Model
	core   *graphCore
	runner *execute.Runner
	x      []float32 // [States, D], embeddings of the rows
}

func (c *graphCore) newScorer(m *Model) scorer {
	return &graphScorer{m, c, c.program.NewRunner(), make([]float32, kernel.States*m.Players())}
}

func (s *graphScorer) logits(dst []float64, rows *Rows) {
	players, others, width := s.runner.Players(), s.runner.Others(), s.m.Players()
	for from := 0; from < rows.Len(); from += kernel.States {
		n := min(kernel.States, rows.Len()-from)
		s.m.Embed(s.x[:n*width], rows.Features[from*rows.Width:(from+n)*rows.Width])
		for t := range n {
			for k, v := range s.x[t*width : (t+1)*width] {
				players[k*kernel.States+t] = v
			}
			s.core.fill(s.m.absent, others, t, t+1, rows, from+t)
		}
		s.runner.Prepare(n)
		s.runner.Run(dst[from : from+n])
	}
}

// graphProbe evaluates consecutive steps of a walk as the states of a walker.
type graphProbe struct {
	m         *Model
	core      *graphCore
	runner    *execute.Walker
	roster    *Roster // of the current row
	book      *Book
	own       bool      // whether the baseline may differ between rows, because of pad rows, frozen fields or words
	baseline  []float32 // [D], the current row with everything dropped: the entries of no player, and otherwise what the book says
	entries   []float32 // [D], the row's embedding
	x         []float32 // [D], the current state of the walk
	nothing   float64   // logit of the row with everything dropped
	evaluated bool      // whether nothing is that of the current row
	slots     []float64 // [States], logits of the states
	step      []int     // number of each step in the walk
	player    []int32   // player that appears at each step
	changed   []int32   // [at most D], elements that the steps change
}

func (c *graphCore) newProbe(m *Model, book *Book) prober {
	n := m.Players()
	p := &graphProbe{
		m: m, core: c, runner: c.program.NewWalker(), roster: NewRoster(&m.Architecture), book: book, own: len(m.FixedRows()) > 0 || !book.Constant(),
		baseline: book.spread, entries: make([]float32, n), x: make([]float32, n),
		slots: make([]float64, kernel.States), step: make([]int, 0, kernel.States), player: make([]int32, 0, kernel.States), changed: make([]int32, 0, n),
	}
	if p.own {
		p.baseline = slices.Clone(p.baseline)
	}
	if c.program.Others() == 0 {
		p.runner.Prepare(kernel.States)
	}
	return p
}

// selectRow sets the roster, the entries and the baseline to those of row r of rows.
func (p *graphProbe) selectRow(rows *Rows, r int) {
	p.m.Embed(p.entries, rows.Row(r))
	p.roster.Set(rows.Row(r))
	if !p.own {
		return
	}
	p.evaluated = false
	copy(p.baseline, p.book.Spread(p.baseline, rows.Row(r)))
	for k, player := range p.roster.ByElement() {
		if player < 0 {
			p.baseline[k] = p.entries[k]
		}
	}
}

func (p *graphProbe) reset(rows *Rows, r int) {
	p.selectRow(rows, r)
	if p.core.program.Others() > 0 { // otherwise the empty state is the same for all rows
		p.core.fill(p.m.absent, p.runner.Others(), 0, kernel.States, rows, r)
		p.runner.Prepare(kernel.States)
		p.evaluated = false
	}
}

func (p *graphProbe) empty() float64 {
	if !p.evaluated {
		fillStates(p.runner.Players(), 0, 1, p.baseline)
		p.nothing, p.evaluated = p.runner.Start(), true
	}
	return p.nothing
}

func (p *graphProbe) empties(dst []float64, rows *Rows) {
	if p.core.program.Others() == 0 && !p.own {
		for r := range dst {
			dst[r] = p.empty()
		}
		return
	}
	for from := 0; from < len(dst); from += kernel.States {
		part := dst[from:min(from+kernel.States, len(dst))]
		fillStates(p.runner.Players(), 0, len(part), p.baseline)
		for t := range part {
			if p.own {
				p.selectRow(rows, from+t)
				fillStates(p.runner.Players(), t, t+1, p.baseline)
			}
			p.core.fill(p.m.absent, p.runner.Others(), t, t+1, rows, from+t)
		}
		p.runner.Prepare(len(part))
		p.runner.Run(part)
	}
}

func (p *graphProbe) walk(order []int32, logits []float64) {
	logits[0] = p.empty()
	copy(p.x, p.baseline)
	fillStates(p.runner.Players(), 0, kernel.States, p.x)
	p.runner.Return()
	for from := 0; from < len(order); {
		to := p.gather(order, from)
		slots := p.slots[:len(p.step)]
		p.runner.Continue(slots, p.changed)
		i := 0
		for k := from; k < to; k++ {
			if logits[k+1] = logits[k]; i < len(slots) && p.step[i] == k {
				logits[k+1] = slots[i]
				i++
			}
		}
		for _, player := range p.player {
			p.settle(int(player), 0)
		}
		from = to
	}
}

// gather sets the states of the walker to the next steps that change an entry. It returns
// the first step that it did not examine.
func (p *graphProbe) gather(order []int32, from int) (to int) {
	p.step, p.player, p.changed = p.step[:0], p.player[:0], p.changed[:0]
	for to = from; to < len(order) && len(p.step) < kernel.States; to++ {
		player := order[to]
		elements := p.roster.Elements(int(player)) // all have the same value and baseline
		if p.x[elements[0]] == p.entries[elements[0]] {
			continue
		}
		for _, k := range elements {
			p.x[k] = p.entries[k]
		}
		p.settle(int(player), len(p.step))
		p.step, p.player, p.changed = append(p.step, to), append(p.player, player), append(p.changed, elements...)
	}
	return to
}

// settle sets the elements of a player to their current value in all states from t on.
func (p *graphProbe) settle(player, t int) {
	for _, k := range p.roster.Elements(player) {
		fillStates(p.runner.Players().From(int(k)), t, kernel.States, p.x[k:k+1])
	}
}

func (p *graphProbe) coalition(present []bool) float64 {
	players := p.runner.Players()
	for k, player := range p.roster.ByElement() {
		if players[k*kernel.States] = p.baseline[k]; player >= 0 && present[player] {
			players[k*kernel.States] = p.entries[k]
		}
	}
	p.runner.Run(p.slots[:1])
	return p.slots[0]
}

func (p *graphProbe) coalitions(first int, logits []float64) {
	for from := 0; from < len(logits); from += kernel.States {
		part := logits[from:min(from+kernel.States, len(logits))]
		for k, player := range p.roster.ByElement() {
			states := p.runner.Players().Element(k)
			for t := range part {
				if states[t] = p.baseline[k]; player >= 0 && (first+from+t)>>player&1 == 1 {
					states[t] = p.entries[k]
				}
			}
		}
		p.runner.Run(part)
	}
}

// graphSlots is the number of slots of a graphGradient. The multilinear estimator has two
// slots for each row, so the rows fill the states of a runner when it computes their own
// logits.
const graphSlots = 2 * kernel.States

// graphGradient evaluates slots as the states of a runner, kernel.States at a time.
type graphGradient struct {
	players int
	core    *graphCore
	runner  *execute.Runner
	kinks   *kernel.Kinks // nil unless kink terms are needed
	off, on []int32       // memory of kinks
	parts   [graphSlots / kernel.States]graphPart
	block   kernel.Block // [D], embeddings of a part
}

// graphPart is kernel.States successive slots.
type graphPart struct {
	x      kernel.Tile  // [States, D], embedding of each slot
	slopes kernel.Tile  // [States, D], derivatives of each slot
	others kernel.Block // constants of the row of each slot

	// Only if kink terms are needed.
	pre       kernel.Tile // [States, units], units before their Relu
	unitSlope kernel.Tile // [States, units], derivatives with respect to the units after their Relu
	changes   kernel.Tile // [States, D], change of each entry of each slot
	terms     kernel.Tile // [States, D], kink terms of each slot
}

func (c *graphCore) differentiable() error {
	_, err := c.gradient()
	return err
}

func (c *graphCore) newGradient(m *Model) gradient {
	program, err := c.gradient()
	if err != nil {
		panic("model: NewGradient: " + err.Error())
	}
	players := m.Players()
	g := &graphGradient{players: players, core: c, runner: program.NewRunner(), block: kernel.NewBlock(players)}
	for i := range g.parts {
		g.parts[i] = graphPart{x: kernel.NewTile(kernel.States, players), slopes: kernel.NewTile(kernel.States, players), others: kernel.NewBlock(program.Others())}
	}
	if program.Others() == 0 {
		g.runner.Prepare(kernel.States)
	}
	return g
}

func (g *graphGradient) states() int { return graphSlots }

func (g *graphGradient) set(i int, rows *Rows, r int) []float32 {
	part, i := &g.parts[i/kernel.States], i%kernel.States
	g.core.fill(nil, part.others, i, i+1, rows, r)
	return part.x.Row(i)[:g.players]
}

func (g *graphGradient) slope(i int) []float32 {
	return g.parts[i/kernel.States].slopes.Row(i % kernel.States)[:g.players]
}

func (g *graphGradient) forward(dst []float64, slopes bool) {
	for i := 0; i*kernel.States < len(dst); i++ {
		part, logits := &g.parts[i], dst[i*kernel.States:min((i+1)*kernel.States, len(dst))]
		kernel.ToBlock(g.block, part.x, len(logits), g.players)
		copy(g.runner.Players(), g.block)
		if len(g.core.others) > 0 {
			copy(g.runner.Others(), part.others)
			g.runner.Prepare(len(logits))
		}
		g.runner.Run(logits)
		if slopes {
			g.runner.Differentiate(len(logits))
			kernel.ToTile(part.slopes, g.runner.Slopes(), len(logits), g.players)
			if g.kinks != nil {
				g.runner.Units(part.pre, part.unitSlope, len(logits))
			}
		}
	}
}

func (g *graphGradient) keepKinks() bool {
	program, _ := g.core.gradient()
	layer, _ := program.Kinks()
	if layer == nil {
		return false
	}
	g.kinks, g.off, g.on = layer, kernel.NewList(layer.Out), kernel.NewList(layer.Out)
	for i := range g.parts {
		p := &g.parts[i]
		p.pre, p.unitSlope = kernel.NewTile(kernel.States+1, layer.Out), kernel.NewTile(kernel.States+1, layer.Out)
		p.changes, p.terms = layer.NewTile(kernel.States), layer.NewTile(kernel.States)
	}
	return true
}

func (g *graphGradient) change(i int) []float32 {
	return g.parts[i/kernel.States].changes.Row(i % kernel.States)[:g.players]
}

func (g *graphGradient) computeKinks(n int) {
	for i := 0; i*kernel.States < n; i++ {
		p := &g.parts[i]
		g.kinks.Terms(p.terms, p.changes, p.pre, p.unitSlope, min(kernel.States, n-i*kernel.States), g.off, g.on)
	}
}

func (g *graphGradient) kink(i int) []float32 {
	return g.parts[i/kernel.States].terms.Row(i % kernel.States)[:g.players]
}

// Products returns the number of multiplications in the products of matrices with which a
// model of Kind Graph computes a state. It is 0 for all other kinds.
func (m *Model) Products() int {
	if c, ok := m.core.(*graphCore); ok {
		return c.program.Products()
	}
	return 0
}

// Jumps reports whether the logit may jump where an entry changes: whether the model is of Kind
// Graph and rounds, compares or ranks what depends on the entries.
func (m *Model) Jumps() bool {
	c, ok := m.core.(*graphCore)
	return ok && c.program.Jumps()
}

// WalkProducts is Products for a state of a random walk of a Probe.
func (m *Model) WalkProducts() int {
	if c, ok := m.core.(*graphCore); ok {
		return c.program.WalkProducts()
	}
	return 0
}

// SlopeProducts returns the number of multiplications in the products of matrices with
// which a Gradient computes the logit and the derivatives of a state. It is 0 for models of
// other kinds, and for those that are not Differentiable.
func (m *Model) SlopeProducts() int {
	if c, ok := m.core.(*graphCore); ok && c.differentiable() == nil {
		program, _ := c.gradient()
		return program.Products()
	}
	return 0
}

package execute

import (
	"slices"
)

// placement maps the rows of a compiler to rows of the arena. A row of the arena holds one
// row after another: it becomes free after the last instruction that reads its region.
type placement struct {
	c       *compiler
	base    []int32 // by region: its first row in the arena, -1 = none yet
	last    []int   // by region: the last instruction that reads or writes it
	free    []span  // free rows, ascending, none adjacent
	rows    int     // number of rows of the arena
	reusing bool    // whether rows become free; tests keep all
}

// place places all rows. results are rows that are read after all instructions, except that
// output is read before instruction forward.
func (c *compiler) place(output int32, forward int, results []int32, reusing bool) *placement {
	p := &placement{c: c, base: slices.Repeat([]int32{-1}, len(c.regions)), last: make([]int, len(c.regions)), reusing: reusing}
	for r := range c.regions {
		if reg := &c.regions[r]; reg.kept || !reg.varies {
			p.extend(int32(r))
		}
	}
	use := func(rows []int32, i int) {
		for _, row := range rows {
			if row != none {
				p.last[c.region[row]] = max(p.last[c.region[row]], i)
			}
		}
	}
	for i, in := range c.each {
		use(in.results(), i)
		for _, rows := range in.operands() {
			use(rows, i)
		}
	}
	use([]int32{output}, forward)
	use(results, len(c.each))
	for i, in := range c.each {
		p.instruction(i, in)
	}
	return p
}

// instruction places the results of instruction i, and frees what it reads last.
func (p *placement) instruction(i int, in instruction) {
	c := p.c
	var touched []int32 // regions
	touch := func(rows []int32) {
		for _, row := range rows {
			if row != none && (len(touched) == 0 || touched[len(touched)-1] != c.region[row]) {
				touched = append(touched, c.region[row])
			}
		}
	}
	results := in.results()
	for _, rows := range in.operands() {
		touch(rows)
	}
	touch(results)
	slices.Sort(touched)
	touched = slices.Compact(touched)
	for k, row := range results {
		if row == none || p.base[c.region[row]] >= 0 {
			continue
		}
		if k > 0 || !p.overlay(i, in) {
			p.allocate(c.region[row])
		}
	}
	for _, r := range touched {
		if reg := &c.regions[r]; p.reusing && p.last[r] == i && reg.varies && !reg.kept {
			p.insert(span{p.base[r], reg.n})
		}
	}
}

// overlay places the results of instruction i where one of its operands is, if nothing
// reads the operand later, and each result then replaces the operand at its own position. It
// reports whether it did. The operand's region then has no rows that could become free.
func (p *placement) overlay(i int, in instruction) bool {
	c, results := p.c, in.results()
	if !in.overlays() || !p.reusing || !c.whole(results) {
		return false
	}
	for _, rows := range in.operands() {
		if len(rows) != len(results) || !c.whole(rows) {
			continue
		}
		r := c.region[rows[0]]
		if reg := &c.regions[r]; p.last[r] != i || !reg.varies || reg.kept {
			continue
		}
		if slices.ContainsFunc(in.operands(), func(other []int32) bool {
			for k, row := range other {
				if c.region[row] == r && row != rows[k] {
					return true
				}
			}
			return false
		}) {
			continue
		}
		p.base[c.region[results[0]]] = p.base[r]
		p.last[r] = -1
		return true
	}
	return false
}

// whole reports whether rows are all rows of a region, in order.
func (c *compiler) whole(rows []int32) bool {
	if len(rows) == 0 || rows[0] == none {
		return false
	}
	reg := &c.regions[c.region[rows[0]]]
	if int(reg.n) != len(rows) {
		return false
	}
	for k, row := range rows {
		if row != reg.first+int32(k) {
			return false
		}
	}
	return true
}

// allocate places a region in free rows, or at the end of the arena.
func (p *placement) allocate(r int32) {
	n := p.c.regions[r].n
	for i, s := range p.free {
		if s.n < n {
			continue
		}
		p.base[r] = s.first
		if p.free[i] = (span{s.first + n, s.n - n}); p.free[i].n == 0 {
			p.free = slices.Delete(p.free, i, i+1)
		}
		return
	}
	p.extend(r)
}

// extend places a region at the end of the arena.
func (p *placement) extend(r int32) {
	n := int(p.c.regions[r].n)
	if n > maxRows-p.rows {
		p.c.fail()
		n = 0
	}
	p.base[r] = int32(p.rows)
	p.rows += n
}

// insert adds s to the free rows.
func (p *placement) insert(s span) {
	if s.n == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(p.free, s.first, func(f span, first int32) int { return int(f.first - first) })
	p.free = slices.Insert(p.free, i, s)
	for _, k := range [...]int{i, i - 1} { // join with the next, then with the one before
		if k >= 0 && k+1 < len(p.free) && p.free[k].first+p.free[k].n == p.free[k+1].first {
			p.free[k].n += p.free[k+1].n
			p.free = slices.Delete(p.free, k+1, k+2)
		}
	}
}

// at returns the rows of the arena where the given rows are.
func (p *placement) at(rows []int32) []int32 {
	placed := make([]int32, len(rows))
	for i, row := range rows {
		placed[i] = row
		if row != none {
			r := p.c.region[row]
			placed[i] = p.base[r] + row - p.c.regions[r].first
		}
	}
	return placed
}

// Package rate chooses in how many bits the kept entries of pruned tables are stored, and how
// many entries are kept, so that the tables take a number of bytes and the loss rises least.
//
// To second order, rounding an entry by e raises the mean loss by h*e^2/2, where h is the
// curvature of the loss by this entry, measured with the tables as pruning leaves them. Bits
// have a price, in nat. Each row takes the quantizer of a palette for which its rise of the loss
// plus the price of its bits is least, and each quantizer is fitted to the rows that took it.
// Both steps lower the same sum, so they alternate (Chou, Lookabaugh and Gray, 1989). The
// palette serves all tables, because scales for each row would take more bytes than the
// values of a table of which little is kept.
//
// Dropping is not a quantizer of 0 bits here. The order of a path says which entries go, and
// Search compares several numbers of kept entries by their loss on validation rows.
package rate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"shaver/internal/click/compact"
	"shaver/internal/click/model"
)

// Tables are pruned tables that are to be rounded.
type Tables struct {
	Architecture *model.Architecture
	Entries      []float32      // the unpruned tables, one after another, [Parameters]
	Dropped      []bool         // [Parameters]
	Baseline     model.Baseline // what dropped entries read
	// Curvature holds the second derivative of the mean loss by each kept entry, in nat, and
	// BaselineCurvature that by each value of the baseline.
	Curvature, BaselineCurvature []float64
	// Size returns the bytes of the tables in a file. Nil stands for compact.Parts.Bytes.
	Size Size
}

// Size returns the bytes of tables without the given entries in a file.
type Size func(dropped []bool, baseline model.Baseline, p *compact.Palette) (int, error)

// Choice says how tables are rounded.
type Choice struct {
	Palette  *compact.Palette
	Baseline model.Baseline // before rounding; some words of Tables.Baseline may be one here
	Rise     float64        // rise of the mean loss by rounding and by fewer words, to second order, in nat
	Bytes    int            // bytes of the tables: values, positions, palette and codebook
	Price    float64        // of a bit, in nat
}

const (
	sampleRows = 4096 // number of rows to which a palette is fitted; the other rows use it
	classes    = 4    // number of classes of rows from which a palette begins
	rounds     = 6    // number of alternations from the first palette
	again      = 2    // number of alternations after a quantizer was removed
	candidates = 3    // number of quantizers of which one may be removed at a time
)

// seeds are the bits of the quantizers from which a palette begins, for each class of rows.
var seeds = []int{2, 3, 4, 8}

// paletteBits is the number of bits of a quantizer in a file.
const paletteBits = 72

// line is a row of a table, or a line of the codebook. It is stored with one quantizer.
type line struct {
	from, to int  // its values
	row      int  // number over all spans, or of the span of the codebook
	codebook bool // whether it is a line of the codebook
	exact    bool // whether rounding is not allowed, as for pad rows
}

// Chooser chooses quantizers for one set of tables at several prices.
type Chooser struct {
	tables  *Tables
	book    *model.Book // of the baseline
	rows    [][]float64 // by span, the number of rows that read each word and have a dropped entry; nil if each span has one word
	lines   []line
	values  []float64
	weights []float64 // half the curvature
	zero    bool      // whether the codebook is zero and needs no quantizer
	sample  []line    // lines to which palettes are fitted
	portion float64   // len(sample) / len(lines)
	energy  float64   // mean of weight * value^2, the scale of prices
	lost    float64   // rise of the loss because words became one, to second order, in nat
}

// NewChooser returns a chooser for t. It keeps t.
func NewChooser(t *Tables) *Chooser {
	a := t.Architecture
	if len(t.Entries) != a.Parameters() || len(t.Dropped) != a.Parameters() || len(t.Curvature) != a.Parameters() || len(t.BaselineCurvature) != len(t.Baseline.Values) {
		panic(fmt.Sprintf("rate: NewChooser: %d entries, %d dropped, %d of codebook for %s", len(t.Entries), len(t.Dropped), len(t.Baseline.Values), a.Size()))
	}
	c := &Chooser{tables: t, book: a.Book(t.Baseline), zero: t.Baseline.IsZero()}
	pads := a.FixedRows()
	for j, s := range a.Spans() {
		if !c.zero {
			from := len(c.values)
			for n := range c.book.NumberOfWords(j) {
				at := c.book.Position(j, n)
				for i, v := range c.book.Word(j, n) {
					h := t.BaselineCurvature[at+i]
					for _, r := range s.Sharers {
						if n == 0 {
							h += t.BaselineCurvature[r.Baseline+i]
						}
					}
					c.values, c.weights = append(c.values, float64(v)), append(c.weights, h/2)
				}
			}
			c.lines = append(c.lines, line{from: from, to: len(c.values), row: j, codebook: true})
		}
		if !c.book.Constant() {
			c.rows = append(c.rows, make([]float64, c.book.NumberOfWords(j)))
		}
		for r := range s.Rows {
			from, first := len(c.values), s.Entry+r*s.Dim
			if c.rows != nil && slices.Contains(t.Dropped[first:first+s.Dim], true) {
				c.rows[j][c.book.Number(j, r)]++
			}
			for i := first; i < first+s.Dim; i++ {
				if !t.Dropped[i] {
					c.values, c.weights = append(c.values, float64(t.Entries[i])), append(c.weights, t.Curvature[i]/2)
				}
			}
			if to := len(c.values); to > from {
				_, pad := slices.BinarySearch(pads, s.Row+r)
				c.lines = append(c.lines, line{from: from, to: to, row: s.Row + r, exact: pad})
			}
		}
	}
	c.scale()
	c.pick()
	return c
}

// scale sets energy, and replaces curvatures of 0 by small ones, so that an entry that no row
// reads does not become a wild value.
func (c *Chooser) scale() {
	weights := 0.0
	for _, w := range c.weights {
		weights += w
	}
	n := float64(max(len(c.values), 1))
	least := weights / n / 1e6
	for i, v := range c.values {
		c.weights[i] = max(c.weights[i], least)
		c.energy += c.weights[i] * v * v / n
	}
	if c.energy == 0 { // no rounding raises the loss, whatever a bit costs
		c.energy = 1
	}
}

// pick sets sample to all lines of the codebook and evenly many of the others.
func (c *Chooser) pick() {
	stride := max(1, (len(c.lines)+sampleRows-1)/sampleRows)
	for i, l := range c.lines {
		if l.codebook || i%stride == 0 {
			c.sample = append(c.sample, l)
		}
	}
	c.portion = float64(len(c.sample)) / float64(max(len(c.lines), 1))
}

// level is a quantizer whose numbers are float64.
type level struct {
	bits         int
	origin, step float64
	lines        int     // number of lines of the sample that use it
	index        float64 // bits of its number in a line
	// Sums over the values that use it, of the weights and of products with values and numbers.
	w, n, v, nn, nv float64
}

// number returns the number of the level nearest to v.
func (q *level) number(v float64) float64 {
	if q.step == 0 {
		return 0
	}
	return min(max(math.RoundToEven((v-q.origin)/q.step), 0), float64(uint32(1)<<q.bits-1))
}

// exact reports whether q rounds too little to matter, because its numbers are floating-point
// numbers.
func (q *level) exact() bool { return q.bits >= 16 }

// rise returns the rise of the loss if the values are rounded by q.
func (q *level) rise(values, weights []float64) (sum float64) {
	if q.bits == 32 {
		return 0
	}
	for i, v := range values {
		e := v * 0x1p-12 // of float16, at most
		if !q.exact() {
			e = q.origin + q.step*q.number(v) - v
		}
		sum += weights[i] * e * e
	}
	return sum
}

// fit sets origin and step by least squares, for the numbers that the values had.
func (q *level) fit() {
	determinant := q.w*q.nn - q.n*q.n
	if q.exact() || !(determinant > 1e-12*q.w*q.nn) {
		return
	}
	step := (q.w*q.nv - q.n*q.v) / determinant
	if step > 0 {
		q.step, q.origin = step, (q.v-step*q.n)/q.w
	}
}

// first returns the palette from which a choice begins: quantizers for classes of lines by
// their largest magnitude.
func (c *Chooser) first() []level {
	largest := func(l *line) (most float64) {
		for _, v := range c.values[l.from:l.to] {
			most = max(most, math.Abs(v))
		}
		return most
	}
	type ranked struct {
		line
		most float64
	}
	var all []ranked
	for i := range c.sample {
		all = append(all, ranked{c.sample[i], largest(&c.sample[i])})
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.most, b.most) })
	palette := []level{{bits: 32}, {bits: 16}}
	for k := range classes {
		part := all[k*len(all)/classes : (k+1)*len(all)/classes]
		if len(part) == 0 {
			continue
		}
		least, most := math.Inf(1), math.Inf(-1)
		for _, l := range part {
			for _, v := range c.values[l.from:l.to] {
				least, most = min(least, v), max(most, v)
			}
		}
		for _, bits := range seeds {
			reach := (most - least) * clip(bits)
			palette = append(palette, level{bits: bits, origin: (most + least - reach) / 2, step: reach / float64(uint32(1)<<bits-1)})
		}
	}
	for k := range palette {
		palette[k].index = math.Log2(float64(len(palette)))
	}
	return palette
}

// clip returns the portion of the range of values that the levels of a first quantizer span.
// With few levels it is better to clip than to have wide steps.
func clip(bits int) float64 {
	switch bits {
	case 2:
		return .6
	case 3:
		return .75
	case 4:
		return .9
	}
	return 1
}

// best returns the quantizer of the palette for a line, and its cost: the rise of the loss and
// the price of its bits.
func (c *Chooser) best(l *line, palette []level, price float64) (k int, cost float64) {
	k, cost = -1, math.Inf(1)
	values, weights := c.values[l.from:l.to], c.weights[l.from:l.to]
	for i := range palette {
		q := &palette[i]
		if l.exact && q.bits != 32 {
			continue
		}
		bits := price * (float64(q.bits*len(values)) + q.index)
		if bits >= cost {
			continue
		}
		if sum := bits + q.rise(values, weights); sum < cost {
			k, cost = i, sum
		}
	}
	return k, cost
}

// alternate assigns the sample to the palette and fits the palette to it, n times. It returns the
// quantizers that are used, and the cost of the sample with their own bits. It does not change palette.
func (c *Chooser) alternate(palette []level, price float64, n int) ([]level, float64) {
	palette = slices.Clone(palette)
	cost := 0.0
	for range n {
		cost = 0
		for k := range palette {
			palette[k] = level{bits: palette[k].bits, origin: palette[k].origin, step: palette[k].step, index: palette[k].index}
		}
		for i := range c.sample {
			l := &c.sample[i]
			k, sum := c.best(l, palette, price)
			cost += sum
			q := &palette[k]
			q.lines++
			if q.exact() {
				continue
			}
			for i := l.from; i < l.to; i++ {
				v, w := c.values[i], c.weights[i]
				number := q.number(v)
				q.w += w
				q.n += w * number
				q.v += w * v
				q.nn += w * number * number
				q.nv += w * number * v
			}
		}
		palette = slices.DeleteFunc(palette, func(q level) bool { return q.lines == 0 })
		for k := range palette {
			q := &palette[k]
			q.fit()
			q.index = -math.Log2(float64(q.lines) / float64(len(c.sample)))
		}
	}
	return palette, cost + price*paletteBits*float64(len(palette))*c.portion
}

// palette returns the palette for a price.
func (c *Chooser) palette(price float64) []level {
	if len(c.sample) == 0 {
		return nil
	}
	palette, cost := c.alternate(c.first(), price, rounds)
	for len(palette) > 1 {
		slices.SortStableFunc(palette, func(a, b level) int { return cmp.Compare(a.lines, b.lines) })
		var smaller []level
		least := math.Inf(1)
		for k := range min(candidates, len(palette)) {
			rest := slices.Delete(slices.Clone(palette), k, k+1)
			if slices.ContainsFunc(c.sample, func(l line) bool { return l.exact }) && !slices.ContainsFunc(rest, func(q level) bool { return q.bits == 32 }) {
				continue
			}
			if found, sum := c.alternate(rest, price, again); sum < least {
				smaller, least = found, sum
			}
		}
		if smaller == nil || least >= cost && len(palette) <= compact.MaxQuantizers {
			break
		}
		palette, cost = smaller, least
	}
	return palette
}

// Choose returns the choice for a price of a bit, in nat and above 0. An error says which
// value cannot be stored.
func (c *Chooser) Choose(price float64) (*Choice, error) {
	t := c.tables
	spans := t.Architecture.Spans()
	last := &spans[len(spans)-1]
	choice := &Choice{Palette: &compact.Palette{Rows: make([]uint8, last.Row+last.Rows)}, Price: price}
	p := choice.Palette
	if !c.zero {
		p.Codebook = make([]uint8, len(spans))
	}
	d, merged := c.merged(price)
	choice.Baseline = merged
	palette := d.palette(price)
	if slices.ContainsFunc(c.lines, func(l line) bool { return l.exact }) && !slices.ContainsFunc(palette, func(q level) bool { return q.bits == 32 }) {
		if len(palette) == compact.MaxQuantizers { // the sample has no pad row
			palette = palette[1:]
		}
		palette = append(palette, level{bits: 32})
	}
	for k := range palette {
		q := &palette[k]
		rounded := compact.Quantizer{Bits: q.bits}
		if !q.exact() {
			rounded.Origin, rounded.Step = float32(q.origin), float32(q.step)
			q.origin, q.step = float64(rounded.Origin), float64(rounded.Step)
		}
		p.Quantizers = append(p.Quantizers, rounded)
	}
	for i := range d.lines {
		l := &d.lines[i]
		k, _ := d.best(l, palette, price)
		if l.codebook {
			p.Codebook[l.row] = uint8(k)
		} else {
			p.Rows[l.row] = uint8(k)
		}
		for i := l.from; i < l.to; i++ {
			_, value := p.Quantizers[k].Nearest(float32(d.values[i]))
			e := float64(value) - d.values[i]
			choice.Rise += d.weights[i] * e * e
		}
	}
	choice.Rise += d.lost
	var err error
	choice.Bytes, err = t.bytes(merged, p)
	return choice, err
}

// bytes returns the bytes of t with a palette.
func (t *Tables) bytes(baseline model.Baseline, p *compact.Palette) (int, error) {
	if t.Size != nil {
		return t.Size(t.Dropped, baseline, p)
	}
	parts, err := compact.EncodeMixed(t.Architecture, t.Entries, t.Dropped, baseline, p)
	if err != nil {
		return 0, err
	}
	return parts.Bytes(), nil
}

// The range of prices, as multiples of energy. At the lowest one everything is exact, and at the
// highest one everything has the fewest bits.
const (
	lowest  = 0x1p-44
	highest = 0x1p4
	steps   = 14 // number of prices that a search tries
)

// within returns the best choice for which fits holds: the one with the least rise of the loss, or
// the one with the fewest bytes if rising. fits holds for all prices above some price, or for all
// below it if rising. If it holds for none, the result is nil.
func (c *Chooser) within(rising bool, fits func(*Choice) bool) (best *Choice, err error) {
	low, high := math.Log2(lowest*c.energy), math.Log2(highest*c.energy)
	try := func(at float64) (bool, error) {
		choice, err := c.Choose(math.Exp2(at))
		if err != nil || !fits(choice) {
			return false, err
		}
		if best == nil || better(rising, choice, best) {
			best = choice
		}
		return true, nil
	}
	end := high
	if rising {
		end = low
	}
	if ok, err := try(end); err != nil || !ok {
		return best, err
	}
	for range steps {
		middle := (low + high) / 2
		ok, err := try(middle)
		if err != nil {
			return nil, err
		}
		if ok != rising {
			high = middle
		} else {
			low = middle
		}
	}
	return best, nil
}

// better reports whether a is a better choice than b: with fewer bytes if the rise is bounded, and
// with less rise if the bytes are.
func better(fewest bool, a, b *Choice) bool {
	if fewest {
		return a.Bytes < b.Bytes
	}
	return a.Rise < b.Rise
}

// Bytes returns the choice with the least rise of the loss of at most the given number of bytes. It
// returns nil if all choices have more.
func (c *Chooser) Bytes(most int) (*Choice, error) {
	return c.within(false, func(choice *Choice) bool { return choice.Bytes <= most })
}

// Rise returns the choice with the fewest bytes whose rise of the loss, in nat, is at most most,
// which is above 0.
func (c *Chooser) Rise(most float64) (*Choice, error) {
	best, err := c.within(true, func(choice *Choice) bool { return choice.Rise <= most })
	if best == nil && err == nil { // only if even float32 rounds by too much
		return c.Choose(lowest * c.energy)
	}
	return best, err
}

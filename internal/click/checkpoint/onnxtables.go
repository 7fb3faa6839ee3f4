package checkpoint

import (
	"math"
	"slices"

	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/wire"
)

// Kept says which entries of the embedding tables an .onnx file keeps, and how it stores them.
type Kept struct {
	Dropped  []bool
	Baseline model.Baseline // what dropped entries read
	Values   compact.Encoding
	Palette  *compact.Palette // with compact.Mixed
	Weights8 []string         // names of the weights of the network that are in 8 bits, among those of Checkpoint.Weights8
}

// tablePart is a Part of a table and the span of its rows.
type tablePart struct {
	Part
	span int // number among model.Architecture.Spans
}

// onnxTables is the embedding tables of the file from which a model was read.
type onnxTables struct {
	c     *Checkpoint
	file  *wire.Model
	n     *dissect.Network
	order []int // numbers of the tables in n
	parts map[int][]tablePart
	// tensors and lookUps have, for each of order, its tensor and the number of nodes that look up rows, or 0 if it cannot become compact.
	tensors []*wire.Tensor
	lookUps []int
}

// newTables returns the tables of file. n is its network.
func (c *Checkpoint) newTables(file *wire.Model, n *dissect.Network) (*onnxTables, error) {
	t := &onnxTables{c: c, file: file, n: n, parts: map[int][]tablePart{}}
	for j, p := range c.Parts() {
		at := c.origin.lookUps[p.LookUp].table
		if at >= len(n.Tables) || n.Tables[at].Name != p.Name || n.Tables[at].Dim != p.Dim || p.Rows > n.Tables[at].Rows-p.From {
			return nil, c.inputf("the file changed while it was in use: table %s is another one", tensor.Quote(p.Name))
		}
		if t.parts[at] == nil {
			t.order = append(t.order, at)
		}
		t.parts[at] = append(t.parts[at], tablePart{p, j})
	}
	slices.Sort(t.order)
	for _, at := range t.order {
		t.tensors = append(t.tensors, n.Tables[at].Tensor())
	}
	t.lookUps = file.LookUps(t.tensors)
	for i, at := range t.order {
		if dims := t.tensors[i].Dims; len(dims) != 2 || dims[0] != n.Tables[at].Rows || dims[1] != n.Tables[at].Dim { // a row is several of the tensor
			t.lookUps[i] = 0
		}
	}
	for _, parts := range t.parts {
		slices.SortFunc(parts, func(a, b tablePart) int { return a.From - b.From })
	}
	return t, nil
}

// tables returns the embedding tables of c as tensors of the file, in the form that k says or, if k is nil, with every entry.
func (t *onnxTables) tables(k *Kept) ([]wire.Table, error) {
	values, err := t.c.floats(t.c.EmbeddingKey)
	if err != nil {
		return nil, err
	}
	var tables []wire.Table
	for i, at := range t.order {
		table, parts := &t.n.Tables[at], t.parts[at]
		row, entry := 0, parts[0].Entry
		whole := true // whether the parts are consecutive entries
		for _, p := range parts {
			whole = whole && p.From == row && p.Entry == entry
			row, entry = p.From+p.Rows, p.Entry+p.Rows*p.Dim
		}
		all := values[parts[0].Entry:entry]
		if !whole || row < table.Rows {
			all = make([]float32, table.Rows*table.Dim)
			if err := table.Read(all, 0); err != nil {
				return nil, err
			}
			for _, p := range parts {
				copy(all[p.From*p.Dim:], values[p.Entry:p.Entry+p.Rows*p.Dim])
			}
		}
		w := wire.Table{Tensor: t.tensors[i], Values: all}
		if k != nil {
			own := *k
			if t.lookUps[i] == 0 { // it stays dense, so rounding would save nothing
				own.Values, own.Palette = compact.Float32, nil
			}
			form, read, err := t.compact(&own, at, all)
			if err != nil {
				return nil, err
			}
			if w.Values = read; t.lookUps[i] > 0 {
				w.Compact = form
			}
		}
		tables = append(tables, w)
	}
	return tables, nil
}

// compact returns how the file stores a table of the given entries, and the values that a reader gets. If entries is nil, it returns what decides the size.
// Rows that no look-up reads keep their bits.
func (t *onnxTables) compact(k *Kept, at int, entries []float32) (*wire.Compact, []float32, error) {
	a, table := &t.c.Architecture, &t.n.Tables[at]
	rows, columns := table.Rows, table.Dim
	c := &wire.Compact{Dropped: make([]bool, rows*columns), Rows: make([]uint8, rows), Word: make([]uint8, rows)}
	exact := uint8(0)
	c.Quantizers = []wire.Quantizer{{Bits: 32}}
	if k.Palette != nil {
		for _, q := range k.Palette.Quantizers {
			c.Quantizers = append(c.Quantizers, wire.Quantizer(q))
		}
	}
	book, pads := a.Book(k.Baseline), a.FixedRows()
	row := 0
	fill := func(to int) { // rows without a look-up
		if to > row {
			c.Spans = append(c.Spans, wire.WordSpan{Rows: to - row, Words: 1})
			c.Words = append(c.Words, make([]float32, columns)...)
			row = to
		}
	}
	for _, p := range t.parts[at] {
		fill(p.From)
		number := exact
		dropped := k.Dropped[p.Entry : p.Entry+p.Rows*columns]
		copy(c.Dropped[row*columns:], dropped)
		switch {
		case k.Palette != nil || k.Values == compact.Float32:
		case k.Values == compact.Float16 && len(c.Quantizers) > 1: // all fields share one
			number = 1
		default:
			if len(c.Quantizers) > math.MaxUint8 {
				return nil, nil, t.c.inputf("table %s has %d fields, expected at most %d for values in %s", tensor.Quote(table.Name), len(t.parts[at]), math.MaxUint8, k.Values)
			}
			number = uint8(len(c.Quantizers))
			c.Quantizers = append(c.Quantizers, quantizer(k.Values, entries, row*columns, dropped))
		}
		words := book.NumberOfWords(p.span)
		c.Spans = append(c.Spans, wire.WordSpan{Rows: p.Rows, Words: words})
		for n := range words {
			c.Words = append(c.Words, k.word(book, p.span, n)...)
		}
		for i := range p.Rows {
			_, pad := slices.BinarySearch(pads, p.Row+i)
			switch {
			case pad:
				c.Rows[row+i] = exact
			case k.Palette != nil:
				c.Rows[row+i] = k.Palette.Rows[p.Row+i] + 1
			default:
				c.Rows[row+i] = number
			}
			if slices.Contains(dropped[i*columns:(i+1)*columns], true) {
				c.Word[row+i] = uint8(book.Number(p.span, i))
			}
		}
		row += p.Rows
	}
	fill(rows)
	if entries == nil {
		return c, nil, nil
	}
	read, err := t.number(c, table.Name, entries, columns)
	return c, read, err
}

// number sets the numbers of the kept entries, and returns the values that a reader gets.
func (t *onnxTables) number(c *wire.Compact, name string, entries []float32, columns int) (read []float32, err error) {
	read = make([]float32, len(entries))
	row, first := 0, 0
	for _, s := range c.Spans {
		for range s.Rows {
			word := c.Words[(first+int(c.Word[row]))*columns:]
			q := compact.Quantizer(c.Quantizers[c.Rows[row]])
			for i := range columns {
				at := row*columns + i
				if c.Dropped[at] {
					read[at] = word[i]
					continue
				}
				n, v := q.Nearest(entries[at])
				if q.Bits == 16 && math.Abs(float64(entries[at])) >= 65520 {
					return nil, t.c.inputf("table %s has the value %v in row %d and column %d: float16 holds magnitudes up to 65504", tensor.Quote(name), entries[at], row, i)
				}
				c.Numbers, read[at] = append(c.Numbers, n), v
			}
			row++
		}
		first += s.Words
	}
	return read, nil
}

// quantizer returns how an encoding, Float16 or Int8, stores the kept entries of a field.
func quantizer(v compact.Encoding, entries []float32, first int, dropped []bool) wire.Quantizer {
	if v == compact.Float16 {
		return wire.Quantizer{Bits: 16}
	}
	q := wire.Quantizer{Bits: 8}
	if entries == nil {
		return q
	}
	least, most := math.Inf(1), math.Inf(-1)
	for i, gone := range dropped {
		if e := float64(entries[first+i]); !gone {
			least, most = min(least, e), max(most, e)
		}
	}
	if least <= most {
		q.Origin, q.Step = float32(least), float32((most-least)/255)
	}
	return q
}

// word returns word n of span j as a reader gets it.
func (k *Kept) word(book *model.Book, j, n int) []float32 {
	word := slices.Clone(book.Word(j, n))
	if k.Palette == nil || k.Palette.Codebook == nil {
		return word
	}
	number := int(k.Palette.Codebook[j])
	for i, v := range word {
		if number == compact.ZeroLine {
			word[i] = 0
		} else {
			_, word[i] = k.Palette.Quantizers[number].Nearest(v)
		}
	}
	return word
}

// ONNXBytes returns a function for the number of bytes of the file that WriteONNX writes for c with Kept, and perhaps a calibration, and those of the
// embedding tables in it. The file may be some dozens of bytes smaller. The number of the file's bytes does not hold with external data.
func (c *Checkpoint) ONNXBytes(calibrated bool) (func(k *Kept) (file, tables int64, err error), error) {
	file, n, err := c.reopen()
	if err != nil {
		return nil, err
	}
	defer file.Close() // only what is already read is needed
	t, err := c.newTables(file, n)
	if err != nil {
		return nil, err
	}
	weights, err := t.weights8()
	if err != nil {
		return nil, err
	}
	options := wire.Options{Data: "data", Metadata: c.properties()}
	if calibrated {
		options.Calibration = &wire.Calibration{End: n.End, Scale: 1}
	}
	whole, err := file.Rewrite(nil, options)
	return func(k *Kept) (int64, int64, error) {
		rounded, err := file.Rewrite(nil, wire.Options{Data: options.Data, Weights8: k.chosen(weights)})
		if err != nil {
			return 0, 0, err
		}
		bytes, tables := whole.Bytes+rounded.Bytes-file.Size(), int64(0)
		for i, at := range t.order {
			dense := 4 * int64(t.tensors[i].Elements())
			size := dense
			if t.lookUps[i] > 0 {
				c, _, err := t.compact(k, at, nil)
				if err != nil {
					return 0, 0, err
				}
				size = min(dense, file.CompactBytes(c, t.tensors[i], i, t.lookUps[i])+32)
			}
			bytes, tables = bytes+size-dense, tables+size
		}
		return bytes, tables, nil
	}, err
}

// chosen returns those of all weights that k has in 8 bits.
func (k *Kept) chosen(all []*wire.Weight8) []*wire.Weight8 {
	return slices.DeleteFunc(slices.Clone(all), func(q *wire.Weight8) bool { return !slices.Contains(k.Weights8, q.Tensor.Name) })
}

// weights8 returns the weights of the network that may be stored in 8 bits.
func (t *onnxTables) weights8() (all []*wire.Weight8, err error) {
	for _, w := range t.file.Graph.Initializers {
		if slices.ContainsFunc(t.order, func(at int) bool { return t.n.Tables[at].Name == w.Name }) {
			continue
		}
		q, err := t.file.NewWeight8(w)
		if err != nil {
			return nil, err
		}
		if q != nil && q.Saved() > 0 {
			all = append(all, q)
		}
	}
	return all, nil
}

// Weights8 returns the names of the weights that an .onnx file of c can store in 8 bits, in the order of the file.
func (c *Checkpoint) Weights8() (names []string, err error) {
	file, n, err := c.reopen()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t, err := c.newTables(file, n)
	if err != nil {
		return nil, err
	}
	all, err := t.weights8()
	for _, q := range all {
		names = append(names, q.Tensor.Name)
	}
	return names, err
}

// Round8 returns the model of the .onnx file from which c was read, with the weights of the given names as an .onnx file has them in 8 bits.
func (c *Checkpoint) Round8(names []string) (*Checkpoint, error) {
	return readChanged(c.name, Options{ONNX: c.origin.options}, func(file *wire.Model) error {
		for _, t := range file.Graph.Initializers {
			if !slices.Contains(names, t.Name) {
				continue
			}
			q, err := file.NewWeight8(t)
			if err == nil && q == nil {
				err = c.inputf("the file changed while it was in use")
			}
			if err != nil {
				return err
			}
			t.Replace(q.Values())
		}
		return nil
	})
}

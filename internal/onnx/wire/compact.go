package wire

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// A compact table is stored by its kept entries. Constants have, in a few bits each, which rows keep an entry, which
// entries these are, their values, and which word each row reads for its dropped entries. Nodes of ONNX's own
// operators read these constants only, so that a runtime computes them once, when it loads the file:
//
//	blocks  [words+listed, columns]  the words, and then the rows that keep an entry
//	block   [rows]                   which of them a row of the table is
//
// A look-up of ids becomes blocks[block[ids]]. The metadata describe the constants, so that a reader of the file can make the same nodes and compare.

// compactKey is the key of the metadata that describe the compact tables, a JSON array of compactTable.
const compactKey = MetadataPrefix + "kept"

// Quantizer says how the values of some rows are stored. With 2, 3, 4 or 8 bits the number q is the value Origin + Step*q, of which the product and the sum
// are rounded to float32. 16 bits are a float16 number and 32 bits a float32 number.
type Quantizer struct {
	Bits   int     `json:"bits"`
	Origin float32 `json:"origin,omitempty"`
	Step   float32 `json:"step,omitempty"`
}

// WordSpan is consecutive rows, which read some of the words. The words of a span follow those of the one before.
type WordSpan struct {
	Rows  int `json:"rows"`
	Words int `json:"words"`
}

// Compact says how a table is stored by its kept entries.
type Compact struct {
	Dropped    []bool // [rows, columns]
	Quantizers []Quantizer
	Rows       []uint8  // number of each row's quantizer, [rows]
	Numbers    []uint32 // of the kept entries, row by row
	Spans      []WordSpan
	Words      []float32 // [words, columns]
	Word       []uint8   // number of each row's word among those of its span, [rows]; nil = 0
}

// compactTable describes the constants of a compact table.
type compactTable struct {
	Table      string          `json:"table"`  // name that the table had
	Prefix     string          `json:"prefix"` // of the names of constants and of what nodes compute
	Rows       int             `json:"rows"`
	Columns    int             `json:"columns"`
	Listed     marks           `json:"listed"`     // rows that keep an entry
	Kept       marks           `json:"kept"`       // entries of these rows that are kept
	Quantizers []usedQuantizer `json:"quantizers"` // by their bits, ascending
	Spans      []WordSpan      `json:"spans"`
	Filled     int             `json:"filled,omitempty"` // bytes of a constant that nothing reads, so that the table is at most maxInflation times as large as the constants
}

// marks says how a mark for each of some items is stored: as a bit for each item or, if fewer of them have a mark, as a bit for each group of items,
// and those of the items in groups with a mark.
type marks struct {
	Marked int `json:"marked"`           // number of items with a mark
	Groups int `json:"groups,omitempty"` // number of groups with a mark; 0 = there are no groups
}

// Sizes of groups.
const (
	rowGroup   = 8
	entryGroup = 4
)

// usedQuantizer is a quantizer of some kept entries.
type usedQuantizer struct {
	Quantizer
	Kept int `json:"kept"` // number of entries
}

// maxInflation is the largest ratio between the bytes of a table and those of its compact
// form. It bounds the memory that the table of a hostile file takes.
const maxInflation = 1024

// constant is a tensor that the nodes of a compact table read.
type constant struct {
	name string
	kind Type
	dims []int
	data []byte // nil if it is of the table
}

// program is the constants of a compact table and the nodes that read them.
type program struct {
	*compactTable
	opset     int
	nodes     []Node
	constants []constant
	shared    map[string]string // names of constants, by their contents

	blocks, block string // what the look-ups read

	bits string // the 8 bits of each byte, [256, 8] of uint8

	found int // number of look-ups in a file
}

// newProgram returns the program without look-ups, for a version of the operator set of at least compactOpset.
func newProgram(t *compactTable, opset int) *program {
	p := &program{compactTable: t, opset: opset, shared: map[string]string{}}
	words, word := p.makeWords()
	if p.blocks, p.block = words, word; t.Listed.Marked == 0 {
		return p
	}
	marks := p.marks("listed", p.Listed, p.Rows, rowGroup)
	listed := p.cast(marks, Int32)
	number := p.node("Mul", nil, p.cumulated(listed, 0, 0), listed) // of the row among the listed ones, from 1 on
	if all, _ := p.wordCount(); all == 1 {
		p.block = number
	} else {
		p.block = p.node("Where", nil, p.cast(marks, Bool), p.node("Add", nil, number, p.int32s(nil, int32(all-1))), word)
		last := p.node("Mul", nil, p.node("Sub", nil, p.int32s(nil, 1), listed), p.int32s(nil, int32(p.Rows))) // puts other rows behind
		rows := p.smallest(p.node("Add", nil, p.rangeOf(p.Rows, Int32), last), p.Listed.Marked)
		words = p.node("Gather", nil, words, p.node("Gather", nil, word, rows))
	}
	p.blocks = p.join([]string{p.blocks, p.rows(words)})
	return p
}

// compactOpset is the first version of the operator set that has all operators of a program: CumSum and Range.
const compactOpset = 11

// node adds a node and returns the name of its output.
func (p *program) node(op string, attributes map[string]int64, inputs ...string) string {
	out := p.Prefix + "." + strconv.Itoa(len(p.nodes))
	p.nodes = append(p.nodes, Node{Op: op, Inputs: inputs, Outputs: []string{out}, Attributes: numbers(attributes)})
	return out
}

func numbers(attributes map[string]int64) map[string]*Attribute {
	all := map[string]*Attribute{}
	for name, n := range attributes {
		all[name] = &Attribute{Kind: KindInt, Int: n}
	}
	return all
}

func (p *program) cast(x string, to Type) string {
	return p.node("Cast", map[string]int64{"to": int64(to)}, x)
}

// sum adds the elements along an axis, which becomes of length 1 if it is kept.
func (p *program) sum(x string, axis int64, kept bool) string {
	attributes := map[string]int64{"keepdims": 0}
	if kept { // which is the default
		attributes = nil
	}
	if p.opset >= 13 {
		return p.node("ReduceSum", attributes, x, p.int64s(axis))
	}
	out := p.node("ReduceSum", attributes, x)
	p.nodes[len(p.nodes)-1].Attributes["axes"] = &Attribute{Kind: KindInts, Ints: []int64{axis}}
	return out
}

func (p *program) shape(x string, dims ...int64) string {
	return p.node("Reshape", nil, x, p.int64s(dims...))
}

func (p *program) cumulated(x string, axis int32, exclusive int64) string {
	attributes := map[string]int64{}
	if exclusive != 0 {
		attributes["exclusive"] = exclusive
	}
	return p.node("CumSum", attributes, x, p.int32s(nil, axis))
}

func (p *program) join(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return p.node("Concat", map[string]int64{"axis": 0}, parts...)
}

// constant adds a constant, unless there is one of the same content, and returns its name.
func (p *program) constant(kind Type, dims []int, data []byte) string {
	content := string(append([]byte{byte(kind), byte(len(dims))}, data...))
	name := p.shared[content]
	if name == "" {
		name = p.Prefix + ".c" + strconv.Itoa(len(p.constants))
		p.shared[content] = name
		p.constants = append(p.constants, constant{name, kind, dims, data})
	}
	return name
}

func (p *program) int64s(list ...int64) string {
	var data []byte
	for _, n := range list {
		data = binary.LittleEndian.AppendUint64(data, uint64(n))
	}
	return p.constant(Int64, []int{len(list)}, data)
}

func (p *program) int32s(dims []int, list ...int32) string {
	var data []byte
	for _, n := range list {
		data = binary.LittleEndian.AppendUint32(data, uint32(n))
	}
	return p.constant(Int32, dims, data)
}

func (p *program) floats(dims []int, list ...float32) string {
	return p.constant(Float, dims, floatBytes(list))
}

func floatBytes(list []float32) (data []byte) {
	for _, v := range list {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// stored adds a constant of the table.
func (p *program) stored(name string, kind Type, dims ...int) string {
	name = p.Prefix + "." + name
	p.constants = append(p.constants, constant{name: name, kind: kind, dims: dims})
	return name
}

// smallest returns the positions of the n smallest numbers of a list, ascending by the numbers, which all differ. Compress would do for a mask, but onnxruntime does
// not compute it when it loads a file.
func (p *program) smallest(list string, n int) string {
	p.node("TopK", map[string]int64{"axis": 0, "largest": 0}, list, p.int64s(int64(n)))
	last := &p.nodes[len(p.nodes)-1]
	positions := last.Outputs[0] + "i"
	last.Outputs = append(last.Outputs, positions)
	return positions
}

// groupBytes returns the number of bytes in which numbers of some bits are grouped.
func groupBytes(bits int) int {
	if 8%bits == 0 {
		return 1
	}
	return 3
}

// packedBytes returns the number of bytes of n numbers of some bits.
func packedBytes(n, bits int) int {
	of := groupBytes(bits)
	return of * ((n*bits + 8*of - 1) / (8 * of))
}

// unpack returns n numbers, each of some bits, as a list of int32. The first number of a group has its lowest bits.
func (p *program) unpack(name string, n, bits int) string {
	of, size := groupBytes(bits), packedBytes(n, bits)
	x := p.cast(p.stored(name, Uint8, size/of, of), Int32)
	if of == 3 {
		x = p.sum(p.node("Mul", nil, x, p.int32s([]int{3}, 1, 1<<8, 1<<16)), 1, true)
	}
	per := 8 * of / bits
	if per > 1 {
		var divisors []int32
		for i := range per {
			divisors = append(divisors, 1<<(i*bits))
		}
		x = p.node("Mod", nil, p.node("Div", nil, x, p.int32s([]int{per}, divisors...)), p.int32s(nil, 1<<bits))
	}
	return p.cut(x, size/of*per, n)
}

// pack returns numbers as the bytes of the constant that unpack reads.
func pack(list []uint32, bits int) []byte {
	data := make([]byte, packedBytes(len(list), bits))
	for i, n := range list {
		for at := i * bits; n != 0; n >>= 1 {
			data[at/8] |= byte(n&1) << (at % 8)
			at++
		}
	}
	return data
}

// bitsOf returns the fewest bits that divide a group and hold numbers below n.
func bitsOf(n int) int {
	for _, bits := range []int{1, 2, 3, 4, 6, 8, 12} {
		if n <= 1<<bits {
			return bits
		}
	}
	return 24
}

// bytes returns the number of bytes of marks of n items in groups of the given size.
func (m marks) bytes(n, size int) int {
	if m.Groups == 0 {
		return packedBytes(n, 1)
	}
	return packedBytes((n+size-1)/size, 1) + packedBytes(m.Groups*size, 1)
}

// marks returns 1 for each of n items that has a mark, and 0 for the others, as a list of uint8. A runtime keeps what it computes while
// it loads a file, so the largest lists are not of int32.
func (p *program) marks(name string, m marks, n, size int) string {
	if m.Groups == 0 {
		return p.marked(name, n)
	}
	groups := p.cast(p.marked(name+"groups", (n+size-1)/size), Int32)
	groups = p.node("Mul", nil, p.cumulated(groups, 0, 0), groups)
	items := p.shape(p.marked(name, m.Groups*size), -1, int64(size))
	items = p.join([]string{p.constant(Uint8, []int{1, size}, make([]byte, size)), items})
	return p.cut(p.node("Gather", nil, items, groups), (n+size-1)/size*size, n)
}

// marked returns n bits of a constant as a list of uint8.
func (p *program) marked(name string, n int) string {
	if p.bits == "" {
		x := p.shape(p.rangeOf(256, Int32), -1, 1)
		x = p.node("Div", nil, x, p.int32s([]int{8}, 1, 2, 4, 8, 16, 32, 64, 128))
		p.bits = p.cast(p.node("Mod", nil, x, p.int32s(nil, 2)), Uint8)
	}
	bytes := packedBytes(n, 1)
	return p.cut(p.node("Gather", nil, p.bits, p.cast(p.stored(name, Uint8, bytes), Int32)), 8*bytes, n)
}

// cut returns the first n of the elements of x as a list.
func (p *program) cut(x string, of, n int) string {
	if x = p.shape(x, -1); of > n {
		x = p.node("Slice", nil, x, p.int64s(0), p.int64s(int64(n)))
	}
	return x
}

// rangeOf returns the numbers below n.
func (p *program) rangeOf(n int, kind Type) string {
	return p.node("Range", nil, p.scalar(0, kind), p.scalar(n, kind), p.scalar(1, kind))
}

// scalar returns n as a number of Int32 or Int64.
func (p *program) scalar(n int, kind Type) string {
	if kind == Int64 {
		return p.constant(Int64, nil, binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
	return p.int32s(nil, int32(n))
}

// newMarks returns how the marks of items are stored.
func newMarks(marked []bool, size int) (m marks) {
	for i := 0; i < len(marked); i += size {
		n := m.Marked
		for _, mark := range marked[i:min(i+size, len(marked))] {
			if mark {
				m.Marked++
			}
		}
		if m.Marked > n {
			m.Groups++
		}
	}
	if flat := (marks{}); m.bytes(len(marked), size) >= flat.bytes(len(marked), size) {
		m.Groups = 0
	}
	return m
}

// pack adds the constants of marks to data.
func (m marks) pack(data map[string][]byte, name string, marked []bool, size int) {
	bit := map[bool]uint32{true: 1}
	var groups, items []uint32
	for i := 0; i < len(marked); i += size {
		part := marked[i:min(i+size, len(marked))]
		some := slices.Contains(part, true)
		if groups = append(groups, bit[some]); some || m.Groups == 0 {
			for _, mark := range part {
				items = append(items, bit[mark])
			}
			if m.Groups > 0 {
				items = append(items, make([]uint32, size-len(part))...)
			}
		}
	}
	data[name] = pack(items, 1)
	if m.Groups > 0 {
		data[name+"groups"] = pack(groups, 1)
	}
}

// unpack returns the bits of n marks.
func (m marks) unpack(data map[string][]byte, name string, n, size int) []byte {
	if m.Groups == 0 {
		return data[name]
	}
	all, next := make([]byte, (n+7)/8), 0
	for g := range (n + size - 1) / size {
		if bit(data[name+"groups"], g) == 0 || next == m.Groups {
			continue
		}
		for i := g * size; i < min(g*size+size, n); i++ {
			all[i/8] |= byte(bit(data[name], next*size+i-g*size) << (i % 8))
		}
		next++
	}
	return all
}

// rows returns the listed rows. words is what each of them reads for its dropped entries.
func (p *program) rows(words string) string {
	rows, columns := p.Listed.Marked, p.Columns
	kept := p.shape(p.marks("kept", p.Kept, rows*columns, entryGroup), int64(rows), int64(columns))
	ones := p.cast(kept, Int32)
	at := p.node("Add", nil, p.starts(p.sum(ones, 1, true)), p.cumulated(ones, 1, 0))
	return p.node("Where", nil, p.cast(kept, Bool), p.node("Gather", nil, p.values(), at), words)
}

// starts returns how many values are before those of each listed row, [listed, 1]. count has the numbers of their kept entries. The values are in the order
// of the quantizers, and then of the rows.
func (p *program) starts(count string) string {
	rows := p.Listed.Marked
	if len(p.Quantizers) == 1 {
		return p.cumulated(count, 0, 1)
	}
	kind, quantizers := Int32, p.unpack("quantizers", rows, bitsOf(len(p.Quantizers)))
	if rows*len(p.Quantizers) > math.MaxInt32 {
		kind = Int64
		quantizers = p.cast(quantizers, Int64)
	}
	keys := p.node("Add", nil, p.node("Mul", nil, quantizers, p.scalar(rows, kind)), p.rangeOf(rows, kind))
	order := p.smallest(keys, rows)
	starts := p.cumulated(p.node("Gather", nil, count, order), 0, 1)
	return p.node("ScatterElements", map[string]int64{"axis": 0}, count, p.shape(order, -1, 1), starts)
}

// values returns 0 and then all values, as a list.
func (p *program) values() string {
	values := []string{p.floats([]int{1}, 0)}
	var codes []string
	var firsts []int64 // number of the first entry of each quantizer but the first
	var origins, steps []float32
	sum, floats := 0, map[int]int{} // floats has the numbers of entries in 16 and 32 bits
	for i := 0; i < len(p.Quantizers); {
		bits, n := p.Quantizers[i].Bits, 0
		for ; i < len(p.Quantizers) && p.Quantizers[i].Bits == bits; i++ {
			q := &p.Quantizers[i]
			n += q.Kept
			if bits <= 8 {
				if sum > 0 {
					firsts = append(firsts, int64(sum))
				}
				sum += q.Kept
				origins, steps = append(origins, q.Origin), append(steps, q.Step)
			}
		}
		if bits <= 8 {
			codes = append(codes, p.unpack("codes"+strconv.Itoa(bits), n, bits))
		} else {
			floats[bits] = n
		}
	}
	if codes != nil {
		x := p.cast(p.join(codes), Float)
		var origin, step string
		if len(steps) == 1 {
			origin, step = p.floats([]int{1}, origins[0]), p.floats([]int{1}, steps[0])
		} else {
			zeros := p.node("Expand", nil, p.int32s([]int{1}, 0), p.int64s(int64(sum)))
			ones := p.int32s([]int{len(firsts)}, slices.Repeat([]int32{1}, len(firsts))...)
			quantizer := p.cumulated(p.node("ScatterElements", map[string]int64{"axis": 0}, zeros, p.int64s(firsts...), ones), 0, 0)
			origin = p.node("Gather", nil, p.floats([]int{len(origins)}, origins...), quantizer)
			step = p.node("Gather", nil, p.floats([]int{len(steps)}, steps...), quantizer)
		}
		values = append(values, p.node("Add", nil, origin, p.node("Mul", nil, step, x)))
	}
	if n := floats[16]; n > 0 {
		values = append(values, p.cast(p.stored("float16", Float16, n), Float))
	}
	if n := floats[32]; n > 0 {
		values = append(values, p.stored("float32", Float, n))
	}
	return p.join(values)
}

// wordCount returns the number of all words, and the largest of a span.
func (t *compactTable) wordCount() (all, most int) {
	for _, s := range t.Spans {
		all, most = all+s.Words, max(most, s.Words)
	}
	return all, most
}

// makeWords returns the words and the number of each row's word, or "" for it if there is only one word and a row is listed.
func (p *program) makeWords() (words, word string) {
	all, most := p.wordCount()
	if p.Filled > 0 {
		p.stored("filled", Uint8, p.Filled)
	}
	words = p.stored("words", Float, all, p.Columns)
	if all == 1 && p.Listed.Marked > 0 {
		return words, ""
	}
	var first []string
	before := 0
	for _, s := range p.Spans {
		first = append(first, p.node("Expand", nil, p.int32s([]int{1}, int32(before)), p.int64s(int64(s.Rows))))
		before += s.Words
	}
	if word = p.join(first); most > 1 {
		word = p.node("Add", nil, word, p.unpack("word", p.Rows, bitsOf(most)))
	}
	return words, word
}

// lookUp returns the nodes that replace look-up k of ids, whose output keeps its name.
func (p *program) lookUp(k int, ids, out string) []Node {
	block := p.Prefix + "." + strconv.Itoa(k) + "x"
	return []Node{
		{Op: "Gather", Inputs: []string{p.block, ids}, Outputs: []string{block}, Attributes: map[string]*Attribute{}},
		{Op: "Gather", Inputs: []string{p.blocks, block}, Outputs: []string{out}, Attributes: map[string]*Attribute{}},
	}
}

// encode returns n as a NodeProto. Its attributes are numbers, texts and lists of numbers.
func (n *Node) encode() []byte {
	var b []byte
	for _, name := range n.Inputs {
		b = appendText(b, 1, name)
	}
	for _, name := range n.Outputs {
		b = appendText(b, 2, name)
	}
	if n.Name != "" {
		b = appendText(b, 3, n.Name)
	}
	b = appendText(b, 4, n.Op)
	for _, name := range sortedNames(n.Attributes) {
		v := n.Attributes[name]
		a := appendText(nil, 1, name)
		switch v.Kind {
		case KindInt:
			a = appendInt(a, 3, v.Int)
		case KindFloat:
			a = protowire.AppendFixed32(protowire.AppendTag(a, 2, protowire.Fixed32Type), math.Float32bits(v.Float))
		case KindString:
			a = appendText(a, 4, v.String)
		case KindInts:
			for _, x := range v.Ints {
				a = appendInt(a, 8, x)
			}
		case KindFloats:
			for _, x := range v.Floats {
				a = protowire.AppendFixed32(protowire.AppendTag(a, 7, protowire.Fixed32Type), math.Float32bits(x))
			}
		default:
			panic("wire: encode: attribute " + name + " of " + n.Op)
		}
		b = appendBytes(b, 5, appendInt(a, 20, int64(v.Kind)))
	}
	return b
}

// like reports whether n is as other, except for its name.
func (n *Node) like(other *Node) bool {
	if n.Op != other.Op || n.Domain != other.Domain || !slices.Equal(n.Inputs, other.Inputs) || !slices.Equal(n.Outputs, other.Outputs) || len(n.Attributes) != len(other.Attributes) {
		return false
	}
	for name, a := range n.Attributes {
		if b := other.Attributes[name]; b == nil || a.Kind != b.Kind || a.Int != b.Int || !slices.Equal(a.Ints, b.Ints) {
			return false
		}
	}
	return true
}

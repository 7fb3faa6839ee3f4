package kernel

import (
	"math"
	"slices"
)

// Columns is the width of a panel, in which weights are packed, and what the
// stride of a tile is a multiple of: 16 float32, one cache line.
const Columns = 16

// rounded is what the number of rows in a tile's memory is a multiple of: the
// functions of every level take a multiple of 3 or 4.
const rounded = 12

// Pad returns n rounded up to a multiple of Columns.
func Pad(n int) int { return (n + Columns - 1) / Columns * Columns }

// Tile holds the activations of some rows: row t is Values[t*Stride:]. Memory
// is there for rows up to the next multiple of 12, and for Pad(width) columns of
// each; what lies there beyond the rows and columns in use is any number.
type Tile struct {
	Values []float32
	Stride int
}

// NewTile returns a tile of zeros.
func NewTile(rows, width int) Tile {
	stride := Pad(width)
	rows = (rows + rounded - 1) / rounded * rounded
	return Tile{make([]float32, rows*stride), stride}
}

// Row returns row t, of Stride elements.
func (t Tile) Row(i int) []float32 { return t.Values[i*t.Stride : (i+1)*t.Stride] }

// TileRows returns the number of rows that Layer takes at once, at most 16. Fewer
// rows waste what the others could have done; more are taken in turns, which is
// as fast for dense layers, but their common list is longer.
func TileRows() int { return current.rows }

// Lists reports whether Layer is the faster for a list of the inputs that are not 0:
// otherwise masks and lists of active units are of no use.
func Lists() bool { return !current.digits }

// Mask holds a bit per column.
type Mask []uint64

// NewMask returns an empty mask of Pad(width) columns.
func NewMask(width int) Mask { return make(Mask, (Pad(width)+63)/64) }

// List appends the columns whose bit is set to list, ascending. A list from
// NewList makes it faster; what it has room for may be overwritten.
func (m Mask) List(list []int32) []int32 {
	if len(m) == 0 {
		return list
	}
	return current.list(m, list)
}

// Set sets bit o where some of the first rows rows of t is not 0 in column o, for
// o < width, and clears the others.
func (m Mask) Set(t Tile, rows, width int) {
	switch {
	case rows < 1 || Pad(width) > t.Stride || len(t.Values) < rows*t.Stride:
		panic("kernel: Set: tile is too small")
	case len(m)*64 < Pad(width):
		panic("kernel: Set: mask is too short")
	}
	clear(m)
	if width > 0 {
		current.set(m, t, rows, Pad(width)/Columns)
		m.cut(width)
	}
}

// NewList returns an empty list with room for a mask of Pad(width) columns.
func NewList(width int) []int32 { return make([]int32, 0, listRoom(NewMask(width))) }

// listAhead is how far beyond the end of a list Layer may read, for hints.
const listAhead = 12

// listRoom returns what the fastest implementation of List writes at most.
func listRoom(m Mask) int { return 64*len(m) + Columns }

// cut clears the bits from width on, in the last panel's padding, where an
// infinite activation times a weight of 0 has made NaN.
func (m Mask) cut(width int) {
	if m != nil && width%64 != 0 {
		m[width/64] &= 1<<(width%64) - 1
	}
}

// Matrix is a linear layer packed for Layer: panels of 16 columns, each with its
// rows one after the other, so that the kernel reads it in one direction. It is
// read only, and shared by all goroutines.
type Matrix struct {
	In, Out int
	panels  []float32 // [Pad(Out)/16, In, 16], columns beyond Out 0
	bias    []float32 // [Pad(Out)]
	all     []int32   // 0 ... In-1
	digits  *digits   // for levels that use them; else nil
}

// NewMatrix packs a layer from its weight, [out, in], and bias, [out]; a nil bias
// is 0. It keeps neither.
func NewMatrix(weight, bias []float32, in, out int) *Matrix {
	if len(weight) != in*out || (bias != nil && len(bias) != out) {
		panic("kernel: NewMatrix: weight or bias has the wrong length")
	}
	m := &Matrix{In: in, Out: out, panels: make([]float32, in*Pad(out)), bias: make([]float32, Pad(out)), all: make([]int32, in, in+listAhead)}
	for o := range out {
		for i := range in {
			m.panels[(o/Columns*in+i)*Columns+o%Columns] = weight[o*in+i]
		}
	}
	copy(m.bias, bias)
	for i := range m.all {
		m.all[i] = int32(i)
	}
	if current.digits {
		m.digits = newDigits(weight, in, out, true)
	}
	return m
}

// floor returns what activations are at least.
func floor(relu bool) float32 {
	if relu {
		return 0
	}
	return float32(math.Inf(-1))
}

// Layer sets the first rows rows of out from those of in:
//
//	out[t][o] = m.bias[o]; for k in list: out[t][o] += in[t][k] * m[k][o]
//	if relu: out[t][o] = max(out[t][o], 0)
//
// for all o < Pad(m.Out); those beyond m.Out are 0 for finite input. list is
// ascending and may be empty; nil means all of m.In. in[t][k] = 0 adds nothing, to
// the bit, so that a list may hold more than what a row needs and rows do not
// depend on each other. If mask is not nil, Layer sets bit o where out[t][o] is not
// 0 for some t and clears the others; rows beyond rows up to the next multiple of
// 12 may set bits too, and are overwritten. out must not overlap in. NaN stays NaN.
//
// It allocates nothing, unless list is not from NewList and has to be copied.
func (m *Matrix) Layer(out, in Tile, rows int, list []int32, relu bool, mask Mask) {
	if list == nil {
		list = m.all
	}
	memory := (rows + rounded - 1) / rounded * rounded
	width := Pad(m.Out)
	switch {
	case rows < 1 || in.Stride < m.In || out.Stride < width || len(in.Values) < memory*in.Stride || len(out.Values) < memory*out.Stride:
		panic("kernel: Layer: tile is too small")
	case len(list) > 0 && (list[0] < 0 || int(list[len(list)-1]) >= m.In) || len(list) > m.In:
		panic("kernel: Layer: list does not fit the matrix")
	case mask != nil && len(mask)*64 < width:
		panic("kernel: Layer: mask is too short")
	}
	if cap(list)-len(list) < listAhead && len(list) > 0 {
		list = slices.Grow(slices.Clip(list), listAhead)
	}
	clear(mask)
	if m.Out > 0 {
		current.layer(m, out, in, rows, list, floor(relu), mask)
		mask.cut(m.Out)
	}
}

// RowMatrix is a matrix packed for Steps: row after row.
type RowMatrix struct {
	In, Out int
	values  []float32 // [In, Pad(Out)]
}

// NewRowMatrix packs a weight, [out, in].
func NewRowMatrix(weight []float32, in, out int) *RowMatrix {
	if len(weight) != in*out {
		panic("kernel: NewRows: weight has the wrong length")
	}
	m := &RowMatrix{In: in, Out: out, values: make([]float32, in*Pad(out))}
	for o := range out {
		for i := range in {
			m.values[i*Pad(out)+o] = weight[o*in+i]
		}
	}
	return m
}

// Steps follows a linear layer while its input changes one element at a time.
// Step t adds change[t] to element row[t]:
//
//	pre[o] += change[t] * m[row[t]][o]
//	out[t][o] = pre[o]; if relu: max(pre[o], 0)
//
// for all o < Pad(m.Out), which is what pre has. mask is as in Layer, exactly. A
// stride of 0 keeps the last step's output only.
func (m *RowMatrix) Steps(out Tile, pre []float32, row []int32, change []float32, relu bool, mask Mask) {
	width := Pad(m.Out)
	switch {
	case len(pre) != width || len(row) != len(change):
		panic("kernel: Steps: pre or change has the wrong length")
	case len(row) > 0 && len(out.Values) < (len(row)-1)*out.Stride+width || out.Stride != 0 && out.Stride < width:
		panic("kernel: Steps: tile is too small")
	case mask != nil && len(mask)*64 < width:
		panic("kernel: Steps: mask is too short")
	}
	for _, i := range row {
		if i < 0 || int(i) >= m.In {
			panic("kernel: Steps: row is outside the matrix")
		}
	}
	clear(mask)
	if len(row) > 0 && width > 0 {
		current.steps(m, out, pre, row, change, floor(relu), mask)
		mask.cut(m.Out)
	}
}

// Prefetch asks for rows that Steps will soon read. It is a hint.
func (m *RowMatrix) Prefetch(row []int32) {
	if len(row) > 0 && m.Out > 0 {
		current.prefetch(m, row)
	}
}

// Dot returns the sum of x[i]*y[i]. The portable level computes it in float64,
// i ascending; others keep float32 sums of 16 or 32 columns of the product, and
// sum those in float64.
func Dot(x, y []float32) float64 { return current.dot(x, y[:len(x)]) }

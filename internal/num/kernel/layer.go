package kernel

import (
	"math"
	"slices"
)

// Columns is the width of a panel of packed weights: 16 float32, one cache line. The
// stride of a tile is a multiple of it.
const Columns = 16

// rowMultiple is the unit to which the number of rows in a tile's memory is rounded up.
// The functions of every level compute a multiple of 3 or 4 rows.
const rowMultiple = 12

// Pad returns n rounded up to a multiple of Columns.
func Pad(n int) int { return (n + Columns - 1) / Columns * Columns }

// Tile holds the activations of some rows: row t begins at Values[t*Stride]. Its memory
// has room for Pad(width) columns, and for the number of rows rounded up to a multiple of
// 12. Elements beyond the rows and columns in use may have any value.
type Tile struct {
	Values []float32
	Stride int
}

// NewTile returns a tile of zeros.
func NewTile(rows, width int) Tile {
	stride := Pad(width)
	rows = (rows + rowMultiple - 1) / rowMultiple * rowMultiple
	return Tile{make([]float32, rows*stride), stride}
}

// Row returns row i, which has Stride elements.
func (t Tile) Row(i int) []float32 { return t.Values[i*t.Stride : (i+1)*t.Stride] }

// TileRows returns the best number of rows for one call of Layer, at most 16. A call with
// fewer rows costs nearly as much. A call with more rows computes them tile by tile. For
// dense layers this is as fast. With a list it may be slower, because all rows share the
// list, which is then longer.
func TileRows() int { return current.rows }

// Lists reports whether Layer is faster with a list of the nonzero inputs. If Lists
// returns false, masks and lists of active units are useless.
func Lists() bool { return !current.digits }

// Mask holds one bit per column.
type Mask []uint64

// NewMask returns an empty mask of Pad(width) columns.
func NewMask(width int) Mask { return make(Mask, (Pad(width)+63)/64) }

// List appends the columns whose bit is set to list, in ascending order, and returns the
// result. It is faster if list comes from NewList. It may overwrite the unused capacity
// of list.
func (m Mask) List(list []int32) []int32 {
	if len(m) == 0 {
		return list
	}
	return current.list(m, list)
}

// Set sets bit o of m, for o < width, if column o of t is not 0 in at least one of rows
// [0, rows). It clears all other bits.
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

// NewList returns an empty list with enough capacity for all columns of NewMask(width).
func NewList(width int) []int32 { return make([]int32, 0, listRoom(NewMask(width))) }

// listAhead is the number of elements beyond the end of a list that Layer may read for
// prefetching.
const listAhead = 12

// listRoom returns an upper bound on the number of elements that List writes at any
// level.
func listRoom(m Mask) int { return 64*len(m) + Columns }

// cut clears the bits from width on. They belong to the padding of the last panel, where
// an infinite activation times a weight of 0 may have produced a NaN.
func (m Mask) cut(width int) {
	if m != nil && width%64 != 0 {
		m[width/64] &= 1<<(width%64) - 1
	}
}

// Matrix is a linear layer packed for Layer. It is stored in panels of 16 columns, each
// row by row, so the kernel reads memory in one direction. A Matrix is read-only and may
// be shared by all goroutines.
type Matrix struct {
	In, Out int
	panels  []float32 // [Pad(Out)/16, In, 16]; columns beyond Out are 0
	bias    []float32 // [Pad(Out)]
	all     []int32   // 0 ... In-1
	digits  *digits   // only at levels that use digits, else nil
}

// NewMatrix packs a layer with the given weight, [out, in], and bias, [out]. A nil bias
// means 0. NewMatrix copies both.
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

// floor returns the lower bound of activations: 0 with ReLU, else -Inf.
func floor(relu bool) float32 {
	if relu {
		return 0
	}
	return float32(math.Inf(-1))
}

// Layer computes rows [0, rows) of out from those of in, for all o < Pad(m.Out):
//
//	out[t][o] = m.bias[o]; for k in list: out[t][o] += in[t][k] * m[k][o]
//	if relu: out[t][o] = max(out[t][o], 0)
//
// Columns beyond m.Out are 0 if the input is finite. list is ascending and may be empty;
// nil means all of m.In. If in[t][k] is 0, input k leaves the sum unchanged to the last
// bit. Therefore list may name inputs that a row does not need, and no row depends on
// another.
//
// If mask is not nil, Layer sets bit o if out[t][o] is not 0 for some t, and clears the
// other bits. Layer also overwrites the rows that follow, up to the next multiple of 12,
// and these may set bits as well. out must not overlap in. NaN stays NaN.
//
// Layer allocates memory only if list is not from NewList, because it then has to copy
// list.
func (m *Matrix) Layer(out, in Tile, rows int, list []int32, relu bool, mask Mask) {
	if list == nil {
		list = m.all
	}
	m.check(out, in, rows)
	switch {
	case len(list) > 0 && (list[0] < 0 || int(list[len(list)-1]) >= m.In) || len(list) > m.In:
		panic("kernel: Layer: list does not fit the matrix")
	case mask != nil && len(mask)*64 < Pad(m.Out):
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

// check panics if Layer cannot compute the given number of rows of out from those of in.
func (m *Matrix) check(out, in Tile, rows int) {
	memory := (rows + rowMultiple - 1) / rowMultiple * rowMultiple
	if rows < 1 || in.Stride < m.In || out.Stride < Pad(m.Out) || len(in.Values) < memory*in.Stride || len(out.Values) < memory*out.Stride {
		panic("kernel: Layer: tile is too small")
	}
}

// RowMatrix is a matrix packed for Steps, row by row.
type RowMatrix struct {
	In, Out int
	values  []float32 // [In, Pad(Out)]
}

// NewRowMatrix packs a copy of weight, [out, in].
func NewRowMatrix(weight []float32, in, out int) *RowMatrix {
	if len(weight) != in*out {
		panic("kernel: NewRowMatrix: weight has the wrong length")
	}
	m := &RowMatrix{In: in, Out: out, values: make([]float32, in*Pad(out))}
	for o := range out {
		for i := range in {
			m.values[i*Pad(out)+o] = weight[o*in+i]
		}
	}
	return m
}

// Steps updates the output of a linear layer whose input changes one element at a time.
// Step t adds change[t] to input element row[t]. For all o < Pad(m.Out):
//
//	pre[o] += change[t] * m[row[t]][o]
//	out[t][o] = pre[o]; if relu: max(pre[o], 0)
//
// pre has Pad(m.Out) elements. Steps sets mask as Layer does, but only from the rows
// computed here. If out has a stride of 0, it keeps only the output of the last step.
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

// Prefetch is a hint that Steps will soon read the given rows.
func (m *RowMatrix) Prefetch(row []int32) {
	if len(row) > 0 && m.Out > 0 {
		current.prefetch(m, row)
	}
}

// Dot returns the sum of x[i]*y[i]. The portable level adds in float64, with i ascending.
// The other levels keep 16 or 32 partial sums in float32, and add these in float64.
func Dot(x, y []float32) float64 { return current.dot(x, y[:len(x)]) }

// Gate sets dst[i] to v[i] where x[i] is above 0 or NaN, and to 0 elsewhere. The slices have
// the same length. dst may be x or v, but must not overlap them otherwise.
func Gate(dst, x, v []float32) {
	x, v = x[:len(dst)], v[:len(dst)]
	whole := len(dst) / Columns * Columns
	if whole > 0 {
		current.gate(dst[:whole], x[:whole], v[:whole])
	}
	gatePortable(dst[whole:], x[whole:], v[whole:])
}

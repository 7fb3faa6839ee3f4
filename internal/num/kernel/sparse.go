package kernel

// TileLists is memory for Sparse. Only one goroutine may use it at a time.
type TileLists struct {
	mask   Mask
	memory []int32
	lists  [][]int32 // inputs of each tile, in memory
}

// NewTileLists returns memory for Sparse with up to the given numbers of rows and of inputs.
func NewTileLists(rows, in int) *TileLists {
	l := &TileLists{mask: NewMask(in)}
	if few := current.few; few > 0 {
		l.lists = make([][]int32, (rows+few-1)/few)
		l.memory = make([]int32, len(l.lists)*l.room())
	}
	return l
}

// room returns the number of elements of a list and of what follows it.
func (l *TileLists) room() int { return listRoom(l.mask) + listAhead }

// set sets each list to the inputs of m except those that are 0 in every one of few rows of in. It
// returns the lists, and the number of their elements.
func (l *TileLists) set(m *Matrix, in Tile, rows, few int) (lists [][]int32, total int) {
	lists, mask := l.lists[:(rows+few-1)/few], l.mask[:(Pad(m.In)+63)/64]
	for i := range lists {
		t, from := i*few, i*l.room()
		mask.Set(Tile{in.Values[t*in.Stride:], in.Stride}, min(few, rows-t), m.In)
		lists[i] = mask.List(l.memory[from : from : from+l.room()])
		total += len(lists[i])
	}
	return lists, total
}

// dense is the portion of the inputs from which on Layer is faster than level.sparse.
const dense = .92

// Sparse computes what Layer computes with a nil list and a nil mask. It is faster if many inputs
// are 0. It multiplies a few rows at a time, and skips the inputs that are 0 in every one of them.
// lists is from NewTileLists.
func (m *Matrix) Sparse(out, in Tile, rows int, relu bool, lists *TileLists) {
	if current.few > 0 && m.Out > 0 {
		m.check(out, in, rows)
		if each, total := lists.set(m, in, rows, current.few); float64(total) < dense*float64(len(each)*m.In) {
			current.sparse(m, out, in, rows, each, floor(relu))
			return
		}
	}
	m.Layer(out, in, rows, nil, relu, nil)
}

package checkpoint

import (
	"encoding/binary"
	"math"
	"strconv"

	"shaver/internal/base/fault"
	"shaver/internal/click/tensor"
)

// The values that a pickle can hold. None becomes nil; bool, int64, float64, string and
// []byte stand for themselves; an int of more than 64 bits becomes an opaque.
type (
	tuple []any
	list  struct{ items []any }
	// dict keeps its pairs in the order in which they were set. Of pairs with the same
	// key the last one counts.
	dict struct{ keys, values []any }
	// global is the name of something in a Python module. It is only a name. Nothing is
	// imported, and only the names in globals.go have a meaning.
	global string
	// opaque describes a value that nothing reads, such as a device.
	opaque string
)

// get returns the value of a string key.
func (d *dict) get(key string) (any, bool) {
	for i := len(d.keys) - 1; i >= 0; i-- {
		if d.keys[i] == any(key) {
			return d.values[i], true
		}
	}
	return nil, false
}

// maxValues bounds the stack, the marks, the memo and the number of containers, each
// separately. It is about a hundred times what a real checkpoint needs. The length of the
// pickle is too weak a bound, because one byte can create a container, and the pickle may
// be compressed a thousandfold. maxItems bounds the items of all containers together. An
// item takes 16 bytes of memory and may take only two of the pickle.
const (
	maxValues = 1 << 20
	maxItems  = 4 * maxValues
)

// unpickler runs those opcodes of pickle protocols 2 to 5 that describe data. It imports
// and calls nothing. Its first failure stays in err.
type unpickler struct {
	name       string // name of the pickle, for errors
	data       []byte
	at         int
	stack      []any
	marks      []int // heights of the stack at the open marks
	memo       map[uint64]any
	containers int
	items      int // number of items in all containers
	decoded    int // bytes produced by _codecs.encode
	err        error
}

// unpickle returns the object that data describes. Besides data it needs at most a few
// hundred megabytes (see maxItems). The object may contain itself.
func unpickle(name string, data []byte) (any, error) {
	u := &unpickler{name: name, data: data, memo: map[uint64]any{}}
	if len(data) < 2 || data[0] != opProto || data[1] < 2 || data[1] > 5 {
		return nil, fault.Inputf("%s is not a pickle of protocol 2 to 5", name)
	}
	for {
		op := u.take(1)
		if u.err != nil {
			return nil, u.err
		}
		if op[0] == opStop {
			top := u.pop()
			return top, u.err
		}
		if !u.literal(op[0]) && !u.container(op[0]) && !u.memory(op[0]) && !u.call(op[0]) {
			u.fail("has opcode 0x%02x at byte %d, which torch.save does not write", op[0], u.at-1)
		}
	}
}

// The opcodes, by their names in Python's pickletools.
const (
	opProto      = 0x80
	opStop       = '.'
	opFrame      = 0x95
	opNone       = 'N'
	opTrue       = 0x88
	opFalse      = 0x89
	opInt        = 'J'
	opInt1       = 'K'
	opInt2       = 'M'
	opLong1      = 0x8a
	opLong4      = 0x8b
	opFloat      = 'G'
	opUnicode    = 'X'
	opUnicode1   = 0x8c
	opUnicode8   = 0x8d
	opString     = 'T' // Python 2's str
	opString1    = 'U'
	opBytes      = 'B'
	opBytes1     = 'C'
	opBytes8     = 0x8e
	opByteArray8 = 0x96

	opMark       = '('
	opPop        = '0'
	opPopMark    = '1'
	opDup        = '2'
	opEmptyTuple = ')'
	opTuple1     = 0x85
	opTuple2     = 0x86
	opTuple3     = 0x87
	opTuple      = 't'
	opEmptyList  = ']'
	opList       = 'l'
	opAppend     = 'a'
	opAppends    = 'e'
	opEmptyDict  = '}'
	opDict       = 'd'
	opEmptySet   = 0x8f
	opAddItems   = 0x90
	opFrozenSet  = 0x91
	opSetItem    = 's'
	opSetItems   = 'u'

	opPut     = 'q'
	opPut4    = 'r'
	opMemoize = 0x94
	opGet     = 'h'
	opGet4    = 'j'

	opGlobal      = 'c'
	opStackGlobal = 0x93
	opReduce      = 'R'
	opNewObject   = 0x81
	opNewObjectEx = 0x92
	opBuild       = 'b'
	opPersistent  = 'Q'
)

func (u *unpickler) fail(format string, args ...any) {
	if u.err == nil {
		u.err = fault.Inputf("%s "+format, append([]any{u.name}, args...)...)
	}
}

// take returns the next n bytes without copying them, or fails.
func (u *unpickler) take(n int) []byte {
	if u.err == nil && n > len(u.data)-u.at {
		u.fail("ends at byte %d inside an opcode", len(u.data))
	}
	if u.err != nil {
		return nil
	}
	u.at += n
	return u.data[u.at-n : u.at]
}

// number returns the next little-endian unsigned number of width bytes.
func (u *unpickler) number(width int) uint64 {
	var b [8]byte
	copy(b[:], u.take(width))
	return binary.LittleEndian.Uint64(b[:])
}

// counted reads a length of width bytes and returns that many of the following bytes.
func (u *unpickler) counted(width int) []byte {
	n := u.number(width)
	if u.err == nil && n > uint64(len(u.data)-u.at) {
		u.fail("claims %d bytes at byte %d, but only %d are left", n, u.at, len(u.data)-u.at)
	}
	return u.take(int(n))
}

func (u *unpickler) push(v any) {
	if len(u.stack) >= maxValues {
		u.fail("nests or lists more than %d values at once", maxValues)
		return
	}
	u.stack = append(u.stack, v)
}

// made pushes a new container.
func (u *unpickler) made(v any) {
	if u.containers++; u.containers > maxValues {
		u.fail("has more than %d lists, tuples and dicts", maxValues)
	}
	u.push(v)
}

// hold counts n new items of a container, and fails if there are too many.
func (u *unpickler) hold(n int) bool {
	if u.items += n; u.items > maxItems {
		u.fail("has lists, tuples and dicts of more than %d values together", maxItems)
	}
	return u.err == nil
}

// floor returns the height of the stack at the last mark, below which nothing may be
// popped.
func (u *unpickler) floor() int {
	if len(u.marks) == 0 {
		return 0
	}
	return u.marks[len(u.marks)-1]
}

func (u *unpickler) pop() any {
	if len(u.stack) <= u.floor() {
		u.fail("takes a value from the empty stack at byte %d", u.at)
		return nil
	}
	v := u.stack[len(u.stack)-1]
	u.stack = u.stack[:len(u.stack)-1]
	return v
}

// top returns the last value without removing it.
func (u *unpickler) top() any {
	v := u.pop()
	if u.err == nil {
		u.stack = u.stack[:len(u.stack)+1]
	}
	return v
}

// popMark returns the values above the last mark. The next push overwrites them.
func (u *unpickler) popMark() []any {
	if len(u.marks) == 0 {
		u.fail("needs a mark at byte %d, but none is open", u.at)
		return nil
	}
	from := u.floor()
	u.marks = u.marks[:len(u.marks)-1]
	items := u.stack[from:]
	u.stack = u.stack[:from]
	return items
}

// literal runs op if it stands for one value, and otherwise returns false.
func (u *unpickler) literal(op byte) bool {
	switch op {
	case opProto:
		u.take(1)
	case opFrame:
		u.take(8) // the length of a frame, which helps only readers of streams
	case opNone:
		u.push(nil)
	case opTrue, opFalse:
		u.push(op == opTrue)
	case opInt:
		u.push(int64(int32(u.number(4))))
	case opInt1:
		u.push(int64(u.number(1)))
	case opInt2:
		u.push(int64(u.number(2)))
	case opLong1:
		u.push(longInteger(u.counted(1)))
	case opLong4:
		u.push(longInteger(u.counted(4)))
	case opFloat:
		if b := u.take(8); b != nil {
			u.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
		}
	case opUnicode1, opString1:
		u.push(string(u.counted(1)))
	case opUnicode, opString:
		u.push(string(u.counted(4)))
	case opUnicode8:
		u.push(string(u.counted(8)))
	case opBytes1:
		u.push(u.counted(1))
	case opBytes:
		u.push(u.counted(4))
	case opBytes8, opByteArray8:
		u.push(u.counted(8))
	default:
		return false
	}
	return true
}

// longInteger returns the little-endian two's complement number in b.
func longInteger(b []byte) any {
	if len(b) > 8 {
		return opaque("an int of more than 64 bits")
	}
	var wide [8]byte
	copy(wide[:], b)
	shift := 64 - 8*len(b)
	return int64(binary.LittleEndian.Uint64(wide[:])<<shift) >> shift
}

// memory runs op if it stores to the memo or reads from it, and otherwise returns false.
func (u *unpickler) memory(op byte) bool {
	switch op {
	case opPut:
		u.put(u.number(1))
	case opPut4:
		u.put(u.number(4))
	case opMemoize:
		u.put(uint64(len(u.memo)))
	case opGet:
		u.fetch(u.number(1))
	case opGet4:
		u.fetch(u.number(4))
	default:
		return false
	}
	return true
}

func (u *unpickler) put(i uint64) {
	if len(u.memo) >= maxValues {
		u.fail("remembers more than %d values", maxValues)
		return
	}
	u.memo[i] = u.top()
}

func (u *unpickler) fetch(i uint64) {
	v, ok := u.memo[i]
	if !ok {
		u.fail("fetches value %d at byte %d, but never stored it", i, u.at)
	}
	u.push(v)
}

// describe names the kind of v for an error. It never looks inside v, because a value may
// contain itself.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64:
		return "the int " + strconv.FormatInt(v, 10)
	case float64:
		return "the float " + strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return "the str " + tensor.Quote(v)
	case []byte:
		return "bytes"
	case tuple:
		return "a tuple"
	case *list:
		return "a list"
	case *dict:
		return "a dict"
	case global:
		return tensor.Quote(string(v))
	case *tensorRef:
		return "a tensor"
	case *ndarray:
		return "a numpy array"
	case *object:
		return v.String()
	case opaque:
		return string(v)
	}
	return "an object"
}

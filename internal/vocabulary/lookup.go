package vocabulary

import "fmt"

// Lookup finds the ids of rows. It is for one goroutine; its fields are for any
// number of them.
type Lookup struct {
	fields []*Field
	keys   []key
}

// key is a packed value, where its search begins, and what is there.
type key struct {
	a, b  uint64
	at    int
	first slot
}

// NewLookup returns a Lookup of rows of these fields.
func NewLookup(fields []*Field) *Lookup { return &Lookup{fields, make([]key, len(fields))} }

// Append appends to ids[j] the local id of values[j], for every field j. All
// tables are asked before any answer is looked at: the processor then waits for
// several places in memory at once, and not for one after the other.
func (l *Lookup) Append(ids [][]int32, values [][]byte) {
	if len(values) != len(l.fields) || len(ids) != len(l.fields) {
		panic(fmt.Sprintf("vocabulary: %d values and %d columns for %d fields", len(values), len(ids), len(l.fields)))
	}
	for j, value := range values {
		k, t := &l.keys[j], &l.fields[j].values
		k.a, k.b = pack(value)
		k.at = t.home(value, k.a, k.b)
		if k.at < len(t.slots) { // a table may have none
			k.first = t.slots[k.at]
		}
	}
	for j, value := range values {
		k, t := &l.keys[j], &l.fields[j].values
		number := k.first.number
		if number > 0 && (k.b == long || k.first.a != k.a || k.first.b != k.b) {
			number = t.search(value, k.a, k.b, k.at).number
		}
		if number == 0 { // one of the others
			number = int64(t.used) + 1
		}
		ids[j] = append(ids[j], int32(number-1))
	}
}

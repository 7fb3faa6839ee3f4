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

// Append appends to ids[j] the local id of values[j], for every field j, and returns
// -1. If there is no id for one of them, not even that of unseen values, it appends
// nothing and returns its j. All tables are asked before any answer is looked at: the processor then waits for
// several places in memory at once, and not for one after the other.
func (l *Lookup) Append(ids [][]int32, values [][]byte) (without int) {
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
		if number == 0 { // unseen
			if number = int64(l.fields[j].oov) + 1; number == 0 {
				for i := range j {
					ids[i] = ids[i][:len(ids[i])-1]
				}
				return j
			}
		}
		ids[j] = append(ids[j], int32(number-1))
	}
	return -1
}

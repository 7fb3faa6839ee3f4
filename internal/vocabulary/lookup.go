package vocabulary

import "fmt"

// Lookup finds the ids of the values of rows. A Lookup is not safe for concurrent use, but
// several may share their fields.
type Lookup struct {
	fields []*Field
	keys   []key
}

// key is a packed value, the slot where its search begins, and the content of that slot.
type key struct {
	a, b  uint64
	at    int
	first slot
}

// NewLookup returns a Lookup for rows with the given fields.
func NewLookup(fields []*Field) *Lookup { return &Lookup{fields, make([]key, len(fields))} }

// Append appends the local id of values[j] to ids[j] for every field j, and returns -1. If
// a value is unseen and its field has no id for unseen values, Append appends nothing and
// returns the number of that field.
//
// Append reads the first slot of every field before it uses any of them, so that the
// processor waits for several cache misses at once.
func (l *Lookup) Append(ids [][]int32, values [][]byte) (without int) {
	if len(values) != len(l.fields) || len(ids) != len(l.fields) {
		panic(fmt.Sprintf("vocabulary: %d values and %d columns for %d fields", len(values), len(ids), len(l.fields)))
	}
	for j, value := range values {
		k, t := &l.keys[j], &l.fields[j].values
		k.a, k.b = pack(value)
		k.at = t.home(value, k.a, k.b)
		if k.at < len(t.slots) { // a table may be empty
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

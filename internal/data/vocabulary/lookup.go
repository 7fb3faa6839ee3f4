package vocabulary

import (
	"bytes"
	"fmt"
)

// Lookup finds the ids of the values of rows. A Lookup is not safe for concurrent use, but
// several may share their fields.
type Lookup struct {
	fields []*Field
	keys   []key
	whole  bool
	text   []byte // buffer for the other spelling of a whole number
}

// key is a packed value, the slot where its search begins, and the content of that slot.
type key struct {
	a, b  uint64
	at    int
	first slot
}

// NewLookup returns a Lookup for rows with the given fields. If whole is true, a whole
// number that is unseen gets the id of its other spelling, with or without ".0". Many
// writers turn integers into floats if a value is missing, so the rows may have one
// spelling and the vocabulary the other.
func NewLookup(fields []*Field, whole bool) *Lookup {
	return &Lookup{fields: fields, keys: make([]key, len(fields)), whole: whole}
}

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
		if number == 0 && l.whole {
			number = l.other(t, value)
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

// ID returns the local id of a value of field j, or -1 if the value is unseen and the field has
// no id for unseen values.
func (l *Lookup) ID(j int, value []byte) int32 {
	number := int64(0)
	if t := &l.fields[j].values; len(t.slots) > 0 {
		a, b := pack(value)
		if number = t.find(value, a, b).number; number == 0 && l.whole {
			number = l.other(t, value)
		}
	}
	if number == 0 {
		return int32(l.fields[j].oov)
	}
	return int32(number - 1)
}

// has reports whether the field j has value, in this spelling or the other one of a whole
// number.
func (l *Lookup) has(j int, value []byte) bool {
	t := &l.fields[j].values
	if len(t.slots) == 0 {
		return false
	}
	a, b := pack(value)
	return t.find(value, a, b).number > 0 || l.whole && l.other(t, value) > 0
}

// other returns the id + 1 of the other spelling of a whole number, or 0 if value is not a
// whole number or its other spelling is unseen.
func (l *Lookup) other(t *table, value []byte) int64 {
	if len(t.slots) == 0 {
		return 0
	}
	other := WholeNumber(value)
	if len(other) == len(value) {
		if l.text = append(append(l.text[:0], value...), ".0"...); len(WholeNumber(l.text)) != len(value) {
			return 0
		}
		other = l.text
	}
	a, b := pack(other)
	return t.find(other, a, b).number
}

// WholeNumber returns value without its end ".0" if what remains is an integer in its usual
// form, and value itself otherwise. The text of minus zero becomes 0.
func WholeNumber(value []byte) []byte {
	n := len(value) - 2
	if n < 1 || value[n] != '.' || value[n+1] != '0' {
		return value
	}
	digits := bytes.TrimPrefix(value[:n], []byte{'-'})
	if len(digits) == 0 || digits[0] == '0' && len(digits) > 1 {
		return value
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return value
		}
	}
	if digits[0] == '0' {
		return digits
	}
	return value[:n]
}

package vocabulary

import (
	"io"

	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
)

// Field maps the values of one field to local ids in [0, Size). One id, usually the last,
// may stand for all unseen values (out of vocabulary, OOV), which have no id of their own.
// Other ids may be reserved, so that no value has them. Any number of goroutines may read
// a Field concurrently.
type Field struct {
	values   table // numbers are ids + 1
	size     int   // number of ids
	oov      int   // id of unseen values, or -1
	reserved int   // number of ids without a value, except oov
}

// newField returns a field with room for the given number of values. longBytes is the
// memory for values of more than 15 bytes.
func newField(values, longBytes int) *Field {
	return &Field{values: table{slots: make([]slot, values+values/3+2), arena: make([]byte, 0, longBytes)}}
}

// FieldBytes estimates the memory of a field in bytes. values is the number of values, and
// textBytes the size of their vocabulary file.
func FieldBytes(values, textBytes int64) int64 {
	return (values+values/3+2)*slotBytes + max(0, textBytes-values*(short+1))
}

// Bytes returns the memory of the field.
func (f *Field) Bytes() int64 { return int64(f.values.bytes()) }

// Size returns the number of features.
func (f *Field) Size() int { return f.size }

// OOV returns the id of unseen values, or -1 if they have no id.
func (f *Field) OOV() int { return f.oov }

// Reserved returns the number of ids that no value can get.
func (f *Field) Reserved() int { return f.reserved }

// add gives value the id. It returns false if value already has an id.
func (f *Field) add(value []byte, id int64) bool {
	a, b := pack(value)
	if len(f.values.slots) > 0 && f.values.find(value, a, b).number > 0 {
		return false
	}
	_, slots := f.values.need(value)
	f.values.insert(value, a, b, id+1, slots)
	return true
}

// Each calls visit for each id that has a line in a vocabulary file, in ascending order.
// If the id is reserved or stands for unseen values, has is false and value is empty.
// value is valid until visit returns.
func (f *Field) Each(visit func(value []byte, has bool) error) error {
	order := make([]int32, dataset.VocabularyLines(f.size, f.oov)) // position in slots + 1, by id; 0 without a value
	for i := range f.values.slots {
		if n := f.values.slots[i].number; n > 0 && int(n-1) != f.oov {
			order[n-1] = int32(i) + 1
		}
	}
	var value []byte
	for _, i := range order {
		if value = value[:0]; i > 0 {
			value = f.values.append(value, &f.values.slots[i-1])
		}
		if err := visit(value, i > 0); err != nil {
			return err
		}
	}
	return nil
}

// EachGrown is like Each for the field that f becomes when it also gets the values that more
// visits. New values get the ids from f.Size() in the order of more. The ids of all earlier
// values and of unseen values stay. A value that f has is skipped; whole is that of
// NewLookup.
func (f *Field) EachGrown(whole bool, visit func(value []byte, has bool) error, more func(visit func(value []byte) error) error) error {
	if err := f.Each(visit); err != nil {
		return err
	}
	lookup := NewLookup([]*Field{f}, whole)
	left := f.size - dataset.VocabularyLines(f.size, f.oov) // ids that need a line only if other ids follow
	return more(func(value []byte) error {
		if lookup.has(0, value) {
			return nil
		}
		for ; left > 0; left-- {
			if err := visit(nil, false); err != nil {
				return err
			}
		}
		return visit(value, true)
	})
}

// ReadField reads a vocabulary file. size is the number of ids of the field, oov the id of
// unseen values or -1, and textBytes the approximate size of the file.
func ReadField(r io.Reader, size, oov int, textBytes int64) (*Field, error) {
	values := int(min(int64(size), textBytes)) // each line has at least one byte
	f := newField(values, int(max(0, textBytes-int64(values)*(short+1))))
	f.size, f.oov, f.reserved = size, oov, size
	if oov >= 0 {
		f.reserved--
	}
	err := dataset.ReadVocabularyFile(r, size, oov, func(id int, value []byte) error {
		if !f.add(value, int64(id)) {
			return fault.Inputf("line %d: the value %q occurs twice", id+1, value)
		}
		f.reserved--
		return nil
	})
	return f, err
}

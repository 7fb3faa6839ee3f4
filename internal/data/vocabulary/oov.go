package vocabulary

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
)

// oov determines which id in a field of a mapper stands for all values that have no id of
// their own (out of vocabulary).
type oov struct {
	form  string // oovLast, oovNone, oovID or oovValue
	id    int64  // N of id=N
	value string // TEXT of value=TEXT
}

const (
	oovLast  = "last"
	oovNone  = "none"
	oovID    = "id"
	oovValue = "value"
)

// FuxiCTR's own values.
const (
	fuxiPadding = "__PAD__"
	fuxiUnseen  = "__OOV__"
)

// Settings that errors name (see fault.Setting).
const (
	UnseenSetting = "unseen"      // id of unseen values, the parameter oov of Read
	SizesSetting  = "field sizes" // parameter sizes of Choose
	MemorySetting = "memory"      // parameter memory of Read
)

// parseOOV parses last, none, id=N or value=TEXT. The empty text means last.
func parseOOV(text string) (oov, error) {
	form, rest, has := strings.Cut(text, "=")
	switch {
	case text == "" || text == oovLast:
		return oov{form: oovLast}, nil
	case text == oovNone:
		return oov{form: oovNone}, nil
	case form == oovValue && has:
		return oov{form: oovValue, value: rest}, nil
	case form == oovID && has:
		if id, err := strconv.ParseInt(rest, 10, 64); err == nil && id >= 0 && id < math.MaxInt32 {
			return oov{form: oovID, id: id}, nil
		}
	}
	return oov{}, fault.Setting(fault.Usagef("the id of unseen values is %q, expected last, id=N, value=TEXT or none", text), UnseenSetting)
}

// fit sets the field's size and its id of unseen values, and returns an error if two
// values have the same id. If want is not 0, it is the size of the model's field and
// becomes the size. If want is 0, the size is the least that the ids need, and every id
// must have a value or stand for unseen values. position and name identify the field in
// messages.
func (f *Field) fit(rule oov, position int, name string, want int) error {
	largest, zero := int64(-1), false
	for i := range f.values.slots {
		id := f.values.slots[i].number - 1
		largest, zero = max(largest, id), zero || id == 0
	}
	size := largest + 1
	values := f.values.used // number of values, later without the one that stands for unseen values
	f.oov = -1
	switch rule.form {
	case oovLast:
		f.oov = int(size)
		size++
	case oovID:
		f.oov = int(rule.id)
		size = max(size, rule.id+1)
	case oovValue:
		if f.oov = f.id(rule.value); f.oov < 0 {
			return fault.Inputf("field %s has no value %q, which was chosen to stand for unseen values", name, rule.value)
		}
		values--
	}
	needed := int64(values) // number of ids in use
	if f.oov >= 0 {
		needed++
	}
	switch {
	case want > 0 && (size > int64(want) || rule.form == oovLast && size < int64(want)):
		return misfit(rule, position, name, values, size, size == needed, want)
	case want > 0:
		size = int64(want)
	case size == needed+1 && rule.form == oovLast && !zero:
		return fault.Setting(fault.Inputf("field %s has the ids from 1 to %d and no value with the id 0: if 0 stands for unseen values, choose id=0; if it stands for something else, give the size of the field", name, largest),
			UnseenSetting, SizesSetting)
	case size > needed && rule.form == oovLast:
		return fault.Setting(fault.Inputf("field %s has %d values and the id %d: ids must count from 0 without a gap, unless the id of unseen values or the size of the field is given", name, values, largest),
			UnseenSetting, SizesSetting)
	case size > needed:
		return fault.Setting(fault.Inputf("field %s has %d values and ids up to %d, so some ids have no value: if that is correct, give the size of the field", name, values, size-1), SizesSetting)
	}
	f.size, f.reserved = int(size), int(size-needed)
	return f.distinct(rule, name)
}

// id returns the id of a value, or -1 if the field does not have the value.
func (f *Field) id(value string) int {
	if f.values.used == 0 {
		return -1
	}
	a, b := pack([]byte(value))
	return int(f.values.find([]byte(value), a, b).number) - 1
}

// misfit returns the error for a field whose size is not that of the model's field. whole
// is true if every id below size is in use.
func misfit(rule oov, position int, name string, values int, size int64, whole bool, want int) error {
	what := fmt.Sprintf("ids up to %d", size-1)
	if whole {
		what = fmt.Sprintf("%d values", values)
	}
	err := fault.Inputf("field %d (%s) has %s, hence %d features, but the model has %d", position, name, what, size, want)
	if rule.form == oovLast {
		err = fault.Setting(fmt.Errorf("%w: if unseen values do not have the id after the largest one, give their id", err), UnseenSetting)
	}
	return err
}

// distinct returns an error if two values have the same id. With id=N, it also returns an
// error if a value has the id N.
func (f *Field) distinct(rule oov, name string) error {
	seen := make([]bool, f.size)
	for i := range f.values.slots {
		s := &f.values.slots[i]
		switch id := s.number - 1; {
		case id < 0:
		case seen[id]:
			return fault.Inputf("field %s has two values with the id %d", name, id)
		case rule.form == oovID && id == rule.id:
			value := f.values.append(nil, s)
			return fault.Setting(fault.Inputf("field %s: the id %d cannot be the id of unseen values, because the value %.100q has it: if this value stands for them, choose value=TEXT", name, id, value),
				UnseenSetting)
		default:
			seen[id] = true
		}
	}
	return nil
}

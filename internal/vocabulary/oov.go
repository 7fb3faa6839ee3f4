package vocabulary

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"shaver/internal/fault"
)

// oov says which id of a field of somebody's mapper stands for all values that
// have no id of their own (out of vocabulary). The zero value is the id after the
// largest.
type oov struct {
	form  string // "last", "none", or what is before the = of the others
	id    int64  // id=
	value string // value=
}

const (
	oovLast  = "last"
	oovNone  = "none"
	oovID    = "id"
	oovValue = "value"
)

// Settings that errors name (see fault.Setting).
const (
	UnseenSetting = "unseen"      // which id unseen values get: the oov of Read
	SizesSetting  = "field sizes" // the sizes of Choose
	MemorySetting = "memory"      // the memory of Read
)

// parseOOV reads last (also ""), none, id=N or value=TEXT.
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

// fit decides the field's size and the id of unseen values, and sees to it that
// no two values share an id. The size is want, a model's; without one (0) it is
// the least that the ids need, and each of them needs a value. position and name
// are the field's, for messages.
func (f *Field) fit(rule oov, position int, name string, want int) error {
	largest := int64(-1)
	for i := range f.values.slots {
		largest = max(largest, f.values.slots[i].number-1)
	}
	size := largest + 1
	values := f.values.used // with an id that is not that of unseen ones
	f.oov = -1
	switch rule.form {
	case oovLast:
		f.oov = int(size)
		size++
	case oovID:
		f.oov = int(rule.id)
		size = max(size, rule.id+1)
	case oovValue:
		a, b := pack([]byte(rule.value))
		if values > 0 {
			f.oov = int(f.values.find([]byte(rule.value), a, b).number) - 1
		}
		if f.oov < 0 {
			return fault.Inputf("field %s has no value %q, whose id is to be that of unseen values", name, rule.value)
		}
		values--
	}
	needed := int64(values)
	if f.oov >= 0 {
		needed++
	}
	switch {
	case want > 0 && (size > int64(want) || rule.form == oovLast && size < int64(want)):
		return misfit(rule, position, name, values, size, size == needed, want)
	case want > 0:
		size = int64(want)
	case size > needed && rule.form == oovLast:
		return fault.Setting(fault.Inputf("field %s has %d values and the id %d: ids count from 0 without a gap, unless the id of unseen values or the size of the field is given", name, values, largest),
			UnseenSetting, SizesSetting)
	case size > needed:
		return fault.Setting(fault.Inputf("field %s has %d values and ids to %d, so some ids have no value: if that is right, give the size of the field", name, values, size-1), SizesSetting)
	}
	f.size, f.reserved = int(size), int(size-needed)
	return f.distinct(rule, name)
}

// misfit says that a mapper's field is not the model's.
func misfit(rule oov, position int, name string, values int, size int64, whole bool, want int) error {
	what := fmt.Sprintf("ids to %d", size-1)
	if whole {
		what = fmt.Sprintf("%d values", values)
	}
	err := fault.Inputf("field %d (%s) has %s and so %d features, the model has %d", position, name, what, size, want)
	if rule.form == oovLast {
		err = fault.Setting(fmt.Errorf("%w: if the id of unseen values is not the one after the largest, give it", err), UnseenSetting)
	}
	return err
}

// distinct sees to it that each id is of one value at most, and that of unseen
// values of none but the one that names it.
func (f *Field) distinct(rule oov, name string) error {
	seen := make([]bool, f.size)
	for i := range f.values.slots {
		s := &f.values.slots[i]
		switch id := s.number - 1; {
		case id < 0:
		case seen[id]:
			return fault.Inputf("field %s has two values of the id %d", name, id)
		case rule.form == oovID && id == rule.id:
			value := f.values.append(nil, s)
			return fault.Setting(fault.Inputf("field %s: the id %d, which is to be that of unseen values, is that of %.100q: if this value stands for them, choose value=TEXT", name, id, value),
				UnseenSetting)
		default:
			seen[id] = true
		}
	}
	return nil
}

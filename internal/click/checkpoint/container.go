package checkpoint

import "slices"

// container runs op if it changes the stack or builds a list, tuple or dict, and
// otherwise returns false.
func (u *unpickler) container(op byte) bool {
	switch op {
	case opMark:
		if len(u.marks) >= maxValues {
			u.fail("has more than %d open marks", maxValues)
		}
		u.marks = append(u.marks, len(u.stack))
	case opPop:
		if len(u.marks) > 0 && len(u.stack) == u.floor() {
			u.marks = u.marks[:len(u.marks)-1]
		} else {
			u.pop()
		}
	case opPopMark:
		u.popMark()
	case opDup:
		u.push(u.top())
	case opEmptyTuple:
		u.push(tuple(nil))
	case opTuple1, opTuple2, opTuple3:
		items := make(tuple, op-opTuple1+1)
		for i := len(items) - 1; i >= 0; i-- {
			items[i] = u.pop()
		}
		u.made(items)
	case opTuple:
		if items := u.popMark(); u.hold(len(items)) {
			u.made(tuple(slices.Clone(items)))
		}
	case opEmptyList:
		u.made(&list{})
	case opList:
		if items := u.popMark(); u.hold(len(items)) {
			u.made(&list{slices.Clone(items)})
		}
	case opAppend:
		u.append([]any{u.pop()})
	case opAppends:
		u.append(u.popMark())
	case opEmptyDict:
		u.made(&dict{})
	case opDict:
		pairs := u.popMark()
		d := &dict{}
		u.set(d, pairs)
		u.made(d)
	case opEmptySet:
		u.made(&object{class: "builtins.set"})
	case opAddItems:
		u.append(u.popMark())
	case opFrozenSet:
		if items := u.popMark(); u.hold(len(items)) {
			u.made(&object{class: "builtins.frozenset", list: list{slices.Clone(items)}})
		}
	case opSetItem:
		value := u.pop()
		key := u.pop()
		u.set(u.top(), []any{key, value})
	case opSetItems:
		pairs := u.popMark()
		u.set(u.top(), pairs)
	default:
		return false
	}
	return true
}

// append adds items to the list, set or object on top of the stack.
func (u *unpickler) append(items []any) {
	top := u.top()
	if u.err != nil {
		return
	}
	var l *list
	switch top := top.(type) {
	case *list:
		l = top
	case *object:
		l = &top.list
	default:
		u.fail("appends at byte %d to %s", u.at, describe(top))
		return
	}
	if u.hold(len(items)) {
		l.items = append(l.items, items...)
	}
}

// set adds pairs to into, which is a dict or an object. Keys and values alternate in
// pairs.
func (u *unpickler) set(into any, pairs []any) {
	if u.err != nil {
		return
	}
	var d *dict
	switch into := into.(type) {
	case *dict:
		d = into
	case *object:
		d = &into.pairs
	default:
		u.fail("sets an item at byte %d of %s", u.at, describe(into))
		return
	}
	if len(pairs)%2 != 0 {
		u.fail("sets a key without a value at byte %d", u.at)
		return
	}
	if !u.hold(len(pairs)) {
		return
	}
	for i := 0; i < len(pairs); i += 2 {
		switch pairs[i].(type) {
		case nil, bool, int64, float64, string, tuple, []byte, global, opaque, *object, *tensorRef:
		default:
			u.fail("has a dict at byte %d whose key is %s", u.at, describe(pairs[i]))
			return
		}
		d.keys = append(d.keys, pairs[i])
		d.values = append(d.values, pairs[i+1])
	}
}

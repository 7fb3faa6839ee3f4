package ingest

import (
	"bytes"
	"fmt"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/vocabulary"
)

// Sharing says that a field has the values and the ids of another one, because a model reads
// both from one table. An example is a history of items and the item itself.
type Sharing struct{ Field, With string }

// rawLists is what an import knows about lists and shared values. Encoded rows share none.
type rawLists struct {
	lists     []list // by field; nil if no field is a list
	separator byte   // between two values of a cell
	long      string
	owner     []int // by field: the field whose values it has, the field itself if it shares none; nil if no field shares
}

// setLists derives the lists from the configuration. separator is that of the columns of a
// text, or 0.
func (r *importer) setLists(separator byte) (err error) {
	l, config := r.layout, &r.config.Lists
	if l.lists, err = config.of(l.fields, separator); err != nil {
		return err
	}
	l.separator, l.long = config.separator(), config.Long
	for _, s := range r.config.Share {
		field, with := slices.Index(l.fields, s.Field), slices.Index(l.fields, s.With)
		switch {
		case field < 0 || with < 0:
			return fault.Setting(fault.Inputf("%q shares the values of %q, but the fields are %q", s.Field, s.With, l.fields), ShareSetting)
		case field == with:
			return fault.Setting(fault.Usagef("field %q shares its own values", s.Field), ShareSetting)
		}
		if l.owner == nil {
			l.owner = make([]int, len(l.fields))
			for j := range l.owner {
				l.owner[j] = j
			}
		}
		l.join(field, with)
	}
	if r.mapped || r.encoded != nil {
		return nil
	}
	for j, list := range l.lists {
		if list.length > 0 && list.pad > 0 {
			return fault.Setting(fault.Usagef("list %s has the pad id %d, expected 0 in a new vocabulary, or no pad id", l.fields[j], list.pad), PadSetting)
		}
	}
	return nil
}

// join makes two fields, and the fields that share with them, share their values. The owner is
// the first of them.
func (l *rawLists) join(field, with int) {
	from, to := l.owner[field], l.owner[with]
	if from < to {
		from, to = to, from
	}
	for j, owner := range l.owner {
		if owner == from {
			l.owner[j] = to
		}
	}
}

// ownerOf returns the field whose values field j has.
func (l *rawLists) ownerOf(j int) int {
	if l.owner == nil {
		return j
	}
	return l.owner[j]
}

// called returns the name of field j in the vocabulary. A field that the vocabulary does not have is called as
// its column, if the vocabulary has that: a model may name its fields otherwise than the mapper that gave their ids.
func (r *importer) called(j int) string {
	name, names := r.layout.fields[j], r.config.Vocabulary.Names
	if column := r.layout.names[r.layout.pick[j]]; !slices.Contains(names, name) && slices.Contains(names, column) {
		return column
	}
	return name
}

// owners returns, for each field, the name in the vocabulary of the field whose values it has. Of the fields that share
// values, it is the first that the vocabulary has.
func (r *importer) owners() []string {
	names := make([]string, len(r.layout.fields))
	for j := range names {
		owner := r.layout.ownerOf(j)
		if name := r.called(j); names[owner] == "" || !slices.Contains(r.config.Vocabulary.Names, names[owner]) && slices.Contains(r.config.Vocabulary.Names, name) {
			names[owner] = name
		}
	}
	for j := range names {
		names[j] = names[r.layout.ownerOf(j)]
	}
	return names
}

// choose returns the fields of the vocabulary. sizes is that of vocabulary.Mapper.Choose.
func (r *importer) choose(sizes []int) ([]*vocabulary.Field, error) {
	owners := r.owners()
	for j, owner := range owners {
		switch err := r.config.Vocabulary.Share(owner, r.called(j)); {
		case err != nil && fault.Settings(err) == nil:
			return nil, fault.Setting(err, ShareSetting)
		case err != nil: // it names the limit of the memory
			return nil, err
		}
	}
	return r.config.Vocabulary.Choose(owners, sizes)
}

// padded reports whether the first id of a new vocabulary of field j stands for positions
// without a value.
func (l *rawLists) padded(j int) bool {
	for k, list := range l.lists {
		if list.length > 0 && list.pad >= 0 && l.ownerOf(k) == l.ownerOf(j) {
			return true
		}
	}
	return false
}

// listColumns returns the names of the columns that are lists.
func (l *layout) listColumns() []string {
	var names []string
	for j, list := range l.rawLists.lists {
		if list.length > 0 {
			names = append(names, l.names[l.pick[j]])
		}
	}
	return names
}

// plain reports whether no field is a list and no field shares values.
func (l *rawLists) plain() bool { return l.lists == nil && l.owner == nil }

// length returns the number of ids of field j in a row.
func (l *rawLists) length(j int) int {
	if l.lists == nil {
		return 1
	}
	return max(1, l.lists[j].length)
}

// split stores the values of the cell of list j that keep returns in values, which must be empty. If whole is set, the text
// of a whole number loses its end ".0".
func (l *rawLists) split(j int, cell []byte, whole bool, values [][]byte) (_ [][]byte, cut bool, err error) {
	for rest, more := cell, len(cell) > 0; more; {
		var value []byte
		if value, rest, more = bytes.Cut(rest, []byte{l.separator}); len(value) == 0 {
			return nil, false, fmt.Errorf("value %d of %d is empty", len(values)+1, bytes.Count(cell, []byte{l.separator})+1)
		}
		if whole {
			value = vocabulary.WholeNumber(value)
		}
		values = append(values, value)
	}
	return keep(values, l, &l.lists[j], "values")
}

// keep returns the values of a list that form has room for, in the memory of values, and reports whether others were left
// out. what names the values in messages.
func keep[T any](values []T, l *rawLists, form *list, what string) (_ []T, cut bool, err error) {
	n, room := len(values), form.length
	switch cut = n > room; {
	case cut && l.long == LongLast:
		copy(values, values[n-room:])
	case cut && l.long != LongFirst:
		return nil, false, fault.Setting(fmt.Errorf("%d %s, expected at most %d", n, what, room), LongSetting)
	case n < room && form.pad < 0:
		return nil, false, fmt.Errorf("%d %s, expected %d, because no id stands for missing ones", n, what, room)
	}
	return values[:min(n, room)], cut, nil
}

// rowCounter counts the values of rows with lists or shared values.
type rowCounter struct {
	*rawLists
	counter *vocabulary.Counter
	values  [][]byte // of one owner
}

// add counts each value once for the fields that share it.
func (c *rowCounter) add(values [][]byte, lists [][][]byte) error {
	for owner := range values {
		if c.ownerOf(owner) != owner {
			continue
		}
		c.values = c.values[:0]
		for j := owner; j < len(values); j++ {
			switch {
			case c.ownerOf(j) != owner:
			case c.lists != nil && c.lists[j].length > 0:
				c.values = append(c.values, lists[j]...)
			default:
				c.values = append(c.values, values[j])
			}
		}
		slices.SortFunc(c.values, bytes.Compare)
		for i, value := range c.values {
			if i > 0 && bytes.Equal(value, c.values[i-1]) {
				continue
			}
			if err := c.counter.AddTo(owner, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendIDs appends the ids of a row to ids, [fields], and returns -1. If a value is unseen and
// its field has no id for unseen values, it returns the field and the value.
func (l *rawLists) appendIDs(lookup *vocabulary.Lookup, ids [][]int32, values [][]byte, lists [][][]byte) (without int, value []byte) {
	for j := range ids {
		all := values[j : j+1]
		if l.lists != nil && l.lists[j].length > 0 {
			all = lists[j]
		}
		for _, value := range all {
			id := lookup.ID(j, value)
			if id < 0 {
				return j, value
			}
			ids[j] = append(ids[j], id)
		}
		if l.lists != nil && len(all) < l.lists[j].length {
			ids[j] = l.lists[j].fill(ids[j], len(all))
		}
	}
	return -1, nil
}

// ModelSharing returns the fields of a model with the given names that read the same rows of a
// table as an earlier field.
func ModelSharing(a *model.Architecture, names []string) []Sharing {
	var all []Sharing
	for i, l := range a.LookUps {
		for _, o := range a.LookUps[:i] {
			if o.Table == l.Table && o.Offset == l.Offset && o.Field != l.Field {
				all = append(all, Sharing{names[l.Field], names[o.Field]})
				break
			}
		}
	}
	return all
}

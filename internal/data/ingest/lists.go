package ingest

import (
	"cmp"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
)

// Lists states which columns are lists of ids, and how their cells are read.
type Lists struct {
	Columns   []ListColumn
	Separator byte   // byte between two values of a cell; 0 means ListSeparator
	Long      string // what to do with a cell of too many values: LongFail, LongFirst or LongLast; "" means LongFail
	Pads      string // side on which lists are filled: model.Front or model.End; "" means that of RawConfig.Vocabulary, or model.End
}

// ListColumn is a column that is a list.
type ListColumn struct {
	Name   string // name of the field, or "" if Field says which one it is
	Field  int    // number of the field, without a Name
	Length int    // number of positions, 1 to model.MaxLength
	Pad    int    // local id of positions without a value; -1 if no id stands for them
}

// What to do with a list that has more values than positions.
const (
	LongFail  = "fail"  // the row is malformed
	LongFirst = "first" // keep the first values
	LongLast  = "last"  // keep the last values
)

// ListSeparator is the usual separator of the values of a list. Ids and most values do not
// contain it, and it needs no quotes in CSV.
const ListSeparator = '|'

// of returns the form of each of the named fields, or nil if none is a list. separator is
// that of the columns.
func (l *Lists) of(fields []string, separator byte) ([]list, error) {
	if len(l.Columns) == 0 {
		return nil, nil
	}
	if own := l.separator(); own == separator || own >= '0' && own <= '9' || own == '.' || own == '-' || own < ' ' || own > '~' || own == '"' {
		return nil, fault.Setting(fault.Usagef("the values of a list are separated by %q, expected a character that is neither a digit, a point, a minus sign, a quote nor the separator of the columns: write them with %q between them", own, ListSeparator), ListSeparatorSetting)
	}
	if !slices.Contains([]string{"", LongFail, LongFirst, LongLast}, l.Long) {
		return nil, fault.Usagef("the policy for long lists is %q, expected %s, %s or %s", l.Long, LongFail, LongFirst, LongLast)
	}
	lists := make([]list, len(fields))
	for _, c := range l.Columns {
		j := c.Field
		if c.Name != "" {
			j = slices.Index(fields, c.Name)
		} else if j >= len(fields) {
			continue // the file has too few fields for the model, which the caller reports
		}
		switch {
		case j < 0:
			return nil, fault.Setting(fault.Inputf("list %q is not one of the fields, which are %q", c.Name, fields), ListSetting)
		case lists[j].length > 0:
			return nil, fault.Setting(fault.Usagef("column %q is named twice as a list", fields[j]), ListSetting)
		case c.Length < 1 || c.Length > model.MaxLength:
			return nil, fault.Setting(fault.Usagef("list %s has %d positions, expected 1 to %d", fields[j], c.Length, model.MaxLength), ListSetting)
		case c.Pad < -1:
			return nil, fault.Setting(fault.Usagef("list %s has the pad id %d, expected at least 0", fields[j], c.Pad), PadSetting)
		}
		lists[j] = list{c.Length, c.Pad, c.Pad >= 0 && l.Pads == model.Front}
	}
	return lists, nil
}

func (l *Lists) separator() byte {
	if l.Separator == 0 {
		return ListSeparator
	}
	return l.Separator
}

// checkPads returns an error if the pad id of a list is not one of its ids.
func checkPads(fields []string, lists []list, sizes []int) error {
	for j, l := range lists {
		if l.length > 0 && l.pad >= sizes[j] {
			return fault.Setting(fault.Inputf("list %s has the pad id %d, expected one of its %d ids", fields[j], l.pad, sizes[j]), PadSetting)
		}
	}
	return nil
}

// Adopt adds the lists of an earlier dataset that l does not have, if they are among the fields of
// the import. These may be others than the dataset's, or have another order.
func (l *Lists) Adopt(d *dataset.Dataset, fields []Column) {
	for _, f := range d.Manifest.Fields {
		named := func(c Column) bool { return cmp.Or(c.As, c.Name) == f.Name }
		own := func(c ListColumn) bool { return c.Name == f.Name }
		if f.Length == 0 || !slices.ContainsFunc(fields, named) || slices.ContainsFunc(l.Columns, own) {
			continue
		}
		c := ListColumn{Name: f.Name, Length: f.Length, Pad: -1}
		if f.Pad != nil {
			c.Pad = *f.Pad
		}
		l.Columns = append(l.Columns, c)
	}
}

// ModelLists returns the lists of a model.
func ModelLists(a *model.Architecture) []ListColumn {
	var columns []ListColumn
	for _, l := range a.Lists {
		columns = append(columns, ListColumn{Field: l.Field, Length: l.Length, Pad: l.Pad})
	}
	return columns
}

package ingest

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/vocabulary"
)

// oneKind returns a warning for each split whose labels are all 0 or all 1.
func oneKind(m *dataset.Manifest) (warnings []string) {
	for _, s := range m.Splits {
		if n := s.Positives; n != nil && s.Rows > 1 && (*n == 0 || *n == s.Rows) {
			warnings = append(warnings, fmt.Sprintf("split %s: all %d rows have the label %d, so no AUC can be measured on it: expected rows with label 0 and rows with label 1", s.Name, s.Rows, *n/s.Rows))
		}
	}
	return warnings
}

// smallTrain returns a warning for each split that has more than twice the rows of train.
func smallTrain(m *dataset.Manifest) (warnings []string) {
	at := slices.IndexFunc(m.Splits, func(s dataset.Split) bool { return s.Name == dataset.Train })
	for _, s := range m.Splits {
		if at >= 0 && s.Rows > 2*m.Splits[at].Rows {
			warnings = append(warnings, fmt.Sprintf("split %s has %d rows and split train only %d: check that their files are not swapped", s.Name, s.Rows, m.Splits[at].Rows))
		}
	}
	return warnings
}

// farFrom is the number of deviations from which shifted warns. The means of two days are much closer.
const farFrom = 2

// shifted returns a warning for each dense input whose numbers are far from the statistics of its rule, which are then
// probably those of another column or of numbers in another unit.
func shifted(m *dataset.Manifest) (warnings []string) {
	for _, in := range m.Dense {
		if in.Rule != dense.ZScore {
			continue
		}
		if away := math.Abs(in.Values.Mean-*in.Mean) / *in.Deviation; away > farFrom {
			warnings = append(warnings, fmt.Sprintf("dense input %s: the mean of its numbers is %.4g, which is %.2g deviations from the mean %.4g of its rule %s: check the column, its unit, and the statistics", in.Name, in.Values.Mean, away, *in.Mean, in.Rule))
		}
	}
	return warnings
}

// oddLists returns a warning for each field whose lists have no value in any row, and for each with lists that have their
// pads on the other side.
func (b *builder) oddLists() (warnings []string) {
	first := 0
	for j, l := range b.lists {
		var values, rows int64
		for _, s := range b.splits {
			rows += s.total
			for _, n := range s.counts[first : first+b.sizes[j]] {
				values += n
			}
		}
		if l.length > 0 && values == 0 && rows > 0 {
			warnings = append(warnings, fmt.Sprintf("field %s: the lists of all %d rows are empty, so the field says nothing: check the column and the form of its lists, or leave it out", b.fields[j], rows))
		}
		if n := b.turned[j]; n > 0 && (b.oov == nil || b.oov[j] != l.pad) {
			side, other := model.End, model.Front
			if l.front {
				side, other = other, side
			}
			warnings = append(warnings, fmt.Sprintf("field %s: %d lists have the pad id %d at their %s in the input and keep it there, but others are filled at their %s: if that is not the side of the training, import with --list-pads %s", b.fields[j], n, l.pad, other, side, other))
		}
		first += b.sizes[j]
	}
	return warnings
}

// listCount counts lists of a field.
type listCount struct {
	some int64 // lists with a value
	one  int64 // lists with one value that may be several texts
}

// note adds the values of a list.
func (c *listCount) note(values [][]byte) {
	if len(values) > 0 {
		c.some++
	}
	if len(values) == 1 && (isJoined(values[0]) || bytes.IndexByte(values[0], ' ') > 0) {
		c.one++
	}
}

// otherSeparators returns a warning for each field most of whose lists have one value that may be several
// texts, as they do if the separator is not theirs. unseen has the number of rows with unseen values, by field, or is nil
// without a vocabulary. Few lists suffice if the vocabulary lacks what they have.
func otherSeparators(names []string, workers []*valueIDs, unseen []int64) (warnings []string) {
	for j, name := range names {
		var all listCount
		for _, v := range workers {
			all.some += v.lists[j].some
			all.one += v.lists[j].one
		}
		if (all.one >= 30 || unseen != nil && unseen[j] >= all.one) && all.one > all.some/2 {
			warnings = append(warnings, fmt.Sprintf("field %s: %d of %d lists have one value that contains "+separators+" a comma or a space: check the separator of the lists, or ignore this if each of these values is one id", name, all.one, all.some))
		}
	}
	return warnings
}

// timestamp matches what begins as 2024-01-02 03:04 or 2024-01-02T03:04 does.
var timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\d[ T]\d\d:\d\d`)

// kindOfValue is a kind of values. A field has it if most of its values do, and if they are at least the given
// number: fewer values with decimals may be versions or sizes.
type kindOfValue struct {
	least int
	is    func(value []byte) bool
	text  string
}

// noIDs are the kinds of values that a field should not have.
var noIDs = []kindOfValue{
	{1000, hasDecimals, "have decimals, as measures have: expected ids; make a price or a duration a dense input"},
	{100, timestamp.Match, "are timestamps: expected ids; derive the hour or the weekday before the import"},
	{100, isJoined, "contain " + separators + " or a comma, as lists do: make the field a list, or ignore this if each of them is one id"},
}

// unlikeIDs returns a warning for each field whose values are of a kind that a field should not have. lists may be nil.
func unlikeIDs(names []string, fields []*vocabulary.Field, lists []list) (warnings []string, err error) {
	for j, f := range fields {
		kinds := noIDs
		if lists != nil && lists[j].length > 0 {
			kinds = noIDs[:2] // the last is for fields that should be lists
		}
		values, of := 0, make([]int, len(kinds))
		err := f.Each(func(value []byte, has bool) error {
			if !has {
				return nil
			}
			values++
			for k, kind := range kinds {
				if kind.is(value) {
					of[k]++
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for k, kind := range kinds {
			if values >= kind.least && of[k] > values/2 {
				warnings = append(warnings, fmt.Sprintf("field %s: most of its %d values %s", names[j], values, kind.text))
			}
		}
	}
	return warnings, nil
}

// manyRare returns a warning for each field, except lists, of which most rows share the id of rare values, so that it says nothing
// about them. A value is rare that occurs in fewer than c.MinCount rows.
func (b *builder) manyRare(c *RawConfig) (warnings []string) {
	first, of := 0, ""
	if c.Counted == CountTrain {
		of = " of train"
	}
	for j, name := range b.fields {
		var rare, rows int64
		for _, s := range b.splits {
			rows += s.total
			if b.oov[j] >= 0 {
				rare += s.counts[first+b.oov[j]]
			}
		}
		if rows >= leastRare && rare > rows/10*9 && (b.lists == nil || b.lists[j].length == 0) {
			warnings = append(warnings, fmt.Sprintf("field %s: the values of %.1f%% of the rows occur in fewer than %d rows%s, so these rows share one id: expected ids that repeat; give rarer values ids, make a measure a dense input, or leave the column out",
				name, 100*float64(rare)/float64(rows), c.MinCount, of))
		}
		first += b.sizes[j]
	}
	return warnings
}

// leastRare is the number of rows from which manyRare warns.
const leastRare = 100

// separators are the usual separators of lists besides the comma and the space.
const separators = "| ; ^"

// isJoined reports whether value is several texts with a usual separator of lists between them. A comma before a
// space is one of a phrase.
func isJoined(value []byte) bool {
	for i := 1; i < len(value)-1; i++ {
		if c := value[i]; c != ' ' && strings.IndexByte(separators, c) >= 0 || c == ',' && value[i+1] != ' ' {
			return true
		}
	}
	return false
}

// hasDecimals reports whether value is a number such as 12.5, with decimals that are not all 0.
func hasDecimals(value []byte) bool {
	whole, decimals, _ := bytes.Cut(bytes.TrimPrefix(value, []byte("-")), []byte("."))
	digits := func(text []byte) bool { return len(text) > 0 && len(bytes.Trim(text, "0123456789")) == 0 }
	return digits(whole) && digits(decimals) && len(bytes.Trim(decimals, "0")) > 0
}

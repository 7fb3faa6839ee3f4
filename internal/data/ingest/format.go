package ingest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"shaver/internal/base/fault"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/rawtext"
	"shaver/internal/data/vocabulary"
)

// Rules that map Criteo's integers to values.
const (
	LnSquared = "ln-squared" // floor(ln(x)^2) above 2, as in the public code; gives the number of features in the paper
	Log2      = "log2"       // ceil(log2(x)) above 2, as in the paper
)

// Format describes raw files, and how their columns become a label and fields. The zero
// value is for text files with a header. The column "label" is the label, and every other
// column is a field.
type Format struct {
	Label    string            // name of the label's column; "" means "label"
	Others   []string          // names of the columns of other labels, which are 0 or 1 by the same rules; an empty cell is a missing label
	Weight   string            // name of the column of the rows' weights; "" means that all rows count once
	From     int64             // if not 0, labels are counts, and a count of at least From means label 1
	Numbers  bool              // labels are finite numbers, such as ratings; then From is 0
	Positive string            // if not "", the text of label 1, and any other is label 0; then From is 0 and Numbers false
	Dense    Dense             // columns that become dense inputs
	Columns  []Column          // columns that become fields, in this order; nil: every column except those of labels, the weight and dense inputs
	columns  []string          // column names, if the format fixes them
	headed   bool              // whether files have a header although columns is set
	comma    bool              // columns are separated by commas, not tabs; if columns is set, there are no quotes
	drop     string            // column that does not become a field
	integer  int               // number of fields, from the first, that are Criteo's integers
	numbers  string            // name of the rule for integers
	rule     func(int64) int64 // value of an integer above 2
	tables   bool              // files are Parquet or Arrow, not text
	encoded  bool              // the first column is the label, and the values of fields are ids
}

// Column chooses a column as a field. As is the name of the field; "" means the name of the
// column.
type Column struct{ Name, As string }

// Criteo returns the format of the display advertising challenge. Its files are
// tab-separated and have no header. A row is a label, 13 integers and 26 strings, and all
// integers and strings may be empty. An integer x above 2 becomes the value of the rule, any
// other x becomes x-2, and an empty integer becomes NULL. With a rule of package dense, the
// integers become dense inputs, and not fields.
func Criteo(rule string) (Format, error) {
	f := Format{columns: []string{"label"}, integer: 13, numbers: rule}
	for i := range 13 {
		f.columns = append(f.columns, "I"+strconv.Itoa(i+1))
	}
	for i := range 26 {
		f.columns = append(f.columns, "C"+strconv.Itoa(i+1))
	}
	switch rule {
	case LnSquared:
		f.rule = func(x int64) int64 { l := math.Log(float64(x)); return int64(l * l) }
	case Log2:
		f.rule = func(x int64) int64 { return int64(bits.Len64(uint64(x - 1))) }
	default:
		if !slices.Contains(dense.Rules, rule) {
			return f, fault.Setting(fault.Usagef("the rule for integers is %q, expected %s, %s, or for dense inputs %s", rule, LnSquared, Log2, strings.Join(dense.Rules, ", ")), NumbersSetting)
		}
		f.integer = 0
		for _, name := range f.columns[1:14] {
			f.Dense.Columns = append(f.Dense.Columns, DenseColumn{Name: name, Input: dense.Input{Rule: rule}})
		}
	}
	return f, nil
}

// Avazu returns the format of the click-through rate challenge. Its files are
// comma-separated and have a header. The label is the column "click", and the column "id" is
// dropped.
func Avazu() Format {
	return Format{Label: "click", headed: true, comma: true, drop: "id", columns: []string{
		"id", "click", "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category",
		"device_id", "device_ip", "device_model", "device_type", "device_conn_type", "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21"}}
}

// KDD returns the format of the KDD Cup 2012, track 2. Its files are tab-separated and have
// no header. The label is 1 if there was at least one click, and the other 11 columns are
// fields.
func KDD() Format {
	return Format{Label: "clicks", From: 1, columns: []string{
		"clicks", "impressions", "display_url", "ad", "advertiser", "depth", "position", "query", "keyword", "title", "description", "user"}}
}

// Tables returns the format of Parquet files and Arrow IPC files.
func Tables() Format { return Format{tables: true} }

// layout is a format applied to the columns of the files.
type layout struct {
	Format
	names  []string // names of all columns: those of the files, and then those of the folders (see place)
	at     int      // position of the label's column
	fields []string // names of the fields
	pick   []int    // position of each field's column, or -1 if the field is computed
	dense  *densePlan
	inputs []int // position of the column of each dense input
	others []int // position of the column of each label after the first
	weight int   // position of the column of the weights, or -1
	rawLists
}

func (f Format) label() string { return cmp.Or(f.Label, "label") }

// Taken returns the names of the columns of labels and weights, which become fields or dense inputs only if they are named as such.
func (f Format) Taken() []string {
	names := append([]string{f.label()}, f.Others...)
	if f.Weight != "" {
		names = append(names, f.Weight)
	}
	return names
}

func (f Format) layout(names []string) (*layout, error) {
	l := &layout{Format: f, names: names, weight: -1}
	var err error
	if !f.encoded {
		if l.at, err = column(names, f.label(), " for the label"); err != nil {
			return nil, fault.Setting(err, LabelSetting)
		}
	}
	if len(f.Others) > 0 && f.Numbers {
		return nil, fault.Setting(fault.Usagef("labels are numbers, but of several labels each must be 0 or 1"), LabelSetting, NumberLabelsSetting)
	}
	for _, name := range f.Others {
		at, err := column(names, name, " for a label")
		if at == l.at && err == nil {
			err = fmt.Errorf("column %q is named twice as a label", name)
		}
		if err != nil {
			return nil, fault.Setting(err, LabelSetting)
		}
		l.others = append(l.others, at)
	}
	if f.Weight != "" {
		if l.weight, err = column(names, f.Weight, " for the weight"); err != nil {
			return nil, fault.Setting(err, WeightSetting)
		}
	}
	if l.dense, err = f.Dense.plan(); err != nil {
		return nil, err
	}
	for i, name := range l.dense.columns {
		at, err := column(names, name, " for a dense input")
		if err != nil && name == l.dense.inputs[i].Name && !slices.Contains(names, name) {
			err = fmt.Errorf("%w; NAME=%s makes the dense input of column NAME", err, name)
		}
		if err != nil {
			return nil, fault.Setting(err, DenseSetting)
		}
		if at == l.at || slices.Contains(l.others, at) {
			return nil, fault.Setting(fmt.Errorf("column %q is the label, so it cannot be a dense input", name), DenseSetting)
		}
		l.inputs = append(l.inputs, at)
	}
	if f.Columns == nil {
		for i, name := range names {
			switch {
			case i == l.at || i == l.weight || slices.Contains(l.others, i) || f.drop != "" && name == f.drop || slices.Contains(l.inputs, i):
				continue
			case name == "":
				return nil, fault.Setting(fmt.Errorf("column %d of %d has no name: name it, or choose the columns that are fields", i+1, len(names)), ColumnsSetting)
			case !f.encoded && pandasIndex.MatchString(name):
				return nil, fault.Setting(fmt.Errorf("column %d of %d is %q, the unnamed index of a pandas frame: name it, or choose the columns that are fields", i+1, len(names), name), ColumnsSetting)
			}
			l.fields, l.pick = append(l.fields, name), append(l.pick, i)
		}
	}
	for _, c := range f.Columns {
		at, err := column(names, c.Name, "")
		if err != nil && c.As == "" && !slices.Contains(names, c.Name) {
			return nil, fault.Setting(fmt.Errorf("%w; NAME=%s makes the field of column NAME", err, c.Name), ColumnsSetting)
		}
		if err != nil {
			return nil, err
		}
		if c.As == "" {
			c.As = c.Name
		}
		l.fields, l.pick = append(l.fields, c.As), append(l.pick, at)
	}
	if len(l.fields) == 0 && !f.encoded { // else arrange decides
		return nil, errors.New("no column is left for a field")
	}
	return l, (&arrowio.RowForm{Fields: l.fields, Dense: l.dense.names(), Labels: f.Others, Weighted: f.Weight != ""}).CheckColumns()
}

// pandasIndex matches the name that pandas gives a column for an index without a name.
var pandasIndex = regexp.MustCompile(`^__index_level_[0-9]+__$`)

// column returns the position of the only column with a name. what is the purpose of the
// column in messages, such as " for the label".
func column(names []string, name, what string) (int, error) {
	at := slices.Index(names, name)
	if at < 0 {
		return 0, fmt.Errorf("no column %q%s: the columns are %q", name, what, names)
	}
	if slices.Contains(names[at+1:], name) {
		return 0, fmt.Errorf("two columns %q%s: the columns are %q", name, what, names)
	}
	return at, nil
}

// rowParser turns the cells of a row into a label and values. It is not safe for concurrent
// use.
type rowParser struct {
	*layout
	whole   bool     // whether the text of a whole number loses its end ".0"
	cells   [][]byte // of the file
	values  [][]byte
	lists   [][][]byte   // values of each list; nil if no field is a list
	cut     []bool       // whether each list lost values; nil if no field is a list
	numbers []float64    // numbers of the dense inputs; NaN if a missing one will be replaced
	labels  []float32    // labels after the first, which may be missing
	times   int32        // weight in thousandths; 0 without weights
	single  []bool       // for each column of the file, whether its numbers are float32; nil for a text
	text    []byte       // bytes of the values that are not cells
	small   [1000][]byte // values of the integers below 1000; a capacity of 16 makes vocabulary's pack fast
}

// newRowParser returns a parser of the rows of a layout. whole is true if the values will
// make a new vocabulary, in which whole numbers of text have no end ".0".
func newRowParser(l *layout, whole bool) *rowParser {
	p := &rowParser{layout: l, whole: whole && l.columns == nil && !l.tables, values: make([][]byte, len(l.pick)), numbers: make([]float64, len(l.inputs)), labels: make([]float32, len(l.others))}
	if l.rawLists.lists != nil {
		p.lists, p.cut = make([][][]byte, len(l.pick)), make([]bool, len(l.pick))
	}
	for x := range p.small {
		if l.rule != nil {
			p.small[x] = strconv.AppendInt(make([]byte, 0, 16), l.value(int64(x)), 10)
		}
	}
	return p
}

// value returns the number that Criteo's integer x becomes.
func (l *layout) value(x int64) int64 {
	if x > 2 {
		return l.rule(x)
	}
	return x - 2
}

// parse returns the label of a row and the values of its fields, and sets p.numbers, p.labels, p.times, p.lists
// and p.cut. The value of a list is its whole cell. All of them are valid until the next call. If the cells are not a valid row, the error says why.
// odd must be true if the cells may contain NULs or bytes that are not UTF-8, or may be
// too long.
func (p *rowParser) parse(cells [][]byte, where *place, odd bool) (float32, [][]byte, error) {
	if len(cells) != where.columns {
		return 0, nil, p.otherColumns(cells, where)
	}
	p.cells = cells
	if odd {
		for i, cell := range cells {
			if len(cell) >= rawtext.MaxLine { // possible only in a table, because lines are shorter
				return 0, nil, fmt.Errorf("%s: a value of %d bytes, expected fewer than %d", p.column(i), len(cell), rawtext.MaxLine)
			}
			if bytes.IndexByte(cell, 0) >= 0 {
				return 0, nil, fmt.Errorf("%s: NUL byte", p.column(i))
			}
			if !utf8.Valid(cell) {
				return 0, nil, fmt.Errorf("%s: %q is not UTF-8", p.column(i), rawtext.Clip(string(cell)))
			}
		}
	}
	if p.columns == nil && where.separator == '\t' {
		for i, cell := range cells {
			if quotedAsCSV(cell) {
				return 0, nil, fmt.Errorf("%s: %q is quoted as in CSV, but values separated by tabs have no quotes: write them without, or separate them by commas", p.column(i), rawtext.Clip(string(cell)))
			}
		}
	}
	for _, known := range where.agree {
		if got := cells[known.at]; !bytes.Equal(vocabulary.WholeNumber(got), vocabulary.WholeNumber(known.value)) {
			return 0, nil, fmt.Errorf("%s is %q, but the name of the folder has %q", p.column(known.at), rawtext.Clip(string(got)), rawtext.Clip(string(known.value)))
		}
	}
	label, err := p.parseLabel(where.cell(cells, p.at), p.at)
	if err != nil {
		return 0, nil, err
	}
	for i, at := range p.others {
		cell := where.cell(cells, at)
		if _, err := dense.Parse(cell); dense.IsMissing(err) {
			p.labels[i] = arrowio.Missing
		} else if p.labels[i], err = p.parseLabel(cell, at); err != nil {
			return 0, nil, fmt.Errorf("%s: %v", p.column(at), err) // its hints are for the first label
		}
	}
	if p.weight >= 0 {
		if p.times, err = parseWeight(where.cell(cells, p.weight)); err != nil {
			return 0, nil, fmt.Errorf("%s: %w", p.column(p.weight), err)
		}
	}
	for j, at := range p.pick {
		if at < 0 {
			continue
		}
		if p.values[j] = where.cell(cells, at); p.whole {
			p.values[j] = vocabulary.WholeNumber(p.values[j])
		}
	}
	for j, form := range p.rawLists.lists {
		if form.length == 0 || p.encoded { // encodedIDs cuts lists of ids
			continue
		}
		if p.lists[j], p.cut[j], err = p.split(j, p.values[j], p.whole, p.lists[j][:0]); err != nil {
			return 0, nil, fmt.Errorf("column %d (%s): %w", p.pick[j], p.fields[j], err)
		}
	}
	p.text = p.text[:0]
	for j := range p.integer {
		if p.values[j], err = p.number(p.values[j]); err != nil {
			return 0, nil, fmt.Errorf("column %d (%s): %w", p.pick[j], p.fields[j], err)
		}
	}
	for i, at := range p.inputs {
		if p.numbers[i], err = p.dense.parse(i, where.cell(cells, at)); err != nil {
			return 0, nil, fmt.Errorf("%s: %w", p.column(at), err)
		}
		if at < len(p.single) && p.single[at] {
			p.numbers[i] = float64(float32(p.numbers[i])) // the text has only the digits that a float32 needs
		}
	}
	return label, p.values, nil
}

// otherColumns returns the error of a row with a wrong number of cells.
func (p *rowParser) otherColumns(cells [][]byte, where *place) error {
	quoted := func(cell []byte) bool { return bytes.IndexByte(cell, '"') >= 0 }
	switch {
	case len(cells) == 1 && len(cells[0]) == 0:
		return errors.New("the line is empty")
	case len(cells) == 1 && !p.encoded:
		return fmt.Errorf("one column, expected %d: does the file use a different separator?", where.columns)
	case p.encoded && len(cells) > where.columns && slices.ContainsFunc(cells, quoted):
		return fmt.Errorf("%d columns, expected %d: quotes have no meaning in rows of ids, so no cell may contain %q", len(cells), where.columns, where.separator)
	}
	return fmt.Errorf("%d columns, expected %d", len(cells), where.columns)
}

// column names a column in messages.
func (l *layout) column(at int) string {
	if l.encoded {
		return "column " + l.names[at]
	}
	return fmt.Sprintf("column %d (%s)", at, l.names[at])
}

// parseLabel returns the label in a cell of the column at the given position.
func (p *rowParser) parseLabel(cell []byte, at int) (float32, error) {
	if p.Numbers {
		return parseNumberLabel(cell)
	}
	if p.Positive != "" && len(cell) > 0 {
		if string(cell) == p.Positive {
			return 1, nil
		}
		return 0, nil
	}
	if p.From == 0 {
		if len(cell) == 1 && cell[0]&^1 == '0' {
			return float32(cell[0] & 1), nil
		}
		switch text := string(cell); {
		case text == "0.0", !p.encoded && slices.Contains(falseTexts, text):
			return 0, nil
		case text == "1.0", !p.encoded && slices.Contains(trueTexts, text):
			return 1, nil
		}
		return 0, p.noLabel(cell, at)
	}
	x, err := strconv.ParseInt(string(vocabulary.WholeNumber(cell)), 10, 64)
	switch {
	case err != nil || x < 0:
		return 0, badLabel(cell, "a count")
	case x >= p.From:
		return 1, nil
	}
	return 0, nil
}

// Texts of labels in raw rows, as programs write truth values.
var falseTexts, trueTexts = []string{"false", "False", "FALSE"}, []string{"true", "True", "TRUE"}

// noLabel returns the error of a cell that is neither 0 nor 1.
func (p *rowParser) noLabel(cell []byte, at int) error {
	err := badLabel(cell, "0 or 1")
	_, number := parseNumberLabel(cell)
	name := rawtext.Clip(p.names[p.at])
	switch named := p.encoded && at == p.at && name != "label"; {
	case named && len(cell) == 0:
		err = fmt.Errorf("%w in the first column, %q, expected 0 or 1", errNoLabel, name)
	case named:
		err = fmt.Errorf("the label, which is the first column, %q, is %q, expected 0 or 1", name, rawtext.Clip(string(cell)))
	}
	switch {
	case p.columns != nil || len(cell) == 0: // the format says what labels are, or the cell is empty
	case number == nil:
		err = numberLabel{err}
	case !p.encoded:
		err = fault.Setting(fmt.Errorf("%w: name the text that means 1", err), PositiveSetting)
	}
	return err
}

// parseWeight returns the weight in a cell in units of 1/dataset.WeightUnits.
func parseWeight(cell []byte) (int32, error) {
	const most = 2_000_000
	x, err := dense.Parse(cell)
	switch units := math.Round(x * dataset.WeightUnits); {
	case err != nil || !(x > 0 && x <= most):
		return 0, fmt.Errorf("the weight is %q, expected a number above 0 and at most %d", rawtext.Clip(string(cell)), most)
	case units == 0:
		return 0, fmt.Errorf("the weight is %q, which rounds to 0 at %d decimals: multiply all weights by the same number", rawtext.Clip(string(cell)), 3)
	default:
		return int32(units), nil
	}
}

// errNoLabel is wrapped by the error of a row whose label is missing.
var errNoLabel = errors.New("the label is missing")

// numberLabel is the error of a label that is a finite number, where 0 or 1 is expected.
type numberLabel struct{ error }

func (e numberLabel) Unwrap() error { return e.error }

// parseNumberLabel returns the label in a cell if labels are numbers.
func parseNumberLabel(cell []byte) (float32, error) {
	x, err := dense.Parse(cell)
	if label := float32(x); err == nil && label-label == 0 {
		return label, nil
	}
	return 0, badLabel(cell, "a finite number")
}

// badLabel returns the error of a cell that is no label. expected is what a label is.
func badLabel(cell []byte, expected string) error {
	if len(cell) == 0 {
		return fmt.Errorf("%w, expected %s", errNoLabel, expected)
	}
	return fmt.Errorf("label is %q, expected %s", rawtext.Clip(string(cell)), expected)
}

// quotedAsCSV reports whether a cell looks like a quoted value in CSV that contains a quote
// or is empty. Writers of tab-separated files that quote values as in CSV quote these, and
// values with separators or line ends, which make rows with a wrong number of columns.
func quotedAsCSV(cell []byte) bool {
	n := len(cell)
	if n < 2 || cell[0] != '"' || cell[n-1] != '"' {
		return false
	}
	inner := cell[1 : n-1]
	doubled := bytes.Count(inner, []byte(`""`))
	return len(inner) == 0 || doubled > 0 && bytes.Count(inner, []byte{'"'}) == 2*doubled
}

var null = []byte("NULL")

// number returns the value of a cell with an integer.
func (p *rowParser) number(cell []byte) ([]byte, error) {
	if len(cell) == 0 {
		return null, nil
	}
	if len(cell) <= 3 {
		x := 0
		for _, c := range cell {
			digit := int(c) - '0'
			if digit < 0 || digit > 9 {
				x = -1
				break
			}
			x = 10*x + digit
		}
		if x >= 0 {
			return p.small[x], nil
		}
	}
	x, err := strconv.ParseInt(string(cell), 10, 64)
	if err != nil || cell[0] == '+' || x < math.MinInt64+2 {
		return nil, fmt.Errorf("%q is not an integer", rawtext.Clip(string(cell)))
	}
	start := len(p.text)
	p.text = strconv.AppendInt(p.text, p.value(x), 10)
	return p.text[start:len(p.text):len(p.text)], nil
}

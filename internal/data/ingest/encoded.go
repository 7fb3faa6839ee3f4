package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/folders"
	"shaver/internal/data/rawtext"
)

// EncodedConfig is the configuration of ImportEncoded.
//
// The input is text files, which may be compressed with gzip or zstd. Each line has the
// form "label,id,id,...". The separator is a comma, or a tab if the first line contains
// one. The label is 0 or 1, or with Numbers a finite number. If the first line contains no integers, it is the header and
// names the fields. Without a header the fields are f0, f1, ... All files must have the
// same header, or all must have none. The columns of dense inputs have numbers and not
// ids. Files with dense inputs, weights or several labels need a header.
type EncodedConfig struct {
	Train    []string   // files of train, or folders of files, in the order of reading; with Split, the only file
	Val      []string   // files of val; without files there is no val split
	Test     []string   // files of test; without files there is no test split
	Fresh    []string   // files of fresh; without files there is no fresh split
	Split    string     // ratio such as "8:1:1" to draw the rows into splits; if "", no rows are drawn
	Seed     uint64     // seed of the draw
	Sizes    []int      // number of features of each field; if nil, an extra scan finds the largest ids
	Names    []string   // names of the fields in a model, with Sizes; nil if they are not known
	Computed []Computed // fields of the model whose ids follow from other columns, with Sizes and Names; if the header has all of their names, the file has the ids
	Dense    Dense      // columns that become dense inputs
	Lists    Lists      // columns whose cells are lists of ids; they need a header
	Numbers  bool       // labels are numbers, such as ratings
	Label    string     // with Others, the name of the first column
	Others   []string   // as Format.Others
	Weight   string     // as Format.Weight
	Global   bool       // whether ids count over all fields, which needs Sizes, or within each field
	OnBadRow string     // Fail or Skip; "" means Fail
	Out      string     // folder of the dataset, which must be empty or not exist
	Progress Progress   // may be nil
}

func (c *EncodedConfig) validate() error {
	switch {
	case len(c.Train) == 0:
		return fault.Usagef("no file for the split train")
	case c.Global && c.Sizes == nil:
		return fault.Setting(fault.Usagef("global ids need the sizes of the fields"), SizesSetting)
	}
	if _, err := c.Dense.plan(); err != nil {
		return err
	}
	return checkOut(c.Out)
}

// encodedFiles is folders.Files for encoded rows, which cannot get columns from folders, and
// are not read from standard input.
func encodedFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		found, err := folders.Files([]string{path})
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			if given, _ := folders.Columns(folders.Relative(path, file)); len(given) > 0 {
				return nil, fault.Inputf("%s: the folder's name gives the column %q, but encoded rows have only ids", filepath.Dir(file), given[0].Name)
			}
			if file == Stdin {
				return nil, fault.Inputf("%s: no such file: encoded rows are not read from standard input", file)
			}
		}
		files = append(files, found...)
	}
	return files, nil
}

// encoded is what an import of encoded rows has besides an import of raw values. Encoded
// rows are raw rows whose values are the ids themselves.
type encoded struct {
	names     []string // names of the fields of the model; nil if they are not known
	global    bool
	computed  []Computed
	guards    []func(id int64) (int64, error) // by field, what replaces local ids outside it; nil if nothing does
	computing *computing                      // nil if no field is computed
	header    *rawtext.Header                 // of the first file
	local     bool                            // a row so far in the file has ids that are not valid as global ones
}

// ImportEncoded makes a dataset of encoded rows. If OnBadRow is Fail, a row that is not
// valid is bad input, and the error names file, line and field. If it is Skip, the row is
// left out. After an error, or if ctx ends, no files are left behind.
func ImportEncoded(ctx context.Context, config EncodedConfig) (*Summary, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	r := &importer{
		config: RawConfig{
			Format: Format{encoded: true, Dense: config.Dense, Numbers: config.Numbers, Label: config.Label, Others: config.Others, Weight: config.Weight}, Files: config.Train, Val: config.Val, Test: config.Test, Fresh: config.Fresh, Lists: config.Lists,
			Sizes: config.Sizes, Split: config.Split, Seed: config.Seed, OnBadRow: config.OnBadRow, Memory: DefaultMemory, Workers: runtime.GOMAXPROCS(0),
			Out: config.Out, Progress: config.Progress,
		},
		encoded: &encoded{names: config.Names, global: config.Global},
	}
	if err := r.encoded.setComputed(&config); err != nil {
		return nil, err
	}
	if err := r.divide(encodedFiles); err != nil {
		return nil, err
	}
	if r.ratio != nil && len(r.paths) != 1 {
		return nil, fault.Usagef("a split ratio needs exactly one file, with all rows")
	}
	return r.run(ctx, 1, r.withIDs)
}

// withIDs encodes rows of ids. The sizes of the fields are those of the configuration, or one more than the largest ids.
func (r *importer) withIDs(b *builder) (*Summary, error) {
	if err := r.openFirst(); err != nil {
		return nil, err
	}
	sizes, fields := r.config.Sizes, r.layout.fields
	newIDs := func(dense *denseWriter) rowIDs { return r.newEncodedIDs(sizes, r.encoded.global, dense) }
	var least []int
	if sizes == nil || r.layout.dense.unmeasured() {
		r.total += r.total
		s, err := r.survey(newIDs)
		if err != nil {
			return nil, err
		}
		if sizes == nil {
			sizes, least = s.sizes, s.least
		}
	}
	if err := model.CheckSizes(fields, sizes); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	var fromOne []string
	if least != nil {
		var err error
		if fromOne, err = r.plausible(sizes, least); err != nil {
			return nil, err
		}
	}
	m := dataset.Manifest{IDs: dataset.LocalIDs}
	if r.encoded.global {
		m.IDs = dataset.GlobalIDs
	}
	summary, err := r.encode(b, &m, sizes, newIDs)
	if err == nil {
		summary.Warnings = append(summary.Warnings, fromOne...)
	}
	return summary, err
}

// checkHeader checks the header of a file before setLayout compares its columns with those of the earlier files.
func (r *importer) checkHeader(h *rawtext.Header) error {
	if at := slices.Index(h.Columns, ""); h.Named && at >= 0 {
		hint := ""
		if at == 0 {
			hint = ", or leave it out if it is the index of a pandas frame (index=False)"
		}
		return fmt.Errorf("column %d of %d has no name: name it%s", at+1, len(h.Columns), hint)
	}
	if at := slices.Index(h.Columns, "label"); h.Named && at > 0 {
		return fmt.Errorf("the first column must be the label, but it is %q, and \"label\" is column %d", h.Columns[0], at+1)
	}
	switch first := r.encoded.header; {
	case first == nil:
		r.encoded.header = h
		if err := r.chooseComputed(); err != nil {
			return err
		}
	case first.Named != h.Named:
		return errors.New("only some of the files have a header")
	case len(first.Columns) != len(h.Columns):
		return fmt.Errorf("%d columns, but the first file has %d", len(h.Columns), len(first.Columns))
	}
	switch {
	case !h.Named && len(r.config.Format.Dense.Columns) > 0:
		return fault.Setting(errors.New("dense inputs need a header that names the columns"), DenseSetting)
	case !h.Named && (len(r.config.Format.Others) > 0 || r.config.Format.Weight != ""):
		return fault.Setting(errors.New("weights and several labels need a header that names the columns"), LabelSetting, WeightSetting)
	case len(r.config.Format.Others) > 0 && h.Columns[0] != r.config.Format.label():
		return fault.Setting(fmt.Errorf("the first column is %q, expected the first label, %q", h.Columns[0], r.config.Format.label()), LabelSetting)
	case !h.Named && len(r.config.Lists.Columns) > 0:
		return fault.Setting(errors.New("lists need a header that names the columns"), ListSetting)
	}
	return nil
}

// arrange checks the fields of the layout against those of the model, and adds those that are computed.
func (r *importer) arrange() error {
	l, e := r.layout, r.encoded
	if len(l.fields) == 0 && e.computing == nil {
		return fault.Setting(errors.New("no column is left for a field"), DenseSetting)
	}
	for i, name := range l.dense.columns {
		if slices.Contains(l.dense.columns[:i], name) {
			return fault.Setting(fault.Usagef("column %q is named twice as a dense input, but encoded rows use a column once", name), DenseSetting)
		}
	}
	names, want := e.names, len(r.config.Sizes)
	if e.computing != nil {
		names = e.computing.given(e.names)
		want = len(names)
	}
	if err := e.checkNames(l.fields, names); err != nil {
		return err
	}
	if r.config.Sizes != nil && want != len(l.fields) {
		missing := without(names, l.fields)
		if len(missing) == 0 || len(missing) == len(names) {
			return fmt.Errorf("the file has %d fields, expected %d", len(l.fields), want)
		}
		return fmt.Errorf("the file has %d fields, expected %d: there is no column %q", len(l.fields), want, missing)
	}
	if e.computing != nil {
		e.computing.arrange(l, e.names)
	}
	return nil
}

// checkNames returns an error if the header has a name of the model's fields in the place of another
// field, or the names of all of them among other columns. Names that the model lacks may stand for any
// field.
func (e *encoded) checkNames(fields, names []string) error {
	missing := len(without(names, fields))
	if len(names) == 0 || !e.header.Named || slices.Equal(fields, names) || len(fields) != len(names) && missing > 0 {
		return nil
	}
	for j, name := range fields {
		at := slices.Index(names, name)
		switch {
		case missing > 0 && (at < 0 || at == j):
		case at < 0:
			return fault.Setting(fmt.Errorf("column %q is not a field of the model, whose fields are %q: leave the column out, or make it a dense input", name, names), DenseSetting)
		case at != j:
			return fmt.Errorf("the columns of the fields are %q, expected the order of the model's fields, %q", fields, names)
		}
	}
	return nil
}

// without returns the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// plausible checks sizes that were found from the largest ids. It returns an error if they
// would take too much memory for so short an input, which a single wrong id can cause. It
// also returns an error if the ids look global, because each field's ids are above those of
// the previous field. It warns about fields whose id 0 is not in use. least is the least id of each field.
func (r *importer) plausible(sizes, least []int) (warnings []string, err error) {
	fields := r.layout.fields
	if ascending(sizes, least) && len(fields) > 2 && r.rows >= 100 {
		return nil, fault.Setting(fault.Inputf("%s: each field's ids are above those of the previous field, so they look like global ids: give the sizes of the fields, and whether the ids are global",
			r.paths[0]), IDsSetting, SizesSetting)
	}
	for j, name := range fields {
		if least[j] > 0 && r.layout.lists == nil {
			warnings = append(warnings, fmt.Sprintf("field %s: the least id is %d, but ids count from 0, so the table has rows that nothing reads: subtract %d from the ids, or give the sizes of the fields if that is meant", name, least[j], least[j]))
		}
	}
	sum, largest := int64(0), 0
	for j, size := range sizes {
		sum += int64(size)
		if size > sizes[largest] {
			largest = j
		}
	}
	if sum > 1<<24+100*r.rows*int64(len(fields)) {
		return nil, fault.Setting(fault.Inputf("field %d (%s): the largest id is %d, in only %d rows: if that is correct, give the sizes of the fields",
			largest, fields[largest], sizes[largest]-1, r.rows), SizesSetting)
	}
	return warnings, nil
}

// ascending reports whether the least id of each field is above all ids of the previous
// field.
func ascending(sizes, least []int) bool {
	for j := 1; j < len(sizes); j++ {
		if least[j] < sizes[j-1] {
			return false
		}
	}
	return true
}

// idField reads the ids of a field. A number may have the end ".0".
type idField struct {
	low, high int64                         // range of the ids in the file, [low, high)
	guard     func(id int64) (int64, error) // for local ids, what replaces an id outside the field; nil if nothing does
}

// id returns the local id in a cell.
func (f *idField) id(cell []byte) (int32, error) {
	x := int64(0)
	for _, c := range cell {
		digit := c - '0'
		if digit > 9 || x > math.MaxInt32 {
			return f.unusual(cell)
		}
		x = 10*x + int64(digit)
	}
	if len(cell) == 0 || x < f.low || x >= f.high {
		return f.unusual(cell)
	}
	return int32(x - f.low), nil
}

// unusual is id for a cell that is not a short text of digits, or not an id of the field.
func (f *idField) unusual(cell []byte) (int32, error) {
	text := string(bytes.TrimSuffix(cell, []byte(".0")))
	x, err := strconv.ParseInt(text, 10, 64)
	switch {
	case len(cell) == 0:
		return 0, errors.New("empty value")
	case errors.Is(err, strconv.ErrSyntax) || text[0] == '+':
		return 0, fmt.Errorf("%q is not an integer", rawtext.Clip(string(cell)))
	case err == nil && text[0] != '-' && x >= f.low && x < f.high:
		return int32(x - f.low), nil
	}
	if f.guard != nil && err == nil {
		id, why := f.guard(x)
		switch {
		case why != nil:
			return 0, fmt.Errorf("id %s is outside [%d,%d): %w", rawtext.Clip(string(cell)), f.low, f.high, why)
		case id >= 0 && id < f.high:
			return int32(id), nil
		}
	}
	switch {
	case text[0] == '-':
		return 0, fmt.Errorf("id %s is negative: expected at least 0; give a missing value an id and a row of the table", rawtext.Clip(string(cell)))
	case err == nil && x == f.high && f.low == 0 && x < math.MaxInt32:
		return 0, fmt.Errorf("id %d is outside [0,%d), because ids count from 0", x, x)
	}
	return 0, fmt.Errorf("id %s is outside [%d,%d)", rawtext.Clip(string(cell)), f.low, f.high)
}

// list appends the ids in the cell of a list to ids, as many as form says, and reports whether others were left out.
func (f *idField) list(ids []int32, l *rawLists, form *list, cell []byte) (_ []int32, cut bool, err error) {
	start := len(ids)
	for more := len(cell) > 0; more; {
		var text []byte
		text, cell, more = bytes.Cut(cell, []byte{l.separator})
		id, err := f.id(text)
		if err != nil {
			return ids, false, fmt.Errorf("position %d: %w", len(ids)-start, err)
		}
		ids = append(ids, id)
	}
	kept, cut, err := keep(ids[start:], l, form, "ids")
	if err != nil {
		return ids, false, err
	}
	return form.fill(ids[:start+len(kept)], len(kept)), cut, nil
}

// encodedIDs reads the ids of encoded rows.
type encodedIDs struct {
	fields    []idField
	dense     *denseWriter // has the dense inputs of the row; nil if their statistics are not known yet, so that no field is computed
	computing *computing   // nil if no field is computed
	values    []float64    // sources of a computed id
	exact     []int64      // values, if they are whole
	global    *encodedIDs  // reads local ids as global ones, to find out whether they are; nil if they cannot be
	scratch   columns      // ids that global reads
}

func (r *importer) newEncodedIDs(sizes []int, global bool, dense *denseWriter) *encodedIDs {
	e := &encodedIDs{fields: make([]idField, len(r.layout.fields)), dense: dense, computing: r.encoded.computing}
	before := int64(0)
	for j := range e.fields {
		f := &e.fields[j]
		f.high = math.MaxInt32
		if sizes != nil && global && r.layout.pick[j] >= 0 {
			f.low = before
			before += int64(sizes[j])
		}
		if sizes != nil {
			f.high = f.low + int64(sizes[j])
		}
		if !global && r.encoded.guards != nil {
			f.guard = r.encoded.guards[j]
		}
	}
	if sizes != nil && !global {
		e.global, e.scratch.ids = r.newEncodedIDs(sizes, true, nil), make([][]int32, len(e.fields))
	}
	return e
}

func (e *encodedIDs) append(ids [][]int32, b *block, p *rowParser) error {
	if e.global != nil && !b.local {
		e.scratch.reset()
		b.local = e.global.read(e.scratch.ids, p) != nil
	}
	err := e.read(ids, p)
	switch {
	case err != nil && e.global != nil && !b.local:
		return badRow{fitsGlobal{err}}
	case err == nil && e.dense != nil && e.computing != nil:
		err = e.compute(ids, p)
	}
	if err != nil {
		return badRow{err}
	}
	return nil
}

// read appends the ids of the fields that the file has, and zeros for those that are computed.
func (e *encodedIDs) read(ids [][]int32, p *rowParser) (err error) {
	pick, lists := p.pick, p.rawLists.lists
	number := -1 // of the field among those of the file
	for j, cell := range p.values {
		if pick[j] < 0 {
			ids[j] = append(ids[j], make([]int32, p.length(j))...)
			continue
		}
		number++
		if lists != nil && lists[j].length > 0 {
			ids[j], p.cut[j], err = e.fields[j].list(ids[j], &p.rawLists, &lists[j], cell)
		} else {
			var id int32
			id, err = e.fields[j].id(cell)
			ids[j] = append(ids[j], id)
		}
		if err != nil {
			return fmt.Errorf("field %d (%s): %w", number, p.fields[j], err)
		}
	}
	return nil
}

// fitsGlobal is the error of a row whose ids would be valid as global ids, as would those of the rows before it in the block.
type fitsGlobal struct{ error }

func (e fitsGlobal) Unwrap() error { return e.error }

// explain completes the errors about rows of b, which is the next block in the input.
func (e *encoded) explain(b *block) {
	if b.text.Row == 0 {
		e.local = false // a new file begins
	}
	explained := func(err error) error {
		if e.local || !errors.As(err, new(fitsGlobal)) {
			return err
		}
		return fault.Setting(fmt.Errorf("%w: all ids up to here fit if they are global, which means that they count over all fields", err), IDsSetting)
	}
	b.err = explained(b.err)
	for i, err := range b.bad.first {
		b.bad.first[i] = explained(err)
	}
	e.local = e.local || b.local
}

package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
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
// ids. Files with dense inputs need a header.
type EncodedConfig struct {
	Train    []string   // files of train, or folders of files, in the order of reading; with Split, the only file
	Val      []string   // files of val; without files there is no val split
	Test     []string   // files of test; without files there is no test split
	Split    string     // ratio such as "8:1:1" to draw the rows into train, val and test; if "", no rows are drawn
	Seed     uint64     // seed of the draw
	Sizes    []int      // number of features of each field; if nil, an extra scan finds the largest ids
	Names    []string   // names of the fields in a model, with Sizes; nil if they are not known
	Computed []Computed // fields of the model whose ids follow from other columns, with Sizes and Names; if the header has all of their names, the file has the ids
	Dense    Dense      // columns that become dense inputs
	Lists    Lists      // columns whose cells are lists of ids; they need a header
	Numbers  bool       // labels are numbers, such as ratings
	Global   bool       // whether ids count over all fields, which needs Sizes, or within each field
	OnBadRow string     // Fail or Skip; "" means Fail
	Out      string     // folder of the dataset, which must be empty or not exist
	Progress Progress   // may be nil
}

func (c *EncodedConfig) validate() error {
	switch {
	case len(c.Train) == 0:
		return fault.Usagef("no file for the split train")
	case c.Split != "" && (len(c.Train) != 1 || len(c.Val) > 0 || len(c.Test) > 0):
		return fault.Usagef("a split ratio needs exactly one file, with all rows")
	case c.Global && c.Sizes == nil:
		return fault.Setting(fault.Usagef("global ids need the sizes of the fields"), SizesSetting)
	}
	if _, err := c.Dense.plan(); err != nil {
		return err
	}
	return checkOut(c.Out)
}

// encodedFiles is folders.Files for encoded rows, which cannot get columns from folders.
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
		}
		files = append(files, found...)
	}
	return files, nil
}

// group is the files of one split, or the only file if the rows are drawn.
type group struct {
	name  string
	files []string
}

// encodedImport is one run of ImportEncoded.
type encodedImport struct {
	*scans
	config  EncodedConfig
	groups  []group
	ratio   *ratio // nil if each group is a split
	header  *rawtext.Header
	fields  []string // names of the fields
	dense   *densePlan
	inputs  []int            // positions of the dense inputs among those of a row, in the order of dense
	mask    []bool           // for each column after the label, whether it is a dense input; nil if none is
	lists   []list           // by field; nil if none is a list
	fieldAt []int            // field of each id of a row
	cut     []int64          // number of lists of which the last scan left ids out, by field
	global  *rawtext.Encoded // reads ids that were said to be local as global ones; nil once a row of the file does not fit
	fromOne []string         // warnings about fields whose id 0 is not in use

	computing *computing                      // nil if no field is computed
	guards    []func(id int64) (int64, error) // by field of the file, what replaces ids outside it; nil if nothing does
}

// ImportEncoded makes a dataset of encoded rows. If OnBadRow is Fail, a row that is not
// valid is bad input, and the error names file, line and field. If it is Skip, the row is
// left out. After an error, or if ctx ends, no files are left behind.
func ImportEncoded(ctx context.Context, config EncodedConfig) (*Summary, error) {
	for _, files := range []*[]string{&config.Train, &config.Val, &config.Test} {
		var err error
		if *files, err = encodedFiles(*files); err != nil {
			return nil, err
		}
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	e := &encodedImport{config: config, groups: []group{{dataset.Train, config.Train}}}
	if len(config.Val) > 0 {
		e.groups = append(e.groups, group{dataset.Val, config.Val})
	}
	if len(config.Test) > 0 {
		e.groups = append(e.groups, group{dataset.Test, config.Test})
	}
	splits := make([]string, 0, 3)
	var paths []string
	for _, g := range e.groups {
		splits = append(splits, g.name)
		paths = append(paths, g.files...)
	}
	var err error
	if config.Split != "" {
		if e.ratio, err = parseRatio(config.Split, config.Seed); err != nil {
			return nil, err
		}
		splits = e.ratio.splits()
	}
	e.setGuards()
	if err := e.setComputed(); err != nil {
		return nil, err
	}
	config = e.config
	if e.dense, err = config.Dense.plan(); err != nil {
		return nil, err
	}
	if e.dense.unmeasured() {
		if err := e.ratio.needTrain(trainStatistics, DenseSetting, DenseMissingSetting); err != nil {
			return nil, err
		}
	}
	times := 1
	if config.Sizes == nil || e.dense.unmeasured() {
		times = 2
	}
	if e.scans, err = newScans(ctx, config.OnBadRow, config.Progress, paths, times); err != nil {
		return nil, err
	}
	sizes, err := e.sizes()
	if err != nil {
		return nil, err
	}
	b, err := newBuilder(config.Out)
	if err != nil {
		return nil, err
	}
	defer b.abort()
	b.numbers, b.lists = config.Numbers, e.lists
	names, inputs := e.fields, e.dense.names()
	computing := e.computing
	all := sizes
	if computing != nil {
		b.lists, all, names, inputs = computing.lists, computing.sizes, slices.Clone(computing.names), inputs[:computing.inputs]
		for k, j := range computing.given {
			names[j] = e.fields[k]
		}
	}
	if err := b.start(names, all, inputs, splits, 1); err != nil {
		return nil, err
	}
	writer := e.dense.newWriter()
	err = e.scan(sizes, func(split int, label float32, ids []int32, numbers []float64) error {
		if err := writer.standardise(numbers); err != nil {
			return err
		}
		if computing != nil {
			var err error
			if ids, err = computing.fill(ids, numbers, writer); err != nil {
				return err
			}
		}
		writer.add(numbers)
		return b.add(split, label, ids, writer.values[:len(inputs)])
	})
	if err != nil {
		return nil, err
	}
	m := dataset.Manifest{IDs: dataset.LocalIDs}
	if len(inputs) > 0 && b.rows() > 0 {
		m.Dense = writer.described()[:len(inputs)]
	}
	if config.Global {
		m.IDs = dataset.GlobalIDs
	}
	summary, err := e.commit(b, &m, e.ratio)
	if err == nil {
		summary.Warnings = append(summary.Warnings, e.fromOne...)
	}
	if err == nil && e.lists != nil {
		summary.Cut = e.cut
		if computing != nil {
			summary.Cut = make([]int64, len(all))
			for k, j := range computing.given {
				summary.Cut[j] = e.cut[k]
			}
		}
	}
	return summary, err
}

// commit ends the last scan and publishes the dataset.
func (p *scans) commit(b *builder, m *dataset.Manifest, r *ratio) (*Summary, error) {
	m.Sources, m.Skipped = p.sources, p.bad.lines
	if r != nil {
		m.Division = &r.Division
	}
	if err := b.commit(m); err != nil {
		return nil, err
	}
	p.end()
	sum := sha256.Sum256(m.Marshal())
	return &Summary{Manifest: *m, Digest: hex.EncodeToString(sum[:]), Bad: p.bad.messages, Scans: p.ended, Padded: b.padded, Warnings: slices.Concat(p.repeated(), oneKind(m), smallTrain(m), shifted(m), b.oddLists(), b.echoes.warnings(b))}, nil
}

// setColumns decides which columns are dense inputs, and which are fields.
func (e *encodedImport) setColumns() error {
	columns := e.header.Columns[1:]
	if len(e.dense.columns) > 0 {
		if !e.header.Named {
			return fault.Setting(fault.Inputf("dense inputs need a header that names the columns"), DenseSetting)
		}
		e.mask = make([]bool, len(columns))
	}
	var at []int // column of each dense input
	for _, name := range e.dense.columns {
		j, err := column(columns, name, " for a dense input")
		if err != nil {
			return fault.Setting(fault.Inputf("%w", err), DenseSetting)
		}
		if e.mask[j] {
			return fault.Setting(fault.Usagef("column %q is named twice as a dense input, but encoded rows use a column once", name), DenseSetting)
		}
		e.mask[j] = true
		at = append(at, j)
	}
	for j, name := range columns {
		if e.mask == nil || !e.mask[j] {
			e.fields = append(e.fields, name)
		}
	}
	if len(e.fields) == 0 && e.computing == nil {
		return fault.Setting(fault.Inputf("no column is left for a field"), DenseSetting)
	}
	sorted := slices.Sorted(slices.Values(at))
	for _, j := range at {
		e.inputs = append(e.inputs, slices.Index(sorted, j))
	}
	if err := e.dense.checkNames(e.fields); err != nil {
		return fault.Inputf("%w", err)
	}
	if len(e.config.Lists.Columns) > 0 && !e.header.Named {
		return fault.Setting(fault.Inputf("lists need a header that names the columns"), ListSetting)
	}
	var err error
	e.lists, err = e.config.Lists.of(e.fields, e.header.Separator)
	e.fieldAt = positions(len(e.fields), e.lists)
	return err
}

// sizes returns the number of features of each field. They are those of the configuration,
// or one more than the largest ids. It sets e.header, and measures the dense inputs.
func (e *encodedImport) sizes() ([]int, error) {
	first, err := rawtext.Open(e.groups[0].files[0])
	if err != nil {
		return nil, err
	}
	e.header, err = e.readHeader(first)
	first.Close()
	if err != nil {
		return nil, err
	}
	if err := e.setColumns(); err != nil {
		return nil, fmt.Errorf("%s:1: %w", e.groups[0].files[0], err)
	}
	if err := e.checkNames(); err != nil {
		return nil, err
	}
	fields := e.fields
	sizes := e.config.Sizes
	least := slices.Repeat([]int{math.MaxInt}, len(fields)) // least id of each field
	if sizes != nil && len(sizes) != len(fields) {
		return nil, e.otherFields(len(sizes))
	}
	if sizes == nil || e.dense.unmeasured() {
		moments, rows, train, found := e.dense.newMoments(), int64(0), int64(0), make([]int, len(fields))
		err := e.scan(sizes, func(split int, _ float32, ids []int32, numbers []float64) error {
			rows++
			if split == 0 {
				train++
				addMoments(moments, numbers)
			}
			for at, id := range ids {
				j := e.fieldAt[at]
				found[j], least[j] = max(found[j], int(id)+1), min(least[j], int(id))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		e.end()
		if rows == 0 {
			return nil, fault.Inputf("%s: no valid rows", e.groups[0].files[0])
		}
		if e.dense.unmeasured() {
			if train == 0 {
				return nil, fault.Inputf("the split %s has no rows", dataset.Train)
			}
			if err := e.dense.measure(moments); err != nil {
				return nil, err
			}
		}
		if sizes == nil {
			sizes = found
		}
	}
	if err := model.CheckSizes(fields, sizes); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if err := checkPads(fields, e.lists, sizes); err != nil {
		return nil, err
	}
	if e.config.Sizes == nil {
		err = e.plausible(fields, sizes, least)
	}
	return sizes, err
}

// checkNames returns an error if the header has a name of the model's fields in the place of another
// field, or the names of all of them among other columns. Names that the model lacks may stand for any
// field.
func (e *encodedImport) checkNames() error {
	names := e.config.Names
	if len(names) == 0 || !e.header.Named || slices.Equal(e.fields, names) {
		return nil
	}
	if len(e.fields) != len(names) && len(e.missing()) > 0 {
		return nil // see otherFields
	}
	for j, name := range e.fields {
		at := slices.Index(names, name)
		if len(e.missing()) > 0 && (at < 0 || at == j) {
			continue
		}
		if at < 0 {
			return fault.Setting(fault.Inputf("%s:1: column %q is not a field of the model, whose fields are %q: leave the column out, or make it a dense input",
				e.groups[0].files[0], name, names), DenseSetting)
		}
		if at != j {
			return fault.Inputf("%s:1: the columns of the fields are %q, expected the order of the model's fields, %q", e.groups[0].files[0], e.fields, names)
		}
	}
	return nil
}

// missing returns the names of the model's fields that the header lacks.
func (e *encodedImport) missing() []string {
	return slices.DeleteFunc(slices.Clone(e.config.Names), func(name string) bool { return slices.Contains(e.fields, name) })
}

func (e *encodedImport) otherFields(want int) error {
	missing := e.missing()
	if len(missing) == 0 || len(missing) == len(e.config.Names) {
		return fault.Inputf("%s:1: the file has %d fields, expected %d", e.groups[0].files[0], len(e.fields), want)
	}
	return fault.Inputf("%s:1: the file has %d fields, expected %d: there is no column %q", e.groups[0].files[0], len(e.fields), want, missing)
}

// plausible checks sizes that were found from the largest ids. It returns an error if they
// would take too much memory for so short an input, which a single wrong id can cause. It
// also returns an error if the ids look global, because each field's ids are above those of
// the previous field. least is the least id of each field.
func (e *encodedImport) plausible(fields []string, sizes, least []int) error {
	if above := ascending(sizes, least); above && len(fields) > 2 && e.rows >= 100 {
		return fault.Setting(fault.Inputf("%s: each field's ids are above those of the previous field, so they look like global ids: give the sizes of the fields, and whether the ids are global",
			e.groups[0].files[0]), IDsSetting, SizesSetting)
	}
	for j, name := range fields {
		if least[j] > 0 && e.lists == nil {
			e.fromOne = append(e.fromOne, fmt.Sprintf("field %s: the least id is %d, but ids count from 0, so the table has rows that nothing reads: subtract %d from the ids, or give the sizes of the fields if that is meant", name, least[j], least[j]))
		}
	}
	sum, largest := int64(0), 0
	for j, size := range sizes {
		sum += int64(size)
		if size > sizes[largest] {
			largest = j
		}
	}
	if sum > 1<<24+100*e.rows*int64(len(fields)) {
		return fault.Setting(fault.Inputf("field %d (%s): the largest id is %d, in only %d rows: if that is correct, give the sizes of the fields",
			largest, fields[largest], sizes[largest]-1, e.rows), SizesSetting)
	}
	return nil
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

// readHeader reads the first line of s, and checks that it agrees with e.header, the header
// of the first file.
func (e *encodedImport) readHeader(s *rawtext.Source) (*rawtext.Header, error) {
	line, long, err := s.Next()
	if err == io.EOF {
		return nil, fault.Inputf("%s: the file is empty", s.Path)
	}
	if err == nil && long {
		err = s.TooLong()
	}
	if err != nil {
		return nil, err
	}
	h, err := rawtext.ReadHeader(line, true)
	if err == nil && h.Named {
		if at := slices.Index(h.Columns, ""); at >= 0 {
			hint := ""
			if at == 0 {
				hint = ", or leave it out if it is the index of a pandas frame (index=False)"
			}
			return nil, s.Errorf(1, "column %d of %d has no name: name it%s", at+1, len(h.Columns), hint)
		}
		if at := slices.Index(h.Columns, "label"); at > 0 {
			err = fault.Inputf("the first column must be the label, but it is %q, and \"label\" is column %d", h.Columns[0], at+1)
		}
	}
	if err == nil {
		err = arrowio.CheckFields(h.Columns[1:])
	}
	if err != nil {
		return nil, s.Errorf(1, "%w", err)
	}
	switch first := e.header; {
	case first == nil:
	case first.Named != h.Named:
		return nil, s.Errorf(1, "only some of the files have a header")
	case len(first.Columns) != len(h.Columns):
		return nil, s.Errorf(1, "%d columns, but the first file has %d", len(h.Columns), len(first.Columns))
	case !slices.Equal(first.Columns, h.Columns):
		return nil, s.Errorf(1, "the header is %q, but the first file has %q", h.Columns, first.Columns)
	}
	return h, nil
}

// visitor is called with the position of each row's split among the builder's splits, its
// label, its ids and the numbers of its dense inputs.
type visitor func(split int, label float32, features []int32, numbers []float64) error

// scan reads all rows and calls visit for each. The ids are global if sizes is not nil,
// otherwise local. A row is bad if visit returns a badRow.
func (e *encodedImport) scan(sizes []int, visit visitor) error {
	e.begin()
	e.cut = make([]int64, len(e.fields))
	for k, g := range e.groups {
		for _, path := range g.files {
			if err := e.file(path, k, sizes, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *encodedImport) file(path string, split int, sizes []int, visit visitor) error {
	s, err := rawtext.Open(path)
	if err != nil {
		return err
	}
	defer s.Close()
	h, err := e.readHeader(s)
	if err != nil {
		return err
	}
	if !h.Named { // the first line is a row, so start again
		s.Close()
		if s, err = rawtext.Open(path); err != nil {
			return err
		}
		defer s.Close()
	}
	p := rawtext.NewEncoded(h, e.mask, sizes, e.config.Global, e.config.Lists.parsed(e.lists))
	p.LabelCell = e.config.Numbers
	if !e.config.Global {
		p.Guards = e.guards
	}
	if e.global = nil; sizes != nil && !e.config.Global {
		e.global = rawtext.NewEncoded(h, e.mask, sizes, true, e.config.Lists.parsed(e.lists))
		e.global.LabelCell = e.config.Numbers
	}
	numbers := make([]float64, len(e.inputs))
	for row := uint64(0); ; row++ {
		line, long, err := s.Next()
		if err == io.EOF {
			if row == 0 {
				return fault.Inputf("%s: the file has a header and no rows", path)
			}
			return e.finish(s)
		}
		if err != nil {
			return err
		}
		if e.ratio != nil {
			split = e.ratio.draw(row)
		}
		if err := e.row(s, p, numbers, line, long, split, visit); err != nil {
			return err
		}
	}
}

func (e *encodedImport) row(s *rawtext.Source, p *rawtext.Encoded, numbers []float64, line []byte, long bool, split int, visit visitor) error {
	if err := e.tick(s); err != nil {
		return err
	}
	if long {
		return e.bad.reject(s.TooLong(), 1)
	}
	if e.global != nil && !valid(e.global, line) {
		e.global = nil
	}
	label, ok := p.Parse(line)
	if ok {
		err := e.numbers(p, numbers)
		if err == nil && p.LabelCell {
			if label, err = numberLabel(p.Label); err != nil {
				err = badRow{err}
			}
		}
		if err == nil {
			err = visit(split, label, p.Features, numbers)
		}
		if err == nil {
			for j, cut := range p.Cut {
				if cut {
					e.cut[j]++
				}
			}
		}
		if isBad(err) {
			err = e.bad.reject(s.Errorf(s.Line, "%w", err), 1)
		}
		return err
	}
	why := p.Explain(line)
	if why == nil {
		why = errors.New("not a row")
	}
	if e.global != nil {
		why = fault.Setting(fmt.Errorf("%w: all ids up to here fit if they are global, which means that they count over all fields", why), IDsSetting)
	}
	return e.bad.reject(s.Errorf(s.Line, "%w", why), 1)
}

// valid reports whether p accepts a line.
func valid(p *rawtext.Encoded, line []byte) bool {
	_, ok := p.Parse(line)
	return ok
}

// numbers parses the dense inputs of the row that p read last.
func (e *encodedImport) numbers(p *rawtext.Encoded, numbers []float64) error {
	for i, at := range e.inputs {
		var err error
		if numbers[i], err = e.dense.parse(i, p.Numbers[at]); err != nil {
			return badRow{fmt.Errorf("column %s: %w", e.dense.columns[i], err)}
		}
		if e.computing != nil {
			whole := &e.computing.whole[i]
			if *whole, err = strconv.ParseInt(strings.TrimSuffix(string(p.Numbers[at]), ".0"), 10, 64); err != nil {
				*whole = int64(numbers[i])
			}
		}
	}
	return nil
}

// Package ingest makes datasets, which package dataset reads. ImportEncoded reads encoded
// rows, and ImportRaw reads raw values. Both parse blocks of rows on all cores, and differ in
// where the ids come from (see rowIDs). The folder of a dataset appears only when it is
// complete.
package ingest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/dataset"
	"shaver/internal/data/folders"
	"shaver/internal/data/lake"
	"shaver/internal/data/vocabulary"
)

// Stdin is the file name that stands for standard input.
const Stdin = "-"

// Rows whose values are counted for MinCount.
const (
	CountTrain = "train" // rows of train
	CountAll   = "all"   // all rows, as in the paper's code, which gives the published sizes
)

// Defaults of RawConfig.
const (
	DefaultMemory    = 4 << 30   // bytes
	DefaultKeepEvery = 256 << 20 // bytes
)

// RawConfig is the configuration of ImportRaw.
type RawConfig struct {
	Format     Format
	Files      []string           // input files in the order of reading, or folders of files (see folders.Files); text may be compressed with gzip or zstd
	Val, Test  []string           // files of these splits; if there are any, Files has the rows of train, and no rows are drawn
	Fresh      []string           // as Val
	Tables     []Table            // tables with a log; their parts are among the files
	Where      lake.Conditions    // rows of Parquet and Arrow files for which they do not hold are left out
	Stdin      io.Reader          // content of the file Stdin; copied to disk if there are two scans
	MinCount   int64              // a value that occurs in fewer rows gets the id of unseen values; less than 1 means 1
	Counted    string             // CountTrain or CountAll; "" means CountTrain
	Vocabulary *vocabulary.Mapper // if set, it determines the ids, and values are not counted unless Grow is true
	Grow       bool               // with Vocabulary: new values are counted, and those with at least MinCount rows get ids after the others of their field
	Lists      Lists              // columns whose cells are lists of values; a list of a Parquet or Arrow file has no separator
	Share      []Sharing          // fields that have the values and ids of others
	Sizes      []int              // if set, the sizes that the fields must have, which are those of a model
	Split      string             // as in parseRatio; "" means "8:1:1", or that no rows are drawn if another split has files
	Seed       uint64             // seed of the split
	OnBadRow   string             // Fail or Skip; "" means Fail
	Memory     int64              // memory limit in bytes; 0 means DefaultMemory
	KeepEvery  int64              // counts are saved after every KeepEvery bytes of whole files; 0 means DefaultKeepEvery
	Workers    int                // number of goroutines that parse and encode; 0 means one per core
	Out        string             // folder of the dataset, which must be empty or not exist
	Progress   Progress           // may be nil
}

// Table is a snapshot of a table with a log.
type Table struct {
	dataset.Table
	Parts map[string]*columnfile.View // how its files give rows, by their paths
	Where lake.Conditions             // those that rows of the files may still fail
}

// fill sets the defaults and checks the configuration.
func (c *RawConfig) fill() error {
	c.MinCount = max(c.MinCount, 1)
	given := len(c.Val)+len(c.Test)+len(c.Fresh) > 0
	if given && c.Split != "" {
		return fault.Setting(fault.Usagef("a split ratio draws the rows of all files, but val, test or fresh have files of their own: leave one of them out"), SplitSetting)
	}
	if c.Split == "" && !given {
		c.Split = "8:1:1"
	}
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	if c.KeepEvery == 0 {
		c.KeepEvery = DefaultKeepEvery
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Counted == "" {
		c.Counted = CountTrain
	}
	if c.Lists.Pads == "" && c.Vocabulary != nil && c.Vocabulary.Front {
		c.Lists.Pads = model.Front
	}
	all := slices.Concat(c.Files, c.Val, c.Test, c.Fresh)
	once := slices.Index(all, Stdin)
	switch {
	case len(c.Files) == 0:
		return fault.Usagef("no file with raw rows")
	case c.Counted != CountTrain && c.Counted != CountAll:
		return fault.Usagef("the rows to count are %q, expected %s or %s", c.Counted, CountTrain, CountAll)
	case once >= 0 && slices.Contains(all[once+1:], Stdin):
		return fault.Usagef("standard input is named twice, but can be read only once")
	case c.Format.Numbers && c.Format.From != 0:
		return fault.Usagef("labels are numbers, so no count makes them 1")
	case once >= 0 && c.Format.tables:
		return fault.Usagef("Parquet and Arrow files need random access, so they cannot be read from standard input")
	}
	if _, err := c.Format.Dense.plan(); err != nil {
		return err
	}
	return checkOut(c.Out)
}

// importer is one run of ImportRaw or ImportEncoded.
type importer struct {
	*scans
	config  RawConfig // Vocabulary is nil once a grown vocabulary has replaced it
	encoded *encoded  // what only ImportEncoded needs; nil for raw values
	mapped  bool      // there is an earlier vocabulary
	strict  bool      // a field of the earlier vocabulary has no id for unseen values, so that rows with them are bad
	held    int64     // memory of the vocabulary while values are counted, bytes
	ratio   *ratio    // nil if each file belongs to a split
	splits  []string  // the splits that exist, in the manifest's order
	given   []int     // without ratio: the split of each path, a position in splits
	paths   []string
	layout  *layout // set by openFirst
	opened  input   // the first file, if it is open and not read yet
	cancel  func()  // ends ctx, and with it a read that waits for standard input
	folder  string  // folder of the counts and of spool
	spool   string  // path of the copy of standard input; "" without a copy

	kinds map[string]string // kind of the values of each column in the tables so far
}

// ImportRaw makes a dataset of raw values. If Vocabulary is set, it determines the ids, and
// one scan encodes the rows. Otherwise a first scan counts the values of each field. The
// values with at least MinCount rows have the ids from 0 in byte order, and the last id
// stands for all other values. With Grow, the vocabulary keeps its ids, those of unseen
// values included, and the new values with at least MinCount rows get the next ids in byte
// order.
//
// A row's position counts over all files, those of val and test last. The same rows give the same splits, ids and Arrow
// files, however they are cut into files, and for any Memory and Workers.
//
// Bad rows, errors and the end of ctx are treated as by ImportEncoded. A bad row of several
// lines counts as that many skipped lines. If the import ends early after at least KeepEvery
// bytes of whole files were counted, it leaves their counts next to Out (see KeptCounts),
// and the same import resumes from them.
func ImportRaw(ctx context.Context, config RawConfig) (*Summary, error) {
	if err := config.fill(); err != nil {
		return nil, err
	}
	r := &importer{config: config, folder: countsFolder(config.Out), mapped: config.Vocabulary != nil, kinds: map[string]string{}}
	if err := r.divide(r.files); err != nil {
		return nil, err
	}
	if r.counts() {
		return r.run(ctx, 2, r.withCounts)
	}
	return r.run(ctx, 1, r.withVocabulary)
}

// run calls do, which makes a dataset in a new builder. times is the number of scans.
func (r *importer) run(ctx context.Context, times int, do func(*builder) (*Summary, error)) (*Summary, error) {
	ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	var err error
	if r.scans, err = newScans(ctx, r.config.OnBadRow, r.config.Progress, r.paths, times); err != nil {
		return nil, err
	}
	r.logged = len(r.config.Tables) > 0
	b, err := newBuilder(r.config.Out)
	if err != nil {
		return nil, err
	}
	defer b.abort()
	defer func() {
		if r.opened != nil {
			r.opened.close()
		}
	}()
	return do(b)
}

// divide sets the paths, which find returns for files and folders, and the splits to which their rows belong.
func (r *importer) divide(find func(paths []string) ([]string, error)) error {
	for k, files := range [][]string{r.config.Files, r.config.Val, r.config.Test, r.config.Fresh} {
		if len(files) == 0 {
			continue
		}
		paths, err := find(files)
		if err != nil {
			return err
		}
		r.given = append(r.given, slices.Repeat([]int{len(r.splits)}, len(paths))...)
		r.splits, r.paths = append(r.splits, dataset.SplitNames[k]), append(r.paths, paths...)
	}
	if r.config.Split == "" {
		return nil
	}
	var err error
	if r.ratio, err = parseRatio(r.config.Split, r.config.Seed); err != nil {
		return err
	}
	r.splits = r.ratio.splits()
	if r.counts() {
		return r.ratio.needTrain("its values get the ids: it may be 0 with the vocabulary of an earlier dataset that does not grow", VocabularySetting)
	}
	return nil
}

// table returns the table of which the file at path has rows, or nil if it is a file of its own.
func (r *importer) table(path string) *Table {
	for i := range r.config.Tables {
		if t := &r.config.Tables[i]; t.Parts[path] != nil {
			return t
		}
	}
	return nil
}

// folderColumns returns the columns of the folders of a file.
func (r *importer) folderColumns(path string) ([]folders.Column, error) {
	if r.table(path) != nil {
		return nil, nil
	}
	return folders.Columns(path)
}

// own returns the files that are no parts of tables.
func (r *importer) own(paths []string) (own []string) {
	for _, path := range paths {
		if r.table(path) == nil {
			own = append(own, path)
		}
	}
	return own
}

// files is folders.Files without the files whose folders say that they have no row for which Where holds.
func (r *importer) files(paths []string) ([]string, error) {
	found, err := folders.Files(r.own(paths))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if r.table(path) != nil {
			found = append(found, path)
		}
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		given, _ := r.folderColumns(path) // openTable reports the error
		return slices.ContainsFunc(r.config.Where, func(c lake.Condition) bool {
			return slices.ContainsFunc(given, func(g folders.Column) bool { return g.Name == c.Column && !c.Holds([]byte(g.Value), true) })
		})
	})
	if len(found) == 0 {
		return nil, fault.Inputf("%w in the files for which %s holds", lake.ErrNoRows, r.config.Where)
	}
	return found, nil
}

// noTrain returns the error of an import that has no row of train.
func (r *importer) noTrain() error {
	if len(r.config.Where) > 0 {
		return fault.Inputf("%w in the split %s for which %s holds", lake.ErrNoRows, dataset.Train, r.config.Where)
	}
	return fault.Inputf("the split %s has no rows", dataset.Train)
}

// split returns the split of a row of b as a position in r.splits.
func (r *importer) split(b *block, row uint64) int {
	if r.ratio == nil {
		return b.split
	}
	return r.ratio.draw(row)
}

// counts reports whether a first scan counts values, which then get ids.
func (r *importer) counts() bool { return r.encoded == nil && (!r.mapped || r.config.Grow) }

// openFirst opens the first file, which sets the layout.
func (r *importer) openFirst() error {
	in, err := r.open(r.paths[0])
	r.opened = in
	return err
}

// withVocabulary encodes the rows with the vocabulary of the configuration.
func (r *importer) withVocabulary(b *builder) (*Summary, error) {
	if err := r.openFirst(); err != nil {
		return nil, err
	}
	if want := r.config.Sizes; want != nil && len(want) != len(r.layout.fields) {
		return nil, r.otherFields()
	}
	fields, err := r.choose(r.config.Sizes)
	if err != nil {
		return nil, err
	}
	if err := r.checkSizes(fields); err != nil {
		return nil, err
	}
	r.strict = withoutUnseen(fields)
	if r.layout.dense.unmeasured() {
		r.total += r.total
		if _, err := r.survey(r.strictIDs(fields)); err != nil {
			return nil, err
		}
	}
	m := dataset.Manifest{IDs: dataset.RawStrings}
	_, err = b.writeVocabulary(r.ctx, &m, r.layout.fields, r.config.Workers, func(j int, visit func([]byte, bool) error) error { return fields[j].Each(visit) })
	if err != nil {
		return nil, err
	}
	return r.encodeValues(b, &m, fields)
}

// withoutUnseen reports whether one of the fields has no id for unseen values.
func withoutUnseen(fields []*vocabulary.Field) bool {
	return slices.ContainsFunc(fields, func(f *vocabulary.Field) bool { return f.OOV() < 0 })
}

// withCounts counts the values, makes a vocabulary of them, and encodes the rows with it.
func (r *importer) withCounts(b *builder) (_ *Summary, err error) {
	unlock, err := r.lockCounts()
	if err != nil {
		return nil, err
	}
	defer unlock()
	kept := KeptCounts(r.config.Out) != "" // count decides whether the counts of an earlier import are kept
	defer func() {
		if err == nil || !kept {
			os.RemoveAll(r.folder)
		} else if r.spool != "" {
			os.Remove(r.spool)
		}
	}()
	if err := r.keepStdin(); err != nil {
		return nil, err
	}
	if err := r.openFirst(); err != nil {
		return nil, err
	}
	earlier, err := r.earlier()
	if err != nil {
		return nil, err
	}
	spills, kept, err := r.count()
	if err != nil {
		return nil, err
	}
	m := dataset.Manifest{IDs: dataset.RawStrings, MinCount: r.config.MinCount}
	names := r.layout.fields
	counts, err := b.writeVocabulary(r.ctx, &m, names, r.config.Workers, func(j int, visit func([]byte, bool) error) error {
		found := func(visit func([]byte) error) error {
			return vocabulary.Merge(spills, r.layout.ownerOf(j), len(names), r.config.MinCount, visit)
		}
		if earlier == nil && r.layout.padded(j) {
			if err := visit(nil, false); err != nil {
				return err
			}
		}
		if earlier != nil {
			return earlier[j].EachGrown(r.otherSpelling(), visit, found)
		}
		return found(func(value []byte) error { return visit(value, true) })
	})
	if err != nil {
		return nil, err
	}
	if err := r.checkDiverged(&m, earlier); err != nil {
		return nil, err
	}
	if err := r.checkMemory(&m, counts); err != nil {
		return nil, err
	}
	sizes, oov := make([]int, len(names)), make([]int, len(names))
	for j, lines := range counts {
		if sizes[j], oov[j] = lines+1, lines; earlier != nil {
			sizes[j], oov[j] = max(earlier[j].Size(), lines), earlier[j].OOV()
		}
	}
	earlier, r.config.Vocabulary = nil, nil // frees the memory
	fields := make([]*vocabulary.Field, len(names))
	for j := range fields {
		if fields[j], err = b.loadField(m.Vocabulary[j], sizes[j], oov[j]); err != nil {
			return nil, err
		}
	}
	if err := r.checkSizes(fields); err != nil {
		return nil, err
	}
	if r.strict && r.layout.dense.unmeasured() {
		r.total += r.total / 2
		if _, err := r.survey(r.strictIDs(fields)); err != nil {
			return nil, err
		}
	}
	return r.encodeValues(b, &m, fields)
}

// earlier returns the fields of the vocabulary that grows, or nil without a vocabulary.
func (r *importer) earlier() ([]*vocabulary.Field, error) {
	if !r.mapped {
		return nil, nil
	}
	fields, err := r.choose(nil)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		r.held += f.Bytes()
	}
	r.strict = withoutUnseen(fields)
	if r.held > r.config.Memory/2 {
		return nil, fault.Setting(fault.Usagef("the vocabulary needs %d MiB of memory, but the limit is %d MiB: raise the limit to at least twice the memory of the vocabulary", r.held>>20, r.config.Memory>>20),
			MemorySetting)
	}
	return fields, nil
}

// otherSpelling reports whether a whole number has the id of its other spelling if the
// vocabulary has only that, see vocabulary.NewLookup.
func (r *importer) otherSpelling() bool { return r.mapped && r.config.Format.columns == nil }

// fewIDs is a number of ids up to which two fields may have the same values by chance.
const fewIDs = 8

// checkDiverged returns an error if two fields had one vocabulary before it grew, and have
// different ones now. A model may read both from one table, where a new id would stand for two
// values.
func (r *importer) checkDiverged(m *dataset.Manifest, earlier []*vocabulary.Field) error {
	if earlier == nil {
		return nil
	}
	before := make([]string, len(earlier)) // SHA-256
	for j, name := range r.owners() {
		before[j] = r.config.Vocabulary.SHA256[slices.Index(r.config.Vocabulary.Names, name)]
		for i := range j {
			if before[i] == before[j] && m.Vocabulary[i].SHA256 != m.Vocabulary[j].SHA256 && earlier[j].Size() > fewIDs {
				a, b := r.layout.fields[i], r.layout.fields[j]
				if r.layout.lists != nil && r.layout.lists[i].length > 0 {
					a, b = b, a
				}
				return fault.Setting(fault.Inputf("the fields %s and %s have the same ids in the earlier dataset, but each would give its new values ids of its own: let %s share the values of %s, as in %s=%s", a, b, b, a, b, a), ShareSetting)
			}
		}
	}
	return nil
}

// checkMemory returns an error if the vocabulary needs more memory than the limit. counts
// is the number of values of each field.
func (r *importer) checkMemory(m *dataset.Manifest, counts []int) error {
	need, values := int64(0), int64(0)
	for j, n := range counts {
		need += vocabulary.FieldBytes(int64(n), m.Vocabulary[j].Bytes) + int64(n+1)*8*int64(len(r.splits))
		values += int64(n)
	}
	if need > r.config.Memory {
		return fault.Setting(fault.Usagef("the %d kept values need %d MiB of memory, but the limit is %d MiB: raise the limit, or keep fewer values with a higher minimum count",
			values, need>>20, r.config.Memory>>20), MemorySetting, MinCountSetting)
	}
	return nil
}

// checkSizes returns an error if the sizes of the fields are not those of the
// configuration, or if their sum exceeds int32.
func (r *importer) checkSizes(fields []*vocabulary.Field) error {
	want := r.config.Sizes
	sizes := make([]int, len(fields))
	for j, f := range fields {
		sizes[j] = f.Size()
		if want == nil || j >= len(want) || sizes[j] == want[j] {
			continue
		}
		values := ""
		if f.OOV() == f.Size()-1 && f.Reserved() == 0 {
			values = fmt.Sprintf("%d values, hence ", f.Size()-1)
		}
		err := fault.Inputf("field %d (%s) has %s%d features, but the model has %d", j, r.layout.fields[j], values, sizes[j], want[j])
		if !r.mapped {
			err = fault.Setting(fmt.Errorf("%w: these ids are new, expected the vocabulary of the training", err), VocabularySetting)
		}
		return err
	}
	if want != nil && len(want) != len(fields) {
		return r.otherFields()
	}
	if err := model.CheckSizes(r.layout.fields, sizes); err != nil {
		return fault.Inputf("%w", err)
	}
	return nil
}

// otherFields returns the error for a model with a different number of fields.
func (r *importer) otherFields() error {
	return fault.Setting(fault.Inputf("the rows have %d fields, which are %q, but the model has %d: choose the columns that it reads, in its order",
		len(r.layout.fields), r.layout.fields, len(r.config.Sizes)), ColumnsSetting)
}

// unseenValues describes the unseen values of a field.
type unseenValues struct {
	rows    int64  // number of rows with such a value
	missing int64  // number of rows in which the value is the empty text
	example []byte // first other value in byte order, or its first 100 bytes; empty without another value
}

// note lets value be the example if it is the first one. It does not keep value.
func (u *unseenValues) note(value []byte) {
	value = value[:min(len(value), 100)]
	if len(value) > 0 && (len(u.example) == 0 || bytes.Compare(value, u.example) < 0) {
		u.example = append(u.example[:0], value...)
	}
}

// valueIDs gives raw values the ids of a vocabulary, and notes what is odd about them.
type valueIDs struct {
	lookup *vocabulary.Lookup
	fields []*vocabulary.Field
	lists  []listCount    // by field
	unseen []unseenValues // by field; nil without an earlier vocabulary
}

func (r *importer) newValueIDs(fields []*vocabulary.Field) *valueIDs {
	v := &valueIDs{lookup: vocabulary.NewLookup(fields, r.otherSpelling()), fields: fields, lists: make([]listCount, len(fields))}
	if r.mapped {
		v.unseen = make([]unseenValues, len(fields))
	}
	return v
}

// strictIDs returns the function for survey that makes rows bad with the same values as the last scan, or nil if none does.
func (r *importer) strictIDs(fields []*vocabulary.Field) func(*denseWriter) rowIDs {
	if !r.strict {
		return nil
	}
	return func(*denseWriter) rowIDs { return r.newValueIDs(fields) }
}

func (v *valueIDs) append(ids [][]int32, _ *block, p *rowParser) error {
	j, value := -1, []byte(nil)
	if p.plain() {
		if j = v.lookup.Append(ids, p.values); j >= 0 {
			value = p.values[j]
		}
	} else {
		j, value = p.appendIDs(v.lookup, ids, p.values, p.lists)
	}
	if j >= 0 {
		return badRow{fmt.Errorf("field %d (%s): the value %q is not in the vocabulary, which has no id for such values", j, p.fields[j], value[:min(len(value), 100)])}
	}
	for j := range v.unseen {
		v.noteUnseen(j, ids[j], p)
	}
	for j, values := range p.lists {
		v.lists[j].note(values)
	}
	return nil
}

// noteUnseen notes the unseen values of the field j in a row. ids end with those of the row.
func (v *valueIDs) noteUnseen(j int, ids []int32, p *rowParser) {
	u, oov := &v.unseen[j], v.fields[j].OOV()
	all, first := p.values[j:j+1], len(ids)-p.length(j)
	if p.rawLists.lists != nil && p.rawLists.lists[j].length > 0 {
		if all = p.lists[j]; p.rawLists.lists[j].front {
			first = len(ids) - len(all)
		}
	}
	some := false
	for k, id := range ids[first:][:len(all)] {
		if int(id) != oov {
			continue
		}
		some = true
		if u.note(all[k]); len(all[k]) == 0 {
			u.missing++
		}
	}
	if some {
		u.rows++
	}
}

// encodeValues encodes raw values with the ids of fields, and adds to the summary what is odd about them.
func (r *importer) encodeValues(out *builder, m *dataset.Manifest, fields []*vocabulary.Field) (*Summary, error) {
	sizes := make([]int, len(fields))
	for j, f := range fields {
		sizes[j] = f.Size()
		out.oov = append(out.oov, f.OOV())
	}
	var workers []*valueIDs
	summary, err := r.encode(out, m, sizes, func(*denseWriter) rowIDs {
		v := r.newValueIDs(fields)
		workers = append(workers, v)
		return v
	})
	if err != nil {
		return nil, err
	}
	if !r.mapped {
		if r.layout.lists != nil {
			summary.Warnings = append(summary.Warnings, otherSeparators(r.layout.fields, workers, nil)...)
		}
		more, err := unlikeIDs(r.layout.fields, fields, out.lists)
		summary.Warnings = slices.Concat(summary.Warnings, more, out.manyRare(&r.config))
		return summary, err
	}
	for j, f := range fields {
		var noted unseenValues
		for _, v := range workers {
			noted.rows += v.unseen[j].rows
			noted.missing += v.unseen[j].missing
			noted.note(v.unseen[j].example)
		}
		summary.Unseen = append(summary.Unseen, noted.rows)
		summary.Missing = append(summary.Missing, noted.missing)
		summary.Examples = append(summary.Examples, string(noted.example))
		summary.Reserved = append(summary.Reserved, f.Reserved())
	}
	if r.layout.lists != nil {
		summary.Warnings = append(summary.Warnings, otherSeparators(r.layout.fields, workers, summary.Unseen)...)
	}
	return summary, nil
}

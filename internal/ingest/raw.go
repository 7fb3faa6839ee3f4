// Package ingest makes a dataset, which package dataset reads: of encoded rows
// (ImportEncoded) or of raw values (ImportRaw). The dataset's folder appears whole
// or not at all.
package ingest

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"shaver/internal/dataset"
	"shaver/internal/fault"
	"shaver/internal/model"
	"shaver/internal/vocabulary"
)

// Stdin is the file name of standard input.
const Stdin = "-"

// Which rows' values are counted for MinCount.
const (
	CountTrain = "train"
	CountAll   = "all" // as the paper's code does: the sizes are those that it publishes
)

// What an import does if RawConfig does not say otherwise.
const (
	DefaultMemory    = 4 << 30   // bytes
	DefaultKeepEvery = 256 << 20 // bytes
)

// RawConfig says what ImportRaw reads and makes of it.
type RawConfig struct {
	Format     Format
	Files      []string           // read in this order; a row's position counts over all. Text may be gzip or zstd
	Stdin      io.Reader          // what the file Stdin yields; kept in a file if there are two scans
	MinCount   int64              // a value in fewer rows gets the field's last id; below 1 is 1
	Counted    string             // CountTrain (also "") or CountAll
	Vocabulary *vocabulary.Mapper // if set, ids are these, and nothing is counted
	Sizes      []int              // if set, what the fields' sizes must be: a model's. A Vocabulary may leave ids unused
	Split      string             // train:val:test; "" is "8:1:1"
	Seed       uint64             // of the split
	OnBadRow   string             // Fail (also "") or Skip; a bad record of several lines counts all of them
	Memory     int64              // bytes to stay under; 0 is DefaultMemory
	KeepEvery  int64              // after so many bytes of whole files their counts are kept, to resume from; 0 is DefaultKeepEvery
	Workers    int                // goroutines that parse and encode; 0 is one a core
	Out        string             // the dataset's folder, which must not exist or be empty
	Progress   Progress           // may be nil
}

func (c *RawConfig) fill() error {
	c.MinCount = max(c.MinCount, 1)
	if c.Split == "" {
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
	once := slices.Index(c.Files, Stdin)
	switch {
	case len(c.Files) == 0:
		return fault.Usagef("no file of raw rows")
	case c.Counted != CountTrain && c.Counted != CountAll:
		return fault.Usagef("which rows are counted: %q, expected %s or %s", c.Counted, CountTrain, CountAll)
	case once >= 0 && slices.Contains(c.Files[once+1:], Stdin):
		return fault.Usagef("standard input can be read once")
	case once >= 0 && c.Format.tables:
		return fault.Usagef("Parquet and Arrow files are read at any place: not from standard input")
	}
	return checkOut(c.Out)
}

// rawImport is one run of ImportRaw.
type rawImport struct {
	*scans
	config  RawConfig
	ratio   *ratio
	workers int
	paths   []string
	layout  *layout // set by look
	opened  input   // the first file, until it is read
	cancel  func()  // ends ctx: a reader that waits for standard input, too
	folder  string  // of counts and spool
	spool   string  // what Stdin yielded, if it is kept
}

// ImportRaw makes a dataset of raw values. Without a vocabulary it takes two
// scans: one counts the values of each field, one encodes. A field's ids are its
// values with at least MinCount rows, in byte order; the last id stands for all
// other values. The same files, in whichever cuts, give the same bytes for any
// memory and number of workers. Bad rows, errors and the end of ctx are as for
// ImportEncoded, but that the counts of whole files are kept beside Out (see
// KeptCounts) when there are many, for the same import to go on from.
func ImportRaw(ctx context.Context, config RawConfig) (*Summary, error) {
	if err := config.fill(); err != nil {
		return nil, err
	}
	r := &rawImport{config: config, workers: config.Workers, paths: config.Files, folder: countsFolder(config.Out)}
	var err error
	if r.ratio, err = parseRatio(config.Split, config.Seed); err != nil {
		return nil, err
	}
	times := 2
	if config.Vocabulary != nil {
		times = 1
	}
	ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	if r.scans, err = newScans(ctx, config.OnBadRow, config.Progress, config.Files, times); err != nil {
		return nil, err
	}
	b, err := newBuilder(config.Out)
	if err != nil {
		return nil, err
	}
	defer b.abort()
	defer func() {
		if r.opened != nil {
			r.opened.close()
		}
	}()
	if config.Vocabulary != nil {
		return r.frozen(b)
	}
	return r.counted(b)
}

// look opens the first file, for the layout.
func (r *rawImport) look() error {
	in, err := r.open(r.paths[0])
	r.opened = in
	return err
}

// frozen encodes by the vocabulary that there is.
func (r *rawImport) frozen(b *builder) (*Summary, error) {
	if err := r.look(); err != nil {
		return nil, err
	}
	if want := r.config.Sizes; want != nil && len(want) != len(r.layout.fields) {
		return nil, r.otherFields()
	}
	fields, err := r.config.Vocabulary.Choose(r.layout.fields, r.config.Sizes)
	if err != nil {
		return nil, err
	}
	if err := r.checkSizes(fields); err != nil {
		return nil, err
	}
	m := dataset.Manifest{IDs: dataset.RawStrings}
	_, err = b.writeVocabulary(r.ctx, &m, r.layout.fields, r.workers, func(j int, visit func([]byte, bool) error) error { return fields[j].Each(visit) })
	if err != nil {
		return nil, err
	}
	return r.encode(b, &m, fields)
}

// counted encodes by the vocabulary that it makes.
func (r *rawImport) counted(b *builder) (_ *Summary, err error) {
	unlock, err := r.lockCounts()
	if err != nil {
		return nil, err
	}
	defer unlock()
	kept := KeptCounts(r.config.Out) != "" // an earlier import's, until count has had a look
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
	if err := r.look(); err != nil {
		return nil, err
	}
	spills, kept, err := r.count()
	if err != nil {
		return nil, err
	}
	m := dataset.Manifest{IDs: dataset.RawStrings, MinCount: r.config.MinCount}
	names := r.layout.fields
	counts, err := b.writeVocabulary(r.ctx, &m, names, r.workers, func(j int, visit func([]byte, bool) error) error {
		return vocabulary.Merge(spills, j, len(names), r.config.MinCount, func(value []byte) error { return visit(value, true) })
	})
	if err != nil {
		return nil, err
	}
	if err := r.checkMemory(&m, counts); err != nil {
		return nil, err
	}
	fields := make([]*vocabulary.Field, len(names))
	for j := range fields {
		if fields[j], err = b.loadField(m.Vocabulary[j], counts[j]); err != nil {
			return nil, err
		}
	}
	if err := r.checkSizes(fields); err != nil {
		return nil, err
	}
	return r.encode(b, &m, fields)
}

// checkMemory refuses a vocabulary that does not fit.
func (r *rawImport) checkMemory(m *dataset.Manifest, counts []int) error {
	need, values := int64(0), int64(0)
	for j, n := range counts {
		need += vocabulary.FieldBytes(int64(n), m.Vocabulary[j].Bytes) + int64(n+1)*8*int64(len(r.ratio.splits()))
		values += int64(n)
	}
	if need > r.config.Memory {
		return fault.Setting(fault.Usagef("the %d values that are kept need %d MiB of memory, and %d MiB are allowed: allow more, or keep fewer values by a higher count",
			values, need>>20, r.config.Memory>>20), MemorySetting, MinCountSetting)
	}
	return nil
}

// checkSizes refuses fields that are not the model's, and totals beyond int32.
func (r *rawImport) checkSizes(fields []*vocabulary.Field) error {
	want := r.config.Sizes
	sizes := make([]int, len(fields))
	for j, f := range fields {
		sizes[j] = f.Size()
		if want == nil || j >= len(want) || sizes[j] == want[j] {
			continue
		}
		values := ""
		if f.OOV() == f.Size()-1 && f.Reserved() == 0 {
			values = fmt.Sprintf("%d values and so ", f.Size()-1)
		}
		return fault.Inputf("field %d (%s) has %s%d features, the model has %d", j, r.layout.fields[j], values, sizes[j], want[j])
	}
	if want != nil && len(want) != len(fields) {
		return r.otherFields()
	}
	if err := model.CheckSizes(r.layout.fields, sizes); err != nil {
		return fault.Inputf("%w", err)
	}
	return nil
}

// otherFields says that the model has another number of fields.
func (r *rawImport) otherFields() error {
	return fault.Inputf("the rows have %d fields and the model %d", len(r.layout.fields), len(r.config.Sizes))
}

// encode is the last scan.
func (r *rawImport) encode(out *builder, m *dataset.Manifest, fields []*vocabulary.Field) (*Summary, error) {
	sizes := make([]int, len(fields))
	for j, f := range fields {
		sizes[j] = f.Size()
		out.oov = append(out.oov, f.OOV())
	}
	names := r.ratio.splits()
	compressors := 1
	if r.config.Memory >= 256<<20 { // with one, workers wait for it
		compressors = 2
	}
	if err := out.start(r.layout.fields, sizes, names, compressors); err != nil {
		return nil, err
	}
	r.scans.begin()
	offsets := model.Offsets(sizes)
	parsers := make([]*blockParser, r.workers)
	lookups := make([]*vocabulary.Lookup, r.workers)
	work := func(worker int, b *block) error {
		if parsers[worker] == nil {
			parsers[worker] = r.newBlockParser()
			lookups[worker] = vocabulary.NewLookup(fields)
		}
		for len(b.splits) < len(names) {
			b.splits = append(b.splits, columns{ids: make([][]int32, len(fields))})
		}
		return parsers[worker].parse(b, func(row uint64, label uint8, values [][]byte) error {
			rows := &b.splits[r.ratio.draw(row)]
			if j := lookups[worker].Append(rows.ids, values); j >= 0 {
				return badRow{fmt.Errorf("field %d (%s): the value %q is not in the vocabulary, which has no id for such values", j, r.layout.fields[j], values[j][:min(len(values[j]), 100)])}
			}
			rows.label = append(rows.label, label)
			return nil
		})
	}
	_, err := r.scan(0, len(r.paths), 0, work, func(b *block) error {
		for k := range b.splits {
			if err := out.append(k, &b.splits[k]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	summary, err := r.commit(out, m, r.ratio)
	if err == nil && r.config.Vocabulary != nil {
		for j, f := range fields {
			unseen := int64(0)
			for _, s := range out.splits {
				if f.OOV() >= 0 {
					unseen += s.counts[int(offsets[j])+f.OOV()]
				}
			}
			summary.Unseen = append(summary.Unseen, unseen)
			summary.Reserved = append(summary.Reserved, f.Reserved())
		}
	}
	return summary, err
}

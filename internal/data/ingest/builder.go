package ingest

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
)

// builder writes a dataset into a temporary folder, and commit renames the folder to its
// final name. A caller of newBuilder must call abort in the end, which has no effect after
// commit.
type builder struct {
	out       string                // final path
	dir       string                // temporary path; "" after commit or abort
	temporary *atomicfile.Temporary // dir
	fields    []string              // names
	sizes     []int                 // sizes of the fields
	dense     []string              // names of the dense inputs
	numbers   bool                  // labels are numbers; set before start
	tasks     []string              // names of all labels if there are several, otherwise nil; set before start
	weights   *dataset.Weights      // of the rows so far; nil if rows have none; set before start
	lists     []list                // by field; nil if no field is a list; set before start
	oov       []int                 // id of unseen values in each field, or -1; nil without a vocabulary
	splits    []*splitBuilder       // the splits that exist, in the manifest's order
	sorted    []int32               // ids of a list
	padded    []int64               // by field: number of lists that begin or end with pads
	turned    []int64               // by field: number of those with pads only on the side on which lists are not filled
	echoes    echoes
}

type splitBuilder struct {
	name            string
	file            *digestFile
	rows            *arrowio.RowWriter
	total, positive int64   // number of rows, and of rows with label 1
	labels          *labels // nil if labels are 0 or 1
	counts          []int64 // number of rows with each feature, by global id
	weight          float64 // sum of the weights in thousandths
	tasks           []dataset.TaskFacts
	blocks          dataset.SplitBlocks
}

// checkOut returns an error unless out is an empty folder, or a new name in an existing
// folder.
func checkOut(out string) error {
	if out == "" {
		return fault.Usagef("no folder is given for the dataset")
	}
	entries, err := os.ReadDir(out)
	switch {
	case os.IsNotExist(err):
	case err != nil:
		return fault.Usagef("%s already exists and is not a folder", out)
	case len(entries) > 0:
		return fault.Usagef("%s already exists and is not empty: name a new folder", out)
	}
	switch info, err := os.Stat(filepath.Dir(filepath.Clean(out))); {
	case os.IsNotExist(err):
		return fault.Usagef("%s does not exist: make this folder first", filepath.Dir(filepath.Clean(out)))
	case err != nil || !info.IsDir():
		return fault.Usagef("%s is not a folder", filepath.Dir(filepath.Clean(out)))
	}
	return nil
}

// newBuilder starts a dataset that commit will publish at out.
func newBuilder(out string) (*builder, error) {
	if err := checkOut(out); err != nil {
		return nil, err
	}
	out = filepath.Clean(out) // "x/" has no base name
	dir, temporary, err := atomicfile.Folder(out)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", out, err)
	}
	return &builder{out: out, dir: dir, temporary: temporary}, nil
}

// start sets the fields and the dense inputs, and creates the files of the splits, in the order of
// dataset.SplitNames. compressors is the number of goroutines that compress the rows of
// train. Every other split has one, because train is by far the largest.
func (b *builder) start(fields []string, sizes []int, inputs []string, splits []string, compressors int) error {
	b.fields, b.sizes, b.dense = fields, sizes, inputs
	features := 0
	for _, size := range b.sizes {
		features += size
	}
	form := arrowio.RowForm{Fields: b.fields, Sizes: b.sizes, Dense: inputs, Numbers: b.numbers, Weighted: b.weights != nil}
	if b.tasks != nil {
		form.Labels = b.tasks[1:]
	}
	for _, l := range b.lists {
		form.Lengths = append(form.Lengths, l.length)
	}
	b.padded, b.turned, b.echoes = make([]int64, len(fields)), make([]int64, len(fields)), newEchoes(b)
	for _, name := range splits {
		file, err := b.create(name + ".arrow")
		if err != nil {
			return err
		}
		s := &splitBuilder{name: name, file: file, counts: make([]int64, features)}
		b.splits = append(b.splits, s)
		if name != dataset.Train {
			compressors = 1
		}
		for _, label := range form.Labels {
			s.tasks = append(s.tasks, dataset.TaskFacts{Label: label})
		}
		if b.numbers {
			s.labels = &labels{}
		}
		if s.rows, err = arrowio.NewRowWriter(file, form, compressors); err != nil {
			return err
		}
		s.blocks.Name = name
		s.rows.Notify(func() { s.blocks.Add(file.bytes, file.digest) })
	}
	return nil
}

// columns holds rows of a split, column by column.
type columns struct {
	label  []float32   // [rows]
	weight []int32     // [rows]; nil without weights
	ids    [][]int32   // local ids, [m, rows]; those of a list position by position, row by row
	dense  [][]float32 // dense inputs, and then labels after the first, [k, rows]
}

func (c *columns) reset() {
	c.label, c.weight = c.label[:0], c.weight[:0]
	for j := range c.ids {
		c.ids[j] = c.ids[j][:0]
	}
	for i := range c.dense {
		c.dense[i] = c.dense[i][:0]
	}
}

// append appends rows to a split, given by its position in b.splits. The ids must be
// valid.
func (b *builder) append(split int, rows *columns) error {
	s := b.splits[split]
	s.total += int64(len(rows.label))
	for _, label := range rows.label {
		s.count(label)
	}
	b.echoes.columns(rows)
	for k := range s.tasks {
		for _, label := range rows.dense[len(b.dense)+k] {
			if label == arrowio.Missing {
				s.tasks[k].Missing++
			} else {
				s.tasks[k].Positives += int64(label)
			}
		}
	}
	for _, weight := range rows.weight {
		s.weight += float64(weight)
		b.weights.Join(int64(weight), int64(weight))
	}
	offset := 0
	for j, ids := range rows.ids {
		counts := s.counts[offset : offset+b.sizes[j]]
		offset += b.sizes[j]
		if b.lists != nil && b.lists[j].length > 0 {
			for row := range slices.Chunk(ids, b.lists[j].length) {
				b.countList(counts, row, j)
			}
			continue
		}
		for _, id := range ids {
			counts[id]++
		}
	}
	return s.rows.AppendColumns(rows.label, rows.weight, rows.ids, rows.dense)
}

// rows returns the number of rows in all splits.
func (b *builder) rows() (n int64) {
	for _, s := range b.splits {
		n += s.total
	}
	return n
}

// list is the form of a field in a row. The zero value is a field that is no list.
type list struct {
	length int  // number of positions; 0 = the field is no list
	pad    int  // local id of positions without a value; -1 = there is no such id
	front  bool // pads come first
}

// fill appends pads to ids, which end with the n ids of a list.
func (l *list) fill(ids []int32, n int) []int32 {
	missing := l.length - n
	ids = append(ids, make([]int32, missing)...)
	row := ids[len(ids)-l.length:]
	pads := row[n:]
	if l.front {
		copy(row[missing:], row[:n])
		pads = row[:missing]
	}
	for i := range pads {
		pads[i] = int32(l.pad)
	}
	return ids
}

// countList counts each id of a list of field j once, except the pad.
func (b *builder) countList(counts []int64, ids []int32, j int) {
	pad := int32(-1)
	if l := &b.lists[j]; l.pad >= 0 {
		pad = int32(l.pad)
		front, end := ids[0] == pad, ids[len(ids)-1] == pad
		if front || end {
			b.padded[j]++
		}
		if front != end && front != l.front {
			b.turned[j]++
		}
	}
	b.sorted = append(b.sorted[:0], ids...)
	slices.Sort(b.sorted)
	last := int32(-1)
	for _, id := range b.sorted {
		if id != last && id != pad {
			counts[id]++
		}
		last = id
	}
}

// count adds a label to the facts about the labels.
func (s *splitBuilder) count(label float32) {
	if s.labels != nil {
		s.labels.add(float64(label))
	} else {
		s.positive += int64(label)
	}
}

// labels collects the facts about labels that are numbers. They do not depend on the order
// of the rows.
type labels struct {
	min, max float64
	moments  dense.Moments
}

func (l *labels) add(x float64) {
	if l.moments.Present == 0 {
		l.min, l.max = x, x
	}
	l.min, l.max = min(l.min, x), max(l.max, x)
	l.moments.Add(x)
}

// described returns the facts. There must be at least one label.
func (l *labels) described() *dataset.Labels {
	mean, deviation := l.moments.Statistics(0)
	return &dataset.Labels{Min: l.min, Mean: mean, Max: l.max, Deviation: deviation}
}

// commit completes m, which must describe the dense inputs, writes the files that are
// left, and renames the folder to its final name.
func (b *builder) commit(m *dataset.Manifest) error {
	for j, name := range b.fields {
		f := dataset.Field{Name: name, Size: b.sizes[j]}
		if b.lists != nil && b.lists[j].length > 0 {
			if f.Length = b.lists[j].length; b.lists[j].pad >= 0 {
				f.Pad = &b.lists[j].pad
			}
			if b.lists[j].front {
				f.Pads = model.Front
			}
		}
		if b.oov != nil && b.oov[j] != f.Size-1 {
			f.OOV = &b.oov[j]
		}
		m.Fields = append(m.Fields, f)
	}
	if b.numbers {
		m.Labels = dataset.NumberLabels
	}
	m.Tasks, m.Weights = b.tasks, b.weights
	m.Version = m.FormVersion()
	var names []string
	var counts [][]int64
	blocks := dataset.Blocks{Version: dataset.BlocksVersion}
	for _, s := range b.splits {
		if s.total == 0 {
			return fault.Inputf("the split %s has no rows: give more rows, or leave the split out", s.name)
		}
		if err := s.rows.Close(); err != nil {
			return err
		}
		file, err := s.file.finish()
		if err != nil {
			return err
		}
		split := dataset.Split{Name: s.name, Rows: s.total, Positives: &s.positive, Weight: s.weight / dataset.WeightUnits, Tasks: s.tasks, File: file}
		if b.numbers {
			split.Positives, split.Labels = nil, s.labels.described()
		}
		m.Splits = append(m.Splits, split)
		names, counts, blocks.Splits = append(names, s.name), append(counts, s.counts), append(blocks.Splits, s.blocks)
	}
	if err := b.write(dataset.BlocksName, blocks.Marshal()); err != nil {
		return err
	}
	frequencies, err := b.create("frequencies.arrow")
	if err != nil {
		return err
	}
	if err := arrowio.WriteFrequencies(frequencies, names, counts); err != nil {
		return err
	}
	if m.Frequencies, err = frequencies.finish(); err != nil {
		return err
	}
	if err := b.write(dataset.ManifestName, m.Marshal()); err != nil {
		return err
	}
	return b.publish()
}

// write writes a small file.
func (b *builder) write(name string, data []byte) error {
	file, err := b.create(name)
	if err != nil {
		return err
	}
	if _, err := file.Write(data); err != nil {
		return err
	}
	_, err = file.finish()
	return err
}

// publish makes the folder durable under its final name.
func (b *builder) publish() error {
	if err := atomicfile.SyncFolder(b.dir); err != nil {
		return err
	}
	if err := os.Remove(b.out); err != nil && !os.IsNotExist(err) { // removes an empty folder only
		return fault.Usagef("%s already exists: %w", b.out, err)
	}
	if err := b.temporary.Rename(b.out); err != nil {
		return err
	}
	b.dir = ""
	return atomicfile.SyncFolder(filepath.Dir(b.out))
}

// abort removes all files, unless the dataset was committed.
func (b *builder) abort() {
	if b.dir == "" {
		return
	}
	for _, s := range b.splits {
		s.file.file.Close()
	}
	b.temporary.Remove()
	b.dir = ""
}

// digestFile is a new file that computes its digest while it is written.
type digestFile struct {
	name   string // relative to the folder, separated by slashes
	file   *os.File
	buffer *bufio.Writer
	digest hash.Hash
	bytes  int64
}

func (b *builder) create(name string) (*digestFile, error) {
	file, err := os.OpenFile(b.join(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	return &digestFile{name: name, file: file, buffer: bufio.NewWriterSize(file, 1<<16), digest: sha256.New()}, nil
}

func (f *digestFile) Write(p []byte) (int, error) {
	n, err := f.buffer.Write(p)
	f.digest.Write(p[:n])
	f.bytes += int64(n)
	return n, err
}

// join returns the path of a file in the temporary folder.
func (b *builder) join(name string) string { return filepath.Join(b.dir, filepath.FromSlash(name)) }

func (b *builder) sync(name string) error { return atomicfile.SyncFolder(b.join(name)) }

// finish makes the file durable, closes it and describes it.
func (f *digestFile) finish() (dataset.File, error) {
	if err := errors.Join(f.buffer.Flush(), f.file.Sync(), f.file.Close()); err != nil {
		return dataset.File{}, fmt.Errorf("%s: %w", f.name, err)
	}
	return dataset.File{File: f.name, SHA256: hex.EncodeToString(f.digest.Sum(nil)), Bytes: f.bytes}, nil
}

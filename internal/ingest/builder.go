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

	"shaver/internal/arrowio"
	"shaver/internal/atomicfile"
	"shaver/internal/dataset"
	"shaver/internal/fault"
	"shaver/internal/model"
)

// builder writes a dataset into a temporary folder beside its final place.
// After newBuilder succeeded, call abort in the end: after commit it does
// nothing.
type builder struct {
	out    string
	dir    string // "" once it is gone or committed
	fields []string
	sizes  []int
	oov    []int           // ids of unseen values, with a vocabulary; -1: there is none
	splits []*splitBuilder // those that exist, in the manifest's order
}

type splitBuilder struct {
	name            string
	file            *digestFile
	rows            *arrowio.RowWriter
	pending         model.Rows
	total, positive int64
	counts          []int64 // by global id
}

// pendingRows is how many rows a split collects before they are encoded.
const pendingRows = 4096

// checkOut refuses a place where something is already.
func checkOut(out string) error {
	if out == "" {
		return fault.Usagef("the dataset's folder is not named")
	}
	entries, err := os.ReadDir(out)
	switch {
	case os.IsNotExist(err):
	case err != nil:
		return fault.Usagef("%s is there already and is no folder", out)
	case len(entries) > 0:
		return fault.Usagef("%s is there already and not empty: name a new folder", out)
	}
	if info, err := os.Stat(filepath.Dir(filepath.Clean(out))); err != nil || !info.IsDir() {
		return fault.Usagef("%s is no folder", filepath.Dir(filepath.Clean(out)))
	}
	return nil
}

// newBuilder starts a dataset, to appear at out.
func newBuilder(out string) (*builder, error) {
	if err := checkOut(out); err != nil {
		return nil, err
	}
	out = filepath.Clean(out) // "x/" has no base name
	dir, err := os.MkdirTemp(filepath.Dir(out), "."+filepath.Base(out)+".tmp-*")
	if err != nil {
		return nil, err
	}
	b := &builder{out: out, dir: dir}
	if err := os.Chmod(b.dir, 0o755); err != nil { // MkdirTemp lets only us in
		b.abort()
		return nil, err
	}
	return b, nil
}

// start says which fields and splits (see SplitNames) there are, and how many
// compressors of train's rows, by far the most, work side by side.
func (b *builder) start(fields []string, sizes []int, splits []string, compressors int) error {
	b.fields, b.sizes = fields, sizes
	features := 0
	for _, size := range b.sizes {
		features += size
	}
	for _, name := range splits {
		file, err := b.create(name + ".arrow")
		if err != nil {
			return err
		}
		s := &splitBuilder{name: name, file: file, pending: model.Rows{Fields: len(b.fields)}, counts: make([]int64, features)}
		b.splits = append(b.splits, s)
		if name != dataset.Train {
			compressors = 1
		}
		if s.rows, err = arrowio.NewRowWriter(file, b.fields, b.sizes, false, compressors); err != nil {
			return err
		}
	}
	return nil
}

// columns are rows by columns: labels, and for each field local ids.
type columns struct {
	label []uint8
	ids   [][]int32
}

func (c *columns) reset() {
	c.label = c.label[:0]
	for j := range c.ids {
		c.ids[j] = c.ids[j][:0]
	}
}

// append appends rows, of valid ids, to the split of the given position.
func (b *builder) append(split int, rows *columns) error {
	s := b.splits[split]
	s.total += int64(len(rows.label))
	for _, label := range rows.label {
		s.positive += int64(label)
	}
	offset := 0
	for j, ids := range rows.ids {
		counts := s.counts[offset : offset+b.sizes[j]]
		for _, id := range ids {
			counts[id]++
		}
		offset += b.sizes[j]
	}
	return s.rows.AppendColumns(rows.label, rows.ids)
}

// add appends a row, of valid global ids, to the split of the given position.
func (b *builder) add(split int, label uint8, features []int32) error {
	s := b.splits[split]
	s.total++
	s.positive += int64(label)
	for _, g := range features {
		s.counts[g]++
	}
	s.pending.Label = append(s.pending.Label, label)
	s.pending.Features = append(s.pending.Features, features...)
	if s.pending.Len() < pendingRows {
		return nil
	}
	return s.flush()
}

func (s *splitBuilder) flush() error {
	err := s.rows.Append(&s.pending)
	s.pending.Reset()
	return err
}

// commit completes m, writes everything that is left, and moves the folder to
// its place.
func (b *builder) commit(m *dataset.Manifest) error {
	m.Version = dataset.Version
	for j, name := range b.fields {
		f := dataset.Field{Name: name, Size: b.sizes[j]}
		if b.oov != nil && b.oov[j] != f.Size-1 {
			f.OOV = &b.oov[j]
		}
		m.Fields = append(m.Fields, f)
	}
	var names []string
	var counts [][]int64
	for _, s := range b.splits {
		if s.total == 0 {
			return fault.Inputf("the split %s has no rows: give more, or leave it out", s.name)
		}
		if err := errors.Join(s.flush(), s.rows.Close()); err != nil {
			return err
		}
		file, err := s.file.finish()
		if err != nil {
			return err
		}
		m.Splits = append(m.Splits, dataset.Split{Name: s.name, Rows: s.total, Positives: s.positive, File: file})
		names, counts = append(names, s.name), append(counts, s.counts)
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
	manifest, err := b.create(dataset.ManifestName)
	if err != nil {
		return err
	}
	if _, err := manifest.Write(m.Marshal()); err != nil {
		return err
	}
	if _, err := manifest.finish(); err != nil {
		return err
	}
	return b.publish()
}

func (b *builder) publish() error {
	if err := atomicfile.SyncFolder(b.dir); err != nil {
		return err
	}
	if err := os.Remove(b.out); err != nil && !os.IsNotExist(err) { // an empty folder
		return fault.Usagef("%s is there already: %w", b.out, err)
	}
	if err := os.Rename(b.dir, b.out); err != nil {
		return err
	}
	b.dir = ""
	return atomicfile.SyncFolder(filepath.Dir(b.out))
}

// abort removes all that was written, unless it was committed.
func (b *builder) abort() {
	if b.dir == "" {
		return
	}
	for _, s := range b.splits {
		s.file.file.Close()
	}
	os.RemoveAll(b.dir)
	b.dir = ""
}

// digestFile is a new file that knows its digest.
type digestFile struct {
	name   string // relative, with slashes
	file   *os.File
	buffer *bufio.Writer
	digest hash.Hash
	bytes  int64
}

func (b *builder) create(name string) (*digestFile, error) {
	file, err := os.OpenFile(b.join(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
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

// join returns the path of a name in the folder.
func (b *builder) join(name string) string { return filepath.Join(b.dir, filepath.FromSlash(name)) }

func (b *builder) sync(name string) error { return atomicfile.SyncFolder(b.join(name)) }

// finish makes the file durable and closes it.
func (f *digestFile) finish() (dataset.File, error) {
	if err := errors.Join(f.buffer.Flush(), f.file.Sync(), f.file.Close()); err != nil {
		return dataset.File{}, fmt.Errorf("%s: %w", f.name, err)
	}
	return dataset.File{File: f.name, SHA256: hex.EncodeToString(f.digest.Sum(nil)), Bytes: f.bytes}, nil
}

package dataset

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
)

// Reader reads splits from front to back, with one record batch in memory. It is not safe
// for concurrent use.
type Reader struct {
	d      *Dataset
	files  []source   // files still to read; the first is the current one
	read   int64      // rows of the current file read or skipped so far
	ended  bool       // the current file was read to its end and checked
	labels int64      // number of its rows with label 1
	skip   int64      // rows of the folders still to skip
	drop   int64      // rows of tasks still to skip
	batch  model.Rows // of the folders, from which the rows of tasks are made
	blocks bool       // check each block with the list of blocks
	whole  bool       // no row of the current file was skipped
	file   *os.File   // nil if the current file is not open
	digest hash.Hash  // nil if the start of the file was skipped, or if chain is set
	chain  *chain     // reads the file; nil unless blocks is set
	rows   *arrowio.RowReader
}

// source is the file of one split in one folder.
type source struct {
	*part
	Split
	first int64 // number of the file's first row
}

func (s *source) path() string { return s.part.path(s.Split.File) }

// named returns err with the path of the file in front, or nil if err is nil.
func (s *source) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.path(), err)
}

// NewReader returns a reader of the named splits, in the order of Scan. Without names it
// reads all splits. The caller must close the reader.
func (d *Dataset) NewReader(splits ...string) (*Reader, error) {
	chosen, err := d.chosen(splits)
	if err != nil {
		return nil, err
	}
	r := &Reader{d: d}
	for k, name := range d.SplitNames() {
		if !chosen[k] {
			continue
		}
		for _, p := range d.parts {
			first := p.first
			for _, s := range p.Splits {
				if s.Name == name {
					r.files = append(r.files, source{p, s, first})
				}
				first += s.Rows
			}
		}
	}
	return r, nil
}

// Next fills rows with the next batch and reuses the memory of rows. A batch has at most
// arrowio.RowsBatch rows for each task, all of one split and one day. Next returns io.EOF after the last
// batch. It checks the digest of a file before it returns the file's last batch, so a
// corrupt file may give wrong rows, but never its last batch.
func (r *Reader) Next(rows *model.Rows) error {
	if r.d.tasks == nil {
		return r.nextRows(rows)
	}
	for {
		if err := r.nextRows(&r.batch); err != nil {
			return err
		}
		r.expand(rows)
		passed := min(r.drop, int64(rows.Len()))
		r.drop -= passed
		if *rows = rows.Slice(int(passed), rows.Len()); rows.Len() > 0 {
			return nil
		}
	}
}

// nextRows is like Next for the rows of the folders, whose last dense inputs are the labels after the first if d has tasks.
func (r *Reader) nextRows(rows *model.Rows) error {
	for ; len(r.files) > 0; r.files = r.files[1:] {
		file := &r.files[0]
		if r.file == nil && r.skip >= file.Rows {
			r.skip -= file.Rows
			continue
		}
		if err := r.next(file, rows); err != io.EOF {
			if r.blocks { // an error names the block that is corrupt
				return err
			}
			return file.explained(file.Split.File, err)
		}
	}
	return io.EOF
}

// next is like Next for one file.
func (r *Reader) next(in *source, rows *model.Rows) error {
	if r.ended {
		r.ended = false
		return io.EOF
	}
	if r.file == nil {
		if err := r.open(in); err != nil {
			return err
		}
	}
	for {
		err := r.rows.Next(rows)
		if r.chain != nil && err != io.EOF {
			if err = r.chain.end(rows.Len(), in.named(err)); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			defer r.Close()
			return r.check(in)
		case err != nil:
			return in.named(err)
		}
		r.read += int64(rows.Len())
		for i, label := range rows.Label {
			rows.Number[i] += in.first
			if in.Positives != nil {
				r.labels += int64(label)
			}
		}
		if err := r.weigh(in, rows); err != nil {
			return in.named(err)
		}
		if r.read > in.Rows {
			return fault.Inputf("%s has more rows than the %d in %s", in.path(), in.Rows, ManifestName)
		}
		if r.read == in.Rows {
			if err := r.finish(in); err != nil {
				return err
			}
		}
		passed := min(r.skip, int64(rows.Len()))
		r.skip -= passed
		*rows = rows.Slice(int(passed), rows.Len())
		if rows.Len() > 0 {
			return nil
		}
	}
}

// finish reads what follows the last row of a split, checks the file and closes it.
func (r *Reader) finish(in *source) error {
	defer r.Close()
	var rest model.Rows
	switch err := r.rows.Next(&rest); {
	case err == nil:
		return fault.Inputf("%s has more rows than the %d in %s", in.path(), in.Rows, ManifestName)
	case err != io.EOF:
		return in.named(err)
	}
	if err := r.check(in); err != io.EOF {
		return err
	}
	r.ended = true
	return nil
}

func (r *Reader) open(in *source) error {
	file, err := in.open(in.Split.File.File)
	if err != nil {
		return err
	}
	r.file, r.digest, r.chain, r.read, r.labels, r.whole = file, nil, nil, 0, 0, r.skip == 0
	var bytes io.Reader
	batch := int64(in.batch())
	block := int(r.skip / batch) // the first to be read
	switch {
	case r.blocks:
		r.chain, err = in.chain(file, block)
		bytes = r.chain
	case r.whole:
		r.digest = sha256.New()
		bytes = bufio.NewReaderSize(io.TeeReader(file, r.digest), 1<<18)
	default:
		bytes = newSeeker(file)
	}
	if err == nil {
		r.rows, err = arrowio.NewRowReader(bytes)
	}
	if err == nil {
		err = in.checkForm(r.rows.Form())
	}
	if err == nil {
		if r.d.picked != nil {
			r.rows.ChooseFields(r.d.picked)
		}
		r.rows.Widen(r.d.FieldDims())
		err = r.rows.Choose(r.d.columns())
	}
	switch {
	case err != nil || r.skip == 0:
	case r.blocks && block > 0:
		r.read = int64(block) * batch
		r.rows.Jump(r.read)
		err = r.chain.begin(block)
	case r.blocks:
	default:
		r.read, err = r.rows.Skip(r.skip)
	}
	r.skip -= r.read
	if err != nil {
		r.Close()
		return in.named(err)
	}
	return nil
}

// checkForm returns an error unless a file of rows has the fields, dense inputs and labels of
// the manifest.
func (m *Manifest) checkForm(f *arrowio.RowForm) error {
	want := m.RowForm()
	switch {
	case f.Numbered || !slices.Equal(f.Fields, want.Fields) || !slices.Equal(f.Sizes, want.Sizes):
		return fault.Inputf("the names or sizes of the fields are not those in %s", ManifestName)
	case !slices.Equal(f.Lengths, want.Lengths):
		return fault.Inputf("the lists are not those in %s", ManifestName)
	case !slices.Equal(f.Dense, want.Dense):
		return fault.Inputf("the names of the dense inputs are not those in %s", ManifestName)
	case f.Numbers != want.Numbers:
		return fault.Inputf("the type of the labels is not that in %s", ManifestName)
	case f.Weighted != want.Weighted || !slices.Equal(f.Labels, want.Labels):
		return fault.Inputf("the weights or the names of the labels are not those in %s", ManifestName)
	}
	return nil
}

// check checks the file of a split after its last row, and returns io.EOF if it is
// correct. If the start of the file was skipped, check compares only the number of rows, and the
// digest if there are blocks.
func (r *Reader) check(in *source) error {
	digest := r.digest
	if r.chain != nil {
		digest = r.chain.digest
	}
	if digest != nil && hex.EncodeToString(digest.Sum(nil)) != in.SHA256 {
		return corrupt(in.path())
	}
	if !r.whole {
		if r.read != in.Rows {
			return fault.Inputf("%s has %d rows, but %s states %d", in.path(), r.read, ManifestName, in.Rows)
		}
		return io.EOF
	}
	if in.Positives == nil && r.read != in.Rows {
		return fault.Inputf("%s has %d rows, but %s states %d", in.path(), r.read, ManifestName, in.Rows)
	}
	if in.Positives != nil && (r.read != in.Rows || r.labels != *in.Positives) {
		return fault.Inputf("%s has %d rows, %d with label 1, but %s states %d and %d", in.path(), r.read, r.labels, ManifestName, in.Rows, *in.Positives)
	}
	return io.EOF
}

// Close closes the open file, if any.
func (r *Reader) Close() error {
	if r.rows != nil {
		r.rows.Close()
		r.rows = nil
	}
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

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

	"shaver/internal/arrowio"
	"shaver/internal/dense"
	"shaver/internal/fault"
	"shaver/internal/model"
)

// Reader reads splits from front to back, with one record batch in memory. It is not safe
// for concurrent use.
type Reader struct {
	d      *Dataset
	chosen []bool    // for each of d.Splits, whether it is read
	split  int       // position of the current split in d.Splits
	first  int64     // row number of the split's first row
	read   int64     // rows of the split read or skipped so far
	ended  bool      // the file of the split was read to its end and checked
	labels int64     // number of them with label 1
	skip   int64     // rows still to skip
	file   *os.File  // file of the current split; nil if it is not open
	digest hash.Hash // nil if the start of the file was skipped
	rows   *arrowio.RowReader
}

// NewReader returns a reader of the named splits, in the order train, val, test. Without
// names it reads all splits. The caller must close the reader.
func (d *Dataset) NewReader(splits ...string) (*Reader, error) {
	chosen, err := d.chosen(splits)
	if err != nil {
		return nil, err
	}
	return &Reader{d: d, chosen: chosen}, nil
}

// Next fills rows with the next batch and reuses the memory of rows. A batch has at most
// arrowio.RowsBatch rows, all of one split. Next returns io.EOF after the last batch. It
// checks the digest of a file before it returns the file's last batch, so a corrupt file
// may give wrong rows, but never its last batch.
func (r *Reader) Next(rows *model.Rows) error {
	for ; r.split < len(r.d.Splits); r.split++ {
		split := &r.d.Splits[r.split]
		switch {
		case !r.chosen[r.split]:
		case r.file == nil && r.skip >= split.Rows:
			r.skip -= split.Rows
		default:
			err := r.next(split, rows)
			if err != io.EOF {
				return err
			}
		}
		r.first += split.Rows
	}
	return io.EOF
}

// next is like Next for one split.
func (r *Reader) next(split *Split, rows *model.Rows) error {
	path := r.d.path(split.File)
	if r.ended {
		r.ended = false
		return io.EOF
	}
	if r.file == nil {
		if err := r.open(split, path); err != nil {
			return err
		}
	}
	for {
		err := r.rows.Next(rows)
		switch {
		case err == io.EOF:
			defer r.Close()
			return r.check(split, path)
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		r.read += int64(rows.Len())
		for i, label := range rows.Label {
			rows.Number[i] += r.first
			r.labels += int64(label)
		}
		if r.read > split.Rows {
			return fault.Inputf("%s has more rows than the %d in %s", path, split.Rows, ManifestName)
		}
		if r.read == split.Rows {
			if err := r.finish(split, path); err != nil {
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
func (r *Reader) finish(split *Split, path string) error {
	defer r.Close()
	var rest model.Rows
	switch err := r.rows.Next(&rest); {
	case err == nil:
		return fault.Inputf("%s has more rows than the %d in %s", path, split.Rows, ManifestName)
	case err != io.EOF:
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := r.check(split, path); err != io.EOF {
		return err
	}
	r.ended = true
	return nil
}

func (r *Reader) open(split *Split, path string) error {
	file, err := r.d.open(split.File.File)
	if err != nil {
		return err
	}
	r.file, r.digest, r.read, r.labels = file, nil, 0, 0
	var in io.Reader = newSeeker(file)
	if r.skip == 0 {
		r.digest = sha256.New()
		in = bufio.NewReaderSize(io.TeeReader(file, r.digest), 1<<18)
	}
	r.rows, err = arrowio.NewRowReader(in)
	if err == nil && (r.rows.Numbered() || !slices.Equal(r.rows.Fields(), r.d.Fields()) || !slices.Equal(r.rows.Sizes(), r.d.FieldDims())) {
		err = fault.Inputf("the names or sizes of the fields are not those in %s", ManifestName)
	}
	if err == nil && !sameInputs(r.rows.Dense(), r.d.Dense) {
		err = fault.Inputf("the names of the dense inputs are not those in %s", ManifestName)
	}
	if err == nil {
		err = r.rows.Choose(r.d.inputs)
	}
	if err == nil && r.skip > 0 {
		r.read, err = r.rows.Skip(r.skip)
		r.skip -= r.read
	}
	if err != nil {
		r.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func sameInputs(names []string, inputs []dense.Input) bool {
	return slices.EqualFunc(names, inputs, func(name string, in dense.Input) bool { return name == in.Name })
}

// check checks the file of a split after its last row, and returns io.EOF if it is
// correct. If the start of the file was skipped, check compares only the number of rows.
func (r *Reader) check(split *Split, path string) error {
	if r.digest == nil {
		if r.read != split.Rows {
			return fault.Inputf("%s has %d rows, but %s states %d", path, r.read, ManifestName, split.Rows)
		}
		return io.EOF
	}
	if hex.EncodeToString(r.digest.Sum(nil)) != split.SHA256 {
		return corrupt(path)
	}
	if r.read != split.Rows || r.labels != split.Positives {
		return fault.Inputf("%s has %d rows, %d with label 1, but %s states %d and %d", path, r.read, r.labels, ManifestName, split.Rows, split.Positives)
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

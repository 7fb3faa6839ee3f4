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
	"shaver/internal/fault"
	"shaver/internal/model"
)

// Reader reads splits front to back, with one record batch in memory. It is for
// one goroutine.
type Reader struct {
	d      *Dataset
	chosen []bool
	split  int   // current one, in d.Splits
	first  int64 // row number of its first row
	read   int64 // rows of it that were read
	labels int64 // of these, of label 1
	skip   int64 // rows to pass over before the next one
	file   *os.File
	digest hash.Hash // nil if the file's beginning was passed over
	rows   *arrowio.RowReader
}

// NewReader returns a reader of the named splits (none: of all), in the order
// train, val, test. Close it.
func (d *Dataset) NewReader(splits ...string) (*Reader, error) {
	chosen, err := d.chosen(splits)
	if err != nil {
		return nil, err
	}
	return &Reader{d: d, chosen: chosen}, nil
}

// Next fills rows, reusing its memory, with the next batch of at most
// arrowio.RowsBatch rows of one split. It returns io.EOF after the last one. At
// the end of each file it checks the file's digest: rows that were delivered
// before may have come from a corrupt file only if an error follows.
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

// next is Next for one split.
func (r *Reader) next(split *Split, rows *model.Rows) error {
	path := r.d.path(split.File)
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
			return fault.Inputf("%s has more than the %d rows that %s says", path, split.Rows, ManifestName)
		}
		passed := min(r.skip, int64(rows.Len()))
		r.skip -= passed
		*rows = rows.Slice(int(passed), rows.Len())
		if rows.Len() > 0 {
			return nil
		}
	}
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
		err = fault.Inputf("the fields are not those of %s", ManifestName)
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

// check is for the end of a file: the reader has read every byte of it, unless its
// beginning was passed over.
func (r *Reader) check(split *Split, path string) error {
	if r.digest == nil {
		if r.read != split.Rows {
			return fault.Inputf("%s has %d rows; %s says %d", path, r.read, ManifestName, split.Rows)
		}
		return io.EOF
	}
	if hex.EncodeToString(r.digest.Sum(nil)) != split.SHA256 {
		return corrupt(path)
	}
	if r.read != split.Rows || r.labels != split.Positives {
		return fault.Inputf("%s has %d rows, %d of label 1; %s says %d and %d", path, r.read, r.labels, ManifestName, split.Rows, split.Positives)
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

package dataset

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"

	"shaver/internal/arrowio"
	"shaver/internal/fault"
)

// RawConfig says what ImportRaw reads: text files, plain, gzip or zstd, with
// the same header line, separated by tabs (no quotes; every byte between two
// tabs is the value) or commas (quotes as encoding/csv reads them), as the
// header is. Every column but the label's is a field; every string is a value,
// the empty one too.
type RawConfig struct {
	Files    []string // read in this order; a row's position counts over all
	Label    string   // name of the label's column; "" is "label"
	MinCount int64    // a value in fewer rows of train gets the field's last id; below 1 is 1
	Split    string   // train:val:test; "" is "8:1:1"
	Seed     uint64   // of the split
	OnBadRow string   // Fail (also "") or Skip; a bad record of several lines counts all of them
	Out      string   // the dataset's folder, which must not exist or be empty
	Progress Progress // may be nil
}

// rawImport is one run of ImportRaw.
type rawImport struct {
	*passes
	config  RawConfig
	ratio   *ratio
	columns []string // the header
	comma   bool
	label   int // column of it
}

// ImportRaw makes a dataset of raw strings in two passes: one counts the values
// of each field in the rows of train, one encodes. A field's ids are its values
// with at least MinCount rows, in byte order; the last id stands for all other
// values. Memory is that of the values of train. Bad rows, errors and the end of
// ctx are as for ImportEncoded.
func ImportRaw(ctx context.Context, config RawConfig) (*Summary, error) {
	config.MinCount = max(config.MinCount, 1)
	if config.Label == "" {
		config.Label = "label"
	}
	if config.Split == "" {
		config.Split = "8:1:1"
	}
	if len(config.Files) == 0 {
		return nil, fault.Usagef("no file of raw rows")
	}
	if err := checkOut(config.Out); err != nil {
		return nil, err
	}
	r := &rawImport{config: config}
	var err error
	if r.ratio, err = parseRatio(config.Split, config.Seed); err != nil {
		return nil, err
	}
	if r.passes, err = newPasses(ctx, config.OnBadRow, config.Progress, config.Files, 2); err != nil {
		return nil, err
	}
	encoder, err := r.vocabulary()
	if err != nil {
		return nil, err
	}
	fields := slices.Delete(slices.Clone(r.columns), r.label, r.label+1)
	if err := checkTotal(fields, encoder.sizes); err != nil {
		return nil, err
	}
	b, err := newBuilder(config.Out, fields, encoder.sizes, r.ratio.splits())
	if err != nil {
		return nil, err
	}
	defer b.abort()
	m := Manifest{IDs: RawStrings, MinCount: config.MinCount}
	if err := b.writeVocabulary(&m, encoder.values); err != nil {
		return nil, err
	}
	err = r.pass(func(split int, label uint8, values [][]byte) error {
		return b.add(split, label, encoder.encode(values))
	})
	if err != nil {
		return nil, err
	}
	return r.commit(b, &m, r.ratio)
}

// vocabulary is the first pass.
func (r *rawImport) vocabulary() (*encoder, error) {
	var counts []map[string]int64
	rows := 0
	err := r.pass(func(split int, _ uint8, values [][]byte) error {
		if split != 0 {
			return nil
		}
		rows++
		for len(counts) < len(values) {
			counts = append(counts, map[string]int64{})
		}
		for j, value := range values {
			counts[j][string(value)]++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if rows == 0 {
		return nil, fault.Inputf("the split %s has no rows", Train)
	}
	return newEncoder(counts, r.config.MinCount), nil
}

// pass reads all rows and calls visit with the position of their split and
// their values, which are valid until visit returns.
func (r *rawImport) pass(visit func(split int, label uint8, values [][]byte) error) error {
	r.begin()
	row := uint64(0)
	for _, path := range r.config.Files {
		before := row
		if err := r.file(path, &row, visit); err != nil {
			return err
		}
		if row == before {
			return fault.Inputf("%s: the file has a header and no rows", path)
		}
	}
	return nil
}

func (r *rawImport) file(path string, row *uint64, visit func(int, uint8, [][]byte) error) error {
	s, err := openSource(path)
	if err != nil {
		return err
	}
	defer s.close()
	if err := r.readHeader(s); err != nil {
		return err
	}
	records := &records{source: s, comma: r.comma}
	for {
		cells, lines, err := records.next()
		if err == io.EOF {
			return r.finish(s)
		}
		if err != nil && !records.bad {
			return err
		}
		split := r.ratio.draw(*row)
		*row++
		if err := r.tick(s); err != nil {
			return err
		}
		label := uint8(0)
		if err == nil {
			if label, err = r.check(cells); err != nil {
				err = s.errorf(s.line-lines+1, "%w", err)
			}
		}
		if err == nil {
			err = visit(split, label, slices.Delete(cells, r.label, r.label+1))
		} else {
			err = r.reject(err, lines)
		}
		if err != nil {
			return err
		}
	}
}

// check returns the label of a record, or why it is no row.
func (r *rawImport) check(cells [][]byte) (uint8, error) {
	if len(cells) != len(r.columns) {
		return 0, fmt.Errorf("%d columns, expected %d", len(cells), len(r.columns))
	}
	for i, cell := range cells {
		if bytes.IndexByte(cell, 0) >= 0 {
			return 0, fmt.Errorf("column %d (%s): NUL byte", i, r.columns[i])
		}
	}
	label := string(cells[r.label])
	if label != "0" && label != "1" {
		return 0, fmt.Errorf("label is %q, expected 0 or 1", clip(label))
	}
	return label[0] & 1, nil
}

func (r *rawImport) readHeader(s *source) error {
	line, long, err := s.next()
	switch {
	case err == io.EOF:
		return fault.Inputf("%s: the file is empty", s.path)
	case err != nil:
		return err
	case long:
		return s.tooLong()
	}
	h, err := readHeader(line, false)
	if err != nil {
		return s.errorf(1, "%w", err)
	}
	if r.columns != nil {
		if !slices.Equal(h.columns, r.columns) || (h.separator == ',') != r.comma {
			return s.errorf(1, "the header %q is not that of the files before, %q", h.columns, r.columns)
		}
		return nil
	}
	label := slices.Index(h.columns, r.config.Label)
	if label < 0 {
		return s.errorf(1, "no column %q for the label: the columns are %q", r.config.Label, h.columns)
	}
	if err := arrowio.CheckFields(slices.Delete(slices.Clone(h.columns), label, label+1)); err != nil {
		return s.errorf(1, "%w", err)
	}
	r.columns, r.comma, r.label = h.columns, h.separator == ',', label
	return nil
}

// records cuts the lines of a source into cells.
type records struct {
	source *source
	comma  bool
	bad    bool // the last error of next is a bad record's; another one is the end
	cells  [][]byte
	text   []byte // of a quoted record
}

// next returns the next record, valid until the next call, and how many lines
// it takes.
func (r *records) next() (cells [][]byte, lines int, err error) {
	r.bad = false
	s := r.source
	line, long, err := s.next()
	if err != nil {
		return nil, 0, err
	}
	if long {
		r.bad = true
		return nil, 1, s.tooLong()
	}
	if r.comma && bytes.IndexByte(line, '"') >= 0 {
		return r.quoted(line)
	}
	separator := byte('\t')
	if r.comma {
		separator = ','
	}
	r.cells = r.cells[:0]
	for {
		at := bytes.IndexByte(line, separator)
		if at < 0 {
			r.cells = append(r.cells, line)
			return r.cells, 1, nil
		}
		r.cells = append(r.cells, line[:at])
		line = line[at+1:]
	}
}

// quoted reads a record with quotes: it goes on over lines until the quotes are
// even. A quote that stays open is an error that no policy passes over: nobody
// could tell how many rows it swallowed.
func (r *records) quoted(line []byte) ([][]byte, int, error) {
	s := r.source
	start := s.line
	r.text = append(r.text[:0], line...)
	for bytes.Count(r.text, []byte{'"'})%2 == 1 {
		line, long, err := s.next()
		if err != nil && err != io.EOF {
			return nil, 0, err
		}
		if err == io.EOF || long || len(r.text)+2+len(line) > maxLine {
			return nil, 0, s.errorf(start, "a quote is opened and not closed within the file and %d bytes", maxLine)
		}
		r.text = append(append(r.text, "\r\n"...), line...)
	}
	// encoding/csv takes one carriage return from the end of every line, as
	// source.next did: these are for it to take.
	r.text = append(r.text, "\r\n"...)
	lines := s.line - start + 1
	reader := csv.NewReader(bytes.NewReader(r.text))
	reader.FieldsPerRecord = -1
	text, err := reader.Read()
	if err == nil && reader.InputOffset() < int64(len(r.text)) {
		err = errors.New("the quotes do not match")
	}
	if err != nil {
		if p := (*csv.ParseError)(nil); errors.As(err, &p) {
			err = p.Err // its line numbers are not the file's
		}
		r.bad = true
		return nil, lines, s.errorf(start, "not CSV: %w", err)
	}
	r.cells = r.cells[:0]
	for _, cell := range text {
		r.cells = append(r.cells, []byte(cell))
	}
	return r.cells, lines, nil
}

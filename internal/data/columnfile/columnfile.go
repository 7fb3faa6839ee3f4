// Package columnfile reads table files that other programs wrote, which are Parquet files and
// Arrow IPC files or streams, and writes Parquet files for other programs: scores, predictions,
// the worth of ids, and deltas.
//
// What is read is not trusted. Malformed bytes are bad input, and the memory of a block is
// bounded. What is written is deterministic: the same values give the same bytes.
//
// With package arrowio, which has our own forms, this package is the only importer of Arrow,
// and it is the only importer of Parquet.
package columnfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/data/arrowio"
)

// File reads the columns of a Parquet file, or of an Arrow IPC file or stream. The
// columns it reads hold strings, numbers, truth values, dates or times, or dictionaries
// of them, or lists of these. See texts.go for the text that each value gets. The text of a
// list has those of its values. A File must not be used
// by several goroutines at once, but its blocks may be.
type File struct {
	path    string
	memory  int // see blockMemory
	file    *os.File
	info    os.FileInfo // state of file when it was opened
	columns []string
	chosen  []int
	view    *View // nil if the columns are those of the file
	sources []int // with view: the file's column for each of columns, or -1
	between byte  // separator of the values of a list
	rows    int64 // number of rows in the blocks returned so far
	table   interface {
		unfit(column int, list bool) string // name of a column's type if it is not supported, and "" otherwise
		kind(column int) string             // see Kind; column is one of the file
		single(column int) bool             // whether a column has the type float32
		next(chosen []int, between byte) (*Block, error)
	}
}

// Block is consecutive rows of a table: a row group or a record batch.
type Block struct {
	Row    int64  // position of the first row, from 0
	Len    int    // number of rows
	Read   int64  // approximate number of bytes of the file up to the end of the block
	Single []bool // for each chosen column, whether its type is float32; the text of a value then has only the digits that a float32 needs
	cells  func(visit func(row int, cells [][]byte) error) error
}

// blockMemory bounds the memory of a block, in bytes. For a row group it bounds the pages
// of all columns that are held at once. For a record batch it bounds the decompressed
// batch, and separately the copy of its cells. Blocks that are read concurrently may each
// take as much.
const blockMemory = 1 << 30

// Open opens a table and chooses all columns. It recognises the format by the
// first bytes. The caller must close the table.
func Open(path string) (*File, error) { return open(path, blockMemory) }

// open is Open with a bound other than blockMemory.
func open(path string, memory int) (*File, error) {
	f, err := files.Open(path, "a Parquet or Arrow file")
	if os.IsNotExist(err) {
		return nil, fault.Inputf("%s: no such file", path)
	}
	if err != nil {
		return nil, err
	}
	t := &File{path: path, memory: memory, file: f}
	var head [4]byte
	n := 0
	if t.info, err = f.Stat(); err == nil {
		n, err = f.ReadAt(head[:], 0)
	}
	switch {
	case err != nil && err != io.EOF:
	case n == 0:
		err = fault.Inputf("the file is empty")
	case string(head[:n]) == "PAR1":
		err = t.openParquet()
	case string(head[:n]) == "FEA1":
		err = fault.Inputf("a Feather file of version 1, expected version 2, which is an Arrow file")
	case isText(head[:n]):
		err = fault.Inputf("a text file, expected a Parquet or Arrow file: shaver dataset import csv reads text")
	default:
		err = t.openIPC()
	}
	if err == nil && len(t.columns) == 0 {
		err = fault.Inputf("the file has no columns")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range t.columns {
		t.chosen = append(t.chosen, i)
	}
	return t, nil
}

// isText reports whether a file that begins with head is text, and not a file or stream of Arrow. Such a
// stream begins with the bytes 255 or with a length below 2^24.
func isText(head []byte) bool {
	return string(head) != "ARRO" && !slices.ContainsFunc(head, func(b byte) bool { return b < 9 || b == 255 })
}

// Path returns the path of the file.
func (t *File) Path() string { return t.path }

// Columns returns the names of the columns of the file.
func (t *File) Columns() []string { return t.columns }

// ListSetting is the setting that the error of Choose for an unnamed list names (see fault.Setting).
const ListSetting = "list"

// Choose selects the columns of the blocks and their order. A column that is missing,
// ambiguous or of an unsupported type is bad input. Only the columns in lists may be lists. A
// byte separates the values of a list in its cell, and must not occur in them. An empty or
// missing list is an empty cell.
func (t *File) Choose(names, lists []string, separator byte) error {
	t.chosen, t.between = nil, separator
	for _, name := range names {
		at := slices.Index(t.columns, name)
		if at < 0 {
			return fault.Inputf("%s: no column %q, the columns are %q", t.path, name, t.columns)
		}
		if slices.Contains(t.columns[at+1:], name) {
			return fault.Inputf("%s: two columns are named %q, the columns are %q", t.path, name, t.columns)
		}
		kind := t.unfit(at, slices.Contains(lists, name))
		if kind == kindLists {
			return fault.Setting(fault.Inputf("%s: column %q has lists, but it is not named as a list: name it with the number of its positions, as in %s=50, or leave it out", t.path, name, name), ListSetting)
		}
		if kind != "" {
			return fault.Inputf("%s: column %q is of %s, expected strings, numbers, truth values, dates or times", t.path, name, kind)
		}
		t.chosen = append(t.chosen, at)
	}
	return nil
}

// unfit returns the name of a column's type if it is not supported.
func (t *File) unfit(column int, list bool) string {
	if t.view == nil {
		return t.table.unfit(column, list)
	}
	if column = t.sources[column]; column < 0 {
		return ""
	}
	c := t.table.(*parquetTable).meta.Schema.Column(column)
	if c.MaxRepetitionLevel() == 0 && len(c.ColumnPath()) > 1 { // a field of it
		return "structures"
	}
	return t.table.unfit(column, list)
}

// Kind says what the values of a chosen column are, such as "numbers". It is "" if all are missing. The same value
// may have different texts in columns of different kinds, or different values the same text.
func (t *File) Kind(k int) string {
	if t.view != nil {
		return t.view.Columns[t.chosen[k]].Kind
	}
	return t.table.kind(t.chosen[k])
}

// Kinds of values that both formats have.
const (
	Strings, Numbers, Truths = "strings", "numbers", "truth values"
	Dates, Times             = "dates", "times of day"
	Timestamps, Instants     = "timestamps without a zone", "timestamps with a zone"
)

// Next returns the next block, or io.EOF after the last one.
func (t *File) Next() (*Block, error) {
	var p *Block
	err := arrowio.Guarded(func() (err error) {
		if t.view != nil {
			p, err = t.viewed()
		} else {
			p, err = t.table.next(t.chosen, t.between)
		}
		return err
	})
	if err != nil {
		if err != io.EOF {
			err = fmt.Errorf("%s: after row %d: %w", t.path, t.rows, err)
		}
		return nil, err
	}
	p.Row = t.rows
	t.rows += int64(p.Len)
	p.Single = make([]bool, len(t.chosen))
	for k, column := range t.chosen {
		if t.view == nil {
			p.Single[k] = t.table.single(column)
		} else if at := t.sources[column]; at >= 0 {
			p.Single[k] = t.table.single(at) && !t.view.Columns[column].Double
		}
	}
	return p, nil
}

// kindLists is the name of the type of a column of lists.
const kindLists = "lists"

// maxListText bounds the text of a list, in bytes.
const maxListText = 1 << 20

// listText appends the text of values to that of a list, which begins at from.
type listText struct{ between byte }

// add appends the text of a value. first says whether it is the first of the list. write
// appends the text.
func (l listText) add(text []byte, from int, first bool, write func(text []byte) ([]byte, error)) ([]byte, error) {
	if !first {
		text = append(text, l.between)
	}
	at := len(text)
	text, err := write(text)
	switch {
	case err != nil:
		return nil, err
	case bytes.IndexByte(text[at:], l.between) >= 0:
		return nil, fmt.Errorf("a value of a list contains %q: choose another separator", l.between)
	case len(text)-from > maxListText:
		return nil, fmt.Errorf("the values of a list take more than %d bytes", maxListText)
	}
	return text, nil
}

// Rows calls visit for each row, with its position in the block and one cell per chosen column. The cells are valid
// until visit returns. A missing value is an empty cell. In a Parquet file it is nil, and the cells of other values are not. Rows that a view has deleted are left out.
func (p *Block) Rows(visit func(row int, cells [][]byte) error) error {
	var visiting error
	err := arrowio.Guarded(func() error {
		return p.cells(func(row int, cells [][]byte) error {
			visiting = visit(row, cells)
			return visiting
		})
	})
	if visiting != nil {
		return visiting
	}
	return err
}

// reopen opens the file again and calls read with it. It returns an error if the file is
// not the one that was opened before, or was written to before read has finished.
func reopen(path string, was os.FileInfo, read func(f *os.File) error) error {
	f, err := files.Open(path, "a Parquet or Arrow file")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unchanged(path, was, f); err != nil {
		return err
	}
	if err := read(f); err != nil {
		if changed := unchanged(path, was, f); changed != nil { // the change explains the error of read
			return changed
		}
		return err
	}
	return unchanged(path, was, f)
}

var errChanged = errors.New("the file changed while it was read")

// unchanged returns an error if f is not the file that was opened, or has been written
// to.
func unchanged(path string, was os.FileInfo, f *os.File) error {
	is, err := f.Stat()
	if err == nil && (!os.SameFile(is, was) || is.Size() != was.Size() || !is.ModTime().Equal(was.ModTime())) {
		err = &fs.PathError{Op: "read", Path: path, Err: errChanged}
	}
	return err
}

// Digest returns the SHA-256 of the file, in hexadecimal, and its size in bytes. Like the
// reading of blocks, it fails if the file is not the one that was opened, or has been
// written to since.
func (t *File) Digest() (digest string, size int64, err error) {
	hash := sha256.New()
	err = reopen(t.path, t.info, func(f *os.File) error {
		size, err = io.Copy(hash, f)
		return err
	})
	return hex.EncodeToString(hash.Sum(nil)), size, err
}

// Close closes the file. Blocks that Next returned remain usable.
func (t *File) Close() {
	if p, ok := t.table.(*ipcTable); ok {
		p.TableReader.Close()
	}
	t.file.Close()
}

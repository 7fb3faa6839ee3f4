package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/dataset"
	"shaver/internal/data/rawtext"
)

// block is a run of consecutive whole rows of one input file, which is a text or a table.
// One goroutine parses a block, and stores the results in it.
type block struct {
	path  string
	row   uint64            // position of the first row, counted over all files
	rows  int               // number of rows
	where *place            // what the file's path says about its rows
	split int               // split of the file, if its rows are not drawn
	read  int64             // bytes of the file read so far
	text  rawtext.Block     // rows of a text
	table *columnfile.Block // rows of a table; nil for a text
	end   *dataset.File     // description of the file; set only in the block without rows that follows the file's last row
	done  chan struct{}     // receives a value when the block is parsed

	// Results of parsing.
	err    error     // error that ends the import
	train  int64     // rows of train, counted as in record.Train
	local  bool      // a row has ids that are not valid as global ids, in a block of encoded rows
	bad    badRows   // bad rows
	splits []columns // encoded rows by split, in the last scan
}

func (b *block) reset() {
	b.end, b.err, b.train, b.local = nil, nil, 0, false
	b.bad.reset()
	for k := range b.splits {
		b.splits[k].reset()
	}
}

// input reads the blocks of a file in order.
type input interface {
	next(b *block) error             // sets rows, read, and text or table; io.EOF after the last block
	describe() (dataset.File, error) // must be called after the last block
	place() *place
	close()
}

// textInput is a file of lines.
type textInput struct {
	source *rawtext.Source
	blocks *rawtext.Blocks
	name   string
	where  *place
}

func (in *textInput) place() *place { return in.where }

func (in *textInput) next(b *block) error {
	if err := in.blocks.Next(&b.text); err != nil {
		return err
	}
	b.rows, b.read = b.text.Rows, b.text.Read
	return nil
}

func (in *textInput) describe() (dataset.File, error) {
	digest, size, err := in.source.Digest()
	return dataset.File{File: in.name, SHA256: digest, Bytes: size}, err
}

func (in *textInput) close() { in.source.Close() }

// open opens an input file, and checks that it has the same columns as the earlier files.
func (r *importer) open(path string) (input, error) {
	if in := r.opened; in != nil && path == r.paths[0] { // a resumed import may start with a later file
		r.opened = nil
		return in, nil
	}
	if r.config.Format.tables {
		return r.openTable(path)
	}
	source, err := r.source(path)
	if err != nil {
		return nil, err
	}
	in := &textInput{source: source, name: filepath.Base(display(path))}
	if err := r.readHeader(in, path); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// readHeader reads the header of a text file, if it has one, and sets or checks the layout.
func (r *importer) readHeader(in *textInput, path string) error {
	f := r.config.Format
	var err error
	if in.blocks, err = rawtext.NewBlocks(in.source); err != nil {
		return err
	}
	names, separator := f.columns, byte('\t')
	if f.comma {
		separator = ','
	}
	if f.columns == nil || f.headed {
		line, err := in.blocks.Header()
		if err != nil {
			return err
		}
		h, err := rawtext.ReadHeader(line, f.encoded)
		if err == nil && f.encoded {
			err = r.checkHeader(h)
		}
		if err != nil {
			return in.source.Errorf(1, "%w", err)
		}
		if f.headed && !slices.Equal(h.Columns, f.columns) {
			return in.source.Errorf(1, "the header is %q, expected %q", h.Columns, f.columns)
		}
		if !h.Named {
			in.blocks.Unread()
		}
		names, separator = h.Columns, h.Separator
	}
	in.where, err = r.setLayout(names, separator, path)
	if err != nil && f.encoded && fault.IsUsage(err) {
		return fmt.Errorf("%s:1: %w", path, err)
	}
	if err != nil {
		return in.source.Errorf(1, "%w", err)
	}
	in.blocks.Quotes = in.where.quotes
	return nil
}

// setLayout derives the layout from the columns of the first file and of its folders. For
// later files it checks that the columns are the same. separator is that of a text, or 0.
func (r *importer) setLayout(names []string, separator byte, path string) (*place, error) {
	f, comma := r.config.Format, separator == ','
	where := &place{columns: len(names), separator: separator, quotes: comma && f.columns == nil && !f.encoded}
	if f.columns == nil && !f.encoded {
		given, err := r.folderColumns(path)
		if err != nil {
			return nil, err
		}
		names = where.add(names, given, r.counts())
	}
	if r.layout != nil {
		if comma != r.layout.comma && !f.encoded && slices.Equal(names, r.layout.names) {
			return nil, errors.New("the separator is not that of the earlier files")
		}
		if !slices.Equal(names, r.layout.names) {
			return nil, fmt.Errorf("the columns are %q, but the earlier files have %q: expected the same ones in the same order", names, r.layout.names)
		}
		return where, nil
	}
	f.comma = comma
	var err error
	if r.layout, err = f.layout(names); err != nil {
		return where, err
	}
	if f.encoded {
		if err := r.arrange(); err != nil {
			return where, err
		}
	}
	return where, r.setLists(separator)
}

// blockParser parses blocks. It is not safe for concurrent use.
type blockParser struct {
	parser  *rowParser
	records rawtext.Records
}

func (r *importer) newBlockParser() *blockParser {
	return &blockParser{parser: newRowParser(r.layout, r.counts())}
}

// parse calls visit with the position, the label and the values of each row. The position
// counts over all files. The values, and the numbers in c.parser, are valid until visit
// returns. Bad rows go to b.bad. A row is also bad if visit returns a badRow.
func (c *blockParser) parse(b *block, visit func(row uint64, label float32, values [][]byte) error) error {
	if b.table != nil {
		return c.parseTable(b, visit)
	}
	c.records.Separator, c.records.Quotes = b.where.separator, b.where.quotes
	c.records.Reset(&b.text)
	for row := b.row; ; row++ {
		cells, err := c.records.Next()
		if err == io.EOF {
			return nil
		}
		var label float32
		var values [][]byte
		if err == nil {
			label, values, err = c.parser.parse(cells, b.where, c.records.Odd)
		}
		if err == nil {
			if err = visit(row, label, values); err != nil && !isBad(err) {
				return err
			}
		}
		if err != nil {
			err = b.bad.reject(fault.Inputf("%s:%d: %w", b.path, c.records.Line, err), c.records.Lines)
		}
		if err != nil {
			return err
		}
	}
}

// source opens a text file or standard input.
func (r *importer) source(path string) (*rawtext.Source, error) {
	switch {
	case path != Stdin:
		return rawtext.Open(path)
	case r.spool == "":
		return rawtext.New(display(path), interruptible(r.ctx, r.config.Stdin))
	}
	file, err := files.Open(r.spool, "the copy of standard input")
	if err != nil {
		return nil, err
	}
	return rawtext.New(display(path), file)
}

// display returns the name of a file in messages.
func display(path string) string {
	if path == Stdin {
		return "stdin"
	}
	return path
}

// interruptible returns a reader of r that fails once ctx ends, even while r blocks.
func interruptible(ctx context.Context, r io.Reader) io.ReadCloser {
	out, in := io.Pipe()
	stop := context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	go func() { // ends at the end of r, or at the first write after out is closed
		defer stop()
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	return out
}

package ingest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"shaver/internal/arrowio"
	"shaver/internal/dataset"
	"shaver/internal/fault"
	"shaver/internal/rawtext"
)

// block is consecutive whole rows of one input file, of a text or of a table. One
// goroutine parses a block at a time, and leaves here what it found.
type block struct {
	path  string
	row   uint64 // position of the first row, over all files
	rows  int
	read  int64                // bytes of the file that were read by now
	text  rawtext.Block        // the rows of a text
	table *arrowio.ColumnBlock // the rows of a table; nil for a text
	end   *dataset.File        // after the last block of a file: the file. Then there are no rows
	done  chan struct{}

	// results
	err    error // ends the import
	train  int64 // see record
	bad    badRows
	splits []columns
}

func (b *block) reset() {
	b.end, b.err, b.train = nil, nil, 0
	b.bad.reset()
	for k := range b.splits {
		b.splits[k].reset()
	}
}

// input yields the blocks of a file in order. next sets rows, read, and text or table.
type input interface {
	next(b *block) error // io.EOF after the last one
	describe() (dataset.File, error)
	close()
}

// textInput is a file of lines.
type textInput struct {
	source *rawtext.Source
	blocks *rawtext.Blocks
	name   string
}

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

// open opens an input file, and checks that its columns are those of the files
// before.
func (r *rawImport) open(path string) (input, error) {
	if in := r.opened; in != nil && path == r.paths[0] { // an import that goes on begins with another
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
	if err := r.begin(in); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// begin reads a text file's header, if it has one, and sets r.layout.
func (r *rawImport) begin(in *textInput) error {
	f := r.config.Format
	var err error
	if in.blocks, err = rawtext.NewBlocks(in.source); err != nil {
		return err
	}
	names, comma := f.columns, f.comma
	if f.columns == nil || f.headed {
		line, err := in.blocks.Header()
		if err != nil {
			return err
		}
		h, err := readHeader(line, false)
		if err != nil {
			return in.source.Errorf(1, "%w", err)
		}
		if f.headed && !slices.Equal(h.columns, f.columns) {
			return in.source.Errorf(1, "the header is %q, expected %q", h.columns, f.columns)
		}
		names, comma = h.columns, h.separator == ','
	}
	if err := r.setLayout(names, comma); err != nil {
		return in.source.Errorf(1, "%w", err)
	}
	in.blocks.Quotes = f.columns == nil && comma
	return nil
}

func (r *rawImport) setLayout(names []string, comma bool) error {
	if r.layout != nil {
		if !slices.Equal(names, r.layout.names) || comma != r.layout.comma {
			return fmt.Errorf("the header %q is not that of the files before, %q", names, r.layout.names)
		}
		return nil
	}
	f := r.config.Format
	f.comma = comma
	l, err := f.layout(names)
	if err == nil {
		r.layout = l
	}
	return err
}

// blockParser parses blocks. It is for one goroutine.
type blockParser struct {
	parser  *rowParser
	records rawtext.Records
}

func (r *rawImport) newBlockParser() *blockParser {
	separator := byte('\t')
	if r.layout.comma {
		separator = ','
	}
	return &blockParser{parser: newRowParser(r.layout),
		records: rawtext.Records{Separator: separator, Quotes: r.layout.comma && r.layout.columns == nil}}
}

// parse calls visit with each row's position over all files, label and values,
// which are valid until it returns. It deals with bad rows.
func (c *blockParser) parse(b *block, visit func(row uint64, label uint8, values [][]byte) error) error {
	if b.table != nil {
		return c.parseTable(b, visit)
	}
	c.records.Reset(&b.text)
	for row := b.row; ; row++ {
		cells, err := c.records.Next()
		if err == io.EOF {
			return nil
		}
		var label uint8
		var values [][]byte
		if err == nil {
			label, values, err = c.parser.parse(cells, c.records.Odd)
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

// source opens a file of lines.
func (r *rawImport) source(path string) (*rawtext.Source, error) {
	switch {
	case path != Stdin:
		return rawtext.Open(path)
	case r.spool == "":
		return rawtext.New(display(path), interruptible(r.ctx, r.config.Stdin))
	}
	file, err := os.Open(r.spool)
	if err != nil {
		return nil, err
	}
	return rawtext.New(display(path), file)
}

// display is a file's name in messages.
func display(path string) string {
	if path == Stdin {
		return "stdin"
	}
	return path
}

// interruptible returns what r yields, until ctx ends.
func interruptible(ctx context.Context, r io.Reader) io.ReadCloser {
	out, in := io.Pipe()
	stop := context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	go func() { // ends with r, or at the first write after the reader's end
		defer stop()
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	return out
}

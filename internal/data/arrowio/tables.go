package arrowio

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"
)

// This file has what package columnfile needs to read the tables of other programs.

// TableReader reads the record batches of an Arrow file or stream that another program
// wrote. They pass the same checks as our own forms, but may have all flat types, lists of
// them, dictionaries and LZ4. A file's batches are read in the order of its footer, and a
// stream's from front to back.
type TableReader struct {
	messages *messages
	ipc      *ipc.Reader
	read     *counted
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// NewTableReader reads the schema of a file of the given size in bytes. memory bounds the
// bytes of a batch in memory.
func NewTableReader(file interface {
	io.Reader
	io.ReaderAt
}, size int64, memory int) (*TableReader, error) {
	footer, err := readFooter(file, size)
	if err != nil {
		return nil, err
	}
	read := &counted{Reader: file}
	m := &messages{r: bufio.NewReaderSize(read, 1<<18), footer: footer, compressed: true, foreign: true, allocator: &limited{limit: memory}}
	t := &TableReader{messages: m, read: read}
	return t, Guarded(func() error {
		if footer == nil {
			if err := m.start(); err != nil {
				return err
			}
		}
		var err error
		if t.ipc, err = ipc.NewReaderFromMessageReader(m, ipc.WithAllocator(m.allocator)); err != nil {
			if m.refused != nil {
				err = m.refused // without the library's words
			}
			if m.schema || footer != nil {
				return fmt.Errorf("as an Arrow file: %w", err)
			}
			return fmt.Errorf("neither Parquet nor Arrow: %w", err)
		}
		return nil
	})
}

// Schema returns the schema of the batches.
func (t *TableReader) Schema() *arrow.Schema { return t.ipc.Schema() }

// Next returns the next batch, which is valid until the next call, or io.EOF after the last
// one. The batch is not trusted: columns may have more or fewer values than it has rows. The
// caller calls Next, and uses the batch, in a function that it passes to Guarded.
func (t *TableReader) Next() (arrow.Record, error) {
	if t.ipc.Next() {
		return t.ipc.Record(), nil
	}
	if err := t.messages.refused; err != nil {
		return nil, err
	}
	if err := t.ipc.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// Position returns the approximate number of bytes read.
func (t *TableReader) Position() int64 {
	if f := t.messages.footer; f != nil {
		return f.start - f.left
	}
	return t.read.n
}

// Close releases the last batch. It does not close the file.
func (t *TableReader) Close() { t.ipc.Release() }

// Limited returns an allocator that panics if more than the given number of bytes are in use.
func Limited(bytes int) memory.Allocator { return &limited{limit: bytes} }

// extensionKey is the key in a column's metadata that names its extension type. The meaning
// of numbers in such a column is unknown. In pandas, for example, a period is a number that
// depends on a unit.
const extensionKey = "ARROW:extension:name"

func extensionName(name string) string { return fmt.Sprintf("the extension type %.100q", name) }

// ExtensionType returns the extension type of a column with this metadata, for errors. It is
// "" if the column has none.
func ExtensionType(metadata arrow.Metadata) string {
	at := metadata.FindKey(extensionKey)
	if at < 0 {
		return ""
	}
	return extensionName(metadata.Values()[at])
}

// HiddenTypes returns the columns whose numbers Parquet itself does not describe: durations,
// and numbers of extension types. text is the schema that Arrow's writers add to a Parquet
// file, as a message in base64. Malformed text can make HiddenTypes panic, so that it is called
// in a function that is passed to Guarded.
func HiddenTypes(text string) (map[string]string, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) < 8 {
		return nil, errors.New("the metadata ARROW:schema is not an Arrow schema in base64")
	}
	if binary.LittleEndian.Uint32(data) == math.MaxUint32 {
		data = data[4:]
	}
	data = data[4:]
	schema, ok := table(data, flatbuffers.GetUOffsetT(data)).tableAt(2)
	if !ok {
		return nil, errors.New("the metadata ARROW:schema has no schema")
	}
	hidden := map[string]string{}
	for i := range schema.lengthAt(1) {
		field, err := schema.elementAt(1, i)
		if err != nil {
			return nil, err
		}
		const integer, floating, duration = 2, 3, 18
		switch kind := field.byteAt(2); kind {
		case duration:
			hidden[field.textAt(0)] = "durations"
		case integer, floating:
			for k := range field.lengthAt(6) {
				pair, err := field.elementAt(6, k)
				if err != nil {
					return nil, err
				}
				if pair.textAt(0) == extensionKey {
					hidden[field.textAt(0)] = extensionName(pair.textAt(1))
				}
			}
		}
	}
	return hidden, nil
}

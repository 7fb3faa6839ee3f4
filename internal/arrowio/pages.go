package arrowio

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
)

// maxPage bounds a page of a Parquet file, in bytes; writers make them of 1 MiB.
const maxPage = 256 << 20

// pageStream is the pages of a column chunk for Parquet's library, which makes
// room for what a page's header claims: so it looks at the header before.
type pageStream struct {
	*bufio.Reader
	left int64 // bytes of the chunk that were not taken
}

// Peek is called where a page begins.
func (s *pageStream) Peek(n int) ([]byte, error) {
	view, err := s.Reader.Peek(int(min(int64(n), s.left, int64(s.Size()))))
	if err != nil && err != io.EOF {
		return view, err
	}
	rest := view
	for i, name := range []string{"type", "size", "compressed size"} {
		if len(view) == 0 {
			return view, nil // the chunk's end
		}
		if len(rest) == 0 || rest[0] != 0x15 { // the next field, an integer of 32 bits, in Thrift's compact form
			return nil, errors.New("a page's header is malformed")
		}
		value, n := binary.Varint(rest[1:])
		if n <= 0 || i > 0 && (value < 0 || value > maxPage) || i == 2 && value > s.left {
			return nil, fmt.Errorf("a page's %s is %d; %d bytes are left, and a page has at most %d", name, value, s.left, maxPage)
		}
		rest = rest[1+n:]
	}
	return view, nil
}

func (s *pageStream) Discard(n int) (int, error) {
	n, err := s.Reader.Discard(n)
	s.left -= int64(n)
	return n, err
}

func (s *pageStream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// chunk returns a reader of a column of a row group.
func (p *parquetTable) chunk(f *os.File, group, column int) (file.ColumnChunkReader, error) {
	meta, err := p.meta.RowGroup(group).ColumnChunk(column)
	if err != nil {
		return nil, err
	}
	start, size := meta.DataPageOffset(), meta.TotalCompressedSize()
	if at := meta.DictionaryPageOffset(); meta.HasDictionaryPage() && at > 0 && at < start {
		start = at
	}
	if start < 0 || size < 0 || start > p.size || size > p.size-start || meta.CryptoMetadata() != nil {
		return nil, fmt.Errorf("a column of %d bytes at %d is encrypted or outside the file", size, start)
	}
	stream := &pageStream{bufio.NewReaderSize(io.NewSectionReader(f, start, size), 1<<16), size}
	allocator := &limited{limit: tableMemory}
	pages, err := file.NewPageReader(stream, meta.NumValues(), meta.Compression(), allocator, nil)
	if err != nil {
		return nil, err
	}
	return file.NewColumnReader(p.meta.Schema.Column(column), pages, allocator, &sync.Pool{}), nil
}

var _ parquet.BufferedReader = (*pageStream)(nil)

package columnfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"

	"shaver/internal/data/arrowio"
)

// maxPage bounds a page of a Parquet file, in bytes. Writers usually make pages of 1 MiB.
const maxPage = 256 << 20

// pageStream feeds the pages of a column chunk to Parquet's library. The library
// allocates what a page's header claims, so pageStream checks the header first.
type pageStream struct {
	*bufio.Reader
	left   int64  // bytes of the chunk that are not read yet
	memory *int64 // bytes that all columns of the block may still take
	limit  int    // bytes that all columns of the block may take in total
	page   int64  // bytes taken from memory for the largest page
	dict   int64  // bytes taken from memory for the dictionary
}

// pageHeader holds the parts of a page's header that determine the memory of the page.
type pageHeader struct {
	dictionary       bool
	size, compressed int64
	values           int64 // number of values of a dictionary
}

// Peek is called at the beginning of a page, possibly several times for one page.
func (s *pageStream) Peek(n int) ([]byte, error) {
	view, err := s.peek(n)
	if err != nil || len(view) == 0 { // the end of the chunk
		return view, err
	}
	start, err := s.peek(64) // the library looks at only 16 bytes first
	if err != nil {
		return nil, err
	}
	h, err := parsePageHeader(start)
	if err != nil {
		return nil, err
	}
	if h.size > maxPage || h.compressed > min(maxPage, s.left) {
		return nil, fmt.Errorf("a page has %d bytes, %d compressed, but %d bytes are left and a page may have at most %d", h.size, h.compressed, s.left, maxPage)
	}
	need := &s.page
	bytes := h.size + 2*h.compressed // the buffer for the compressed bytes may grow to twice their size
	if h.dictionary {
		need = &s.dict
		bytes = h.size + h.values*sliceBytes // the dictionary stays in memory, and so do its values
		if h.values > h.size/4 {
			return nil, fmt.Errorf("a dictionary claims %d values in %d bytes", h.values, h.size)
		}
	}
	if more := bytes - *need; more > 0 {
		if more > *s.memory {
			return nil, fmt.Errorf("the pages of a row group need more than %d bytes at once: write smaller pages, or choose fewer columns", s.limit)
		}
		*s.memory -= more
		*need = bytes
	}
	return view, nil
}

// sliceBytes is the size of a parquet.ByteArray without its content, in bytes.
const sliceBytes = 24

// peek returns the next n bytes, or fewer at the end of the chunk.
func (s *pageStream) peek(n int) ([]byte, error) {
	view, err := s.Reader.Peek(int(min(int64(n), s.left, int64(s.Size()))))
	if err == io.EOF {
		err = nil
	}
	return view, err
}

var errPageHeader = errors.New("a page's header is malformed")

// parsePageHeader reads the beginning of a header in Thrift's compact form. The byte 0x15
// precedes an integer that is the next field, and 0xnc precedes a structure n fields
// further on.
func parsePageHeader(data []byte) (pageHeader, error) {
	var kind int64
	var h pageHeader
	integer := func(to *int64) bool {
		if len(data) == 0 || data[0] != 0x15 {
			return false
		}
		value, n := binary.Varint(data[1:])
		if n <= 0 || value < 0 || value > math.MaxInt32 {
			return false
		}
		*to, data = value, data[1+n:]
		return true
	}
	if !integer(&kind) || !integer(&h.size) || !integer(&h.compressed) {
		return h, errPageHeader
	}
	if h.dictionary = kind == 2; !h.dictionary {
		return h, nil
	}
	structure := byte(0x4c)
	if len(data) > 0 && data[0] == 0x15 { // a checksum, which may have any value
		_, n := binary.Varint(data[1:])
		if n <= 0 {
			return h, errPageHeader
		}
		structure, data = 0x3c, data[1+n:]
	}
	if len(data) == 0 || data[0] != structure {
		return h, errPageHeader
	}
	if data = data[1:]; !integer(&h.values) {
		return h, errPageHeader
	}
	return h, nil
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

// chunk returns a reader of a column of a row group, which has the given number of rows.
// The reader takes from memory what its pages need.
func (p *parquetTable) chunk(f *os.File, group, rows, column int, memory *int64) (file.ColumnChunkReader, error) {
	meta, err := p.meta.RowGroup(group).ColumnChunk(column)
	if err != nil {
		return nil, err
	}
	start, size := meta.DataPageOffset(), meta.TotalCompressedSize()
	if at := meta.DictionaryPageOffset(); meta.HasDictionaryPage() && at > 0 && at < start {
		start = at
	}
	if start < 0 || size < 0 || start > p.size || size > p.size-start || meta.CryptoMetadata() != nil {
		return nil, fmt.Errorf("a column of %d bytes at byte %d is encrypted or extends beyond the file", size, start)
	}
	if n := meta.NumValues(); n != int64(rows) && (n < int64(rows) || p.meta.Schema.Column(column).MaxRepetitionLevel() == 0) { // a missing value or an empty list counts too
		return nil, fmt.Errorf("row group %d has %d rows, but its column %q has %d values", group, rows, p.meta.Schema.Column(column).Path(), n)
	}
	name := p.meta.Schema.Column(column).Path()
	if _, err := compress.GetCodec(meta.Compression()); err != nil {
		return nil, fmt.Errorf("column %q is compressed with %v, which is not supported: use zstd or snappy", name, meta.Compression())
	}
	stream := &pageStream{Reader: bufio.NewReaderSize(io.NewSectionReader(f, start, size), 1<<16), left: size, memory: memory, limit: p.memory}
	allocator := arrowio.Limited(p.memory)
	pages, err := file.NewPageReader(stream, meta.NumValues(), meta.Compression(), allocator, nil)
	if err != nil {
		return nil, err
	}
	return file.NewColumnReader(p.meta.Schema.Column(column), pages, allocator, &sync.Pool{}), nil
}

var _ parquet.BufferedReader = (*pageStream)(nil)

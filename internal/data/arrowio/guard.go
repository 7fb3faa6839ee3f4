package arrowio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// messages stands between the bytes and Arrow's library, which trusts what it reads. The
// library allocates what a length claims. It follows a schema's references to any depth,
// even in a circle. It copies a string as often as it is referred to. It accepts any
// window size of a zstd frame. Therefore messages lets through only what our writers and
// other common writers produce for flat schemas.
type messages struct {
	r          io.Reader
	compressed bool // batches may be compressed
	foreign    bool // the file is a user's table: other flat types, dictionaries and LZ4 are allowed, and batches are not reused
	allocator  *limited
	file       bool          // Arrow's file format; false = the stream format
	footer     *footer       // locates the messages of a foreign file; nil for all other data
	schema     bool          // the schema has been read
	views      int           // number of view columns in a batch, by the schema
	viewsOf    map[int64]int // number of view columns in the batches of the dictionary with this id, by the schema
	described  bool          // meta belongs to the next message
	done       bool
	failure    error  // error of r, other than the end of its bytes
	refused    error  // first error of Message
	head       []byte // first bytes of a stream, read already
	meta, body []byte
	current    *ipc.Message
}

// MaxColumns is the largest number of columns of a file that is read.
const MaxColumns = 1 << 14

const (
	maxMeta   = maxFooter       // bytes of a message's description, which the footer of a file has again
	maxWindow = 8 << 20         // largest zstd window in bytes, which the format asks every decoder to support
	slack     = 64 * MaxColumns // bytes that Arrow's library may add to a batch by rounding
	magic     = "ARROW1\x00\x00"
)

// ErrTruncated says that bytes are missing at the end of the data.
var ErrTruncated = errors.New("the data end too early")

// limited is an allocator that panics if more than limit bytes are in use.
type limited struct {
	limit, used int
}

func (l *limited) take(n int) {
	if n < 0 || n > l.limit-l.used {
		panic(fmt.Sprintf("a batch needs more than %d bytes", l.limit))
	}
	l.used += n
}

func (l *limited) Allocate(n int) []byte {
	l.take(n)
	return memory.DefaultAllocator.Allocate(n)
}

func (l *limited) Reallocate(n int, b []byte) []byte {
	l.used -= len(b)
	l.take(n)
	return memory.DefaultAllocator.Reallocate(n, b)
}

func (l *limited) Free(b []byte) { l.used -= len(b) }

// Retain is part of ipc.MessageReader.
func (m *messages) Retain() {}

// Release is part of ipc.MessageReader. It frees nothing, because the buffers are Go's.
func (m *messages) Release() {}

// start distinguishes the file format from the stream format by the first bytes.
func (m *messages) start() error {
	head := make([]byte, len(magic))
	n, err := io.ReadFull(m.r, head)
	if err != nil {
		return m.failed(err)
	}
	m.file = string(head) == magic
	if !m.file {
		m.head = head[:n]
	}
	return nil
}

// failed turns the end of the bytes into ErrTruncated, and records any other error of the
// underlying reader.
func (m *messages) failed(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return ErrTruncated
	}
	m.failure = err
	return err
}

func (m *messages) read(p []byte) error {
	n := copy(p, m.head)
	m.head = m.head[n:]
	if _, err := io.ReadFull(m.r, p[n:]); err != nil {
		return m.failed(err)
	}
	return nil
}

// held is a reader of bytes in memory, which messages need not copy.
type held struct{ data []byte }

func (h *held) Read(p []byte) (int, error) {
	if len(h.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, h.data)
	h.data = h.data[n:]
	return n, nil
}

// readGrowing reads n bytes into buffer, which grows only as bytes arrive. From a held
// reader it returns the bytes without a copy.
func (m *messages) readGrowing(buffer []byte, n int64) ([]byte, error) {
	if h, ok := m.r.(*held); ok && len(m.head) == 0 {
		if n > int64(len(h.data)) {
			return nil, ErrTruncated
		}
		buffer, h.data = h.data[:n:n], h.data[n:]
		return buffer, nil
	}
	const step = 1 << 20
	buffer = buffer[:0]
	for left := n; left > 0; {
		part := int(min(left, max(step, int64(cap(buffer)-len(buffer)), int64(len(buffer)))))
		start := len(buffer)
		if start+part > cap(buffer) {
			grown := make([]byte, start, start+part)
			copy(grown, buffer)
			buffer = grown
		}
		buffer = buffer[:start+part]
		if err := m.read(buffer[start:]); err != nil {
			return nil, err
		}
		left -= int64(part)
	}
	return buffer, nil
}

// Message returns the next message. After the end-of-stream marker, and after checking
// what follows the marker, it returns io.EOF. The message is valid until the next call.
func (m *messages) Message() (*ipc.Message, error) {
	message, err := m.next()
	if err != nil && err != io.EOF && m.refused == nil {
		m.refused = err
	}
	return message, err
}

func (m *messages) next() (*ipc.Message, error) {
	if err := m.describe(); err != nil {
		return nil, err
	}
	m.described = false
	return m.checked()
}

// describe reads the next message's description, unless it has been read.
func (m *messages) describe() error {
	if m.done {
		return io.EOF
	}
	if m.described {
		return nil
	}
	if f := m.footer; f != nil {
		if !m.schema {
			m.meta, m.body, m.described = f.schema, nil, true
			return nil
		}
		if len(f.messages) == 0 {
			m.done = true
			return io.EOF
		}
		m.r, f.messages = f.at(f.messages[0]), f.messages[1:]
	}
	var word [4]byte
	if err := m.read(word[:]); err != nil {
		return err
	}
	length := binary.LittleEndian.Uint32(word[:])
	if length == math.MaxUint32 {
		if err := m.read(word[:]); err != nil {
			return err
		}
		length = binary.LittleEndian.Uint32(word[:])
	} else if !m.foreign || length > maxMeta { // Arrow before 0.15 wrote the length alone
		return errors.New("expected the start of an Arrow message")
	}
	if length == 0 && m.footer != nil {
		return ErrTruncated
	}
	if length == 0 {
		m.done = true
		return m.end()
	}
	if length > maxMeta {
		return fmt.Errorf("a message's description has %d bytes, expected at most %d", length, maxMeta)
	}
	if m.foreign {
		m.meta, m.body = nil, nil
	}
	var err error
	m.meta, err = m.readGrowing(m.meta, int64(length))
	m.described = err == nil
	return err
}

// checked reads the body and checks the description and the body.
func (m *messages) checked() (*ipc.Message, error) {
	root := table(m.meta, flatbuffers.GetUOffsetT(m.meta))
	kind := ipc.MessageType(root.byteAt(1))
	bodyLength := root.int64At(3)
	if bodyLength < 0 {
		return nil, fmt.Errorf("a message's body has length %d", bodyLength)
	}
	var err error
	if m.body, err = m.readGrowing(m.body, bodyLength); err != nil {
		return nil, err
	}
	if f := m.footer; f != nil && m.schema {
		if f.left -= int64(len(m.meta)) + bodyLength; f.left < 0 {
			return nil, errors.New("the footer refers to some bytes more than once")
		}
	}
	header, ok := root.tableAt(2)
	switch {
	case !ok:
		err = errors.New("a message without header")
	case !m.schema && kind == ipc.MessageSchema:
		m.schema = true
		if err = checkSchema(header, len(m.meta), m.foreign); err == nil {
			m.views, m.viewsOf, err = views(header)
		}
	case m.schema && kind == ipc.MessageRecordBatch:
		err = m.checkBatch(header, m.views)
	case m.schema && m.foreign && kind == ipc.MessageDictionaryBatch:
		if batch, ok := header.tableAt(1); ok {
			err = m.checkBatch(batch, m.viewsOf[header.int64At(0)])
		}
	default:
		err = fmt.Errorf("unexpected message of type %v", kind)
	}
	if err != nil {
		return nil, err
	}
	m.current = ipc.NewMessage(memory.NewBufferBytes(m.meta), memory.NewBufferBytes(m.body))
	return m.current, nil
}

// end checks what follows the last message. In the stream format nothing may follow. In
// the file format a footer follows, whose content is not needed, and then the magic
// bytes.
func (m *messages) end() error {
	var tail []byte
	total := 0
	chunk := make([]byte, 4096)
	for {
		n, err := m.r.Read(chunk)
		total += n
		tail = append(tail, chunk[:n]...)
		tail = tail[max(0, len(tail)-6):]
		if err == io.EOF {
			break
		}
		if err != nil {
			return m.failed(err)
		}
	}
	switch {
	case !m.file && total > 0:
		return errors.New("expected no bytes after the end of the stream")
	case m.file && string(tail) != magic[:6]:
		return ErrTruncated
	}
	return io.EOF
}

// checkSchema accepts schemas with at most one level of nesting and with the types of our forms. A
// foreign schema may have lists of values, and any other types that are flat. length is the length
// of the message in bytes.
func checkSchema(schema flat, length int, foreign bool) error {
	if schema.int16At(0) != 0 {
		return errors.New("the data are big-endian, expected little-endian")
	}
	text, columns := 0, schema.lengthAt(1)
	if columns > MaxColumns {
		return fmt.Errorf("the schema has %d columns, expected at most %d", columns, MaxColumns)
	}
	for i := range columns {
		field, err := schema.elementAt(1, i)
		if err != nil {
			return err
		}
		children := field.lengthAt(5)
		list := field.byteAt(2)
		switch {
		case list == 17: // Map
			return fmt.Errorf("column %d (%.40q) has maps: make each key that you need a column, or leave the column out when you write the file", i, field.textAt(0))
		case list == 22: // RunEndEncoded
			return fmt.Errorf("column %d (%.40q) is run-end encoded: write the file with plain values or as a dictionary (in pyarrow: pyarrow.compute.run_end_decode)", i, field.textAt(0))
		case children > 1 || children > 0 && foreign && list != 12 && list != 16 && list != 21: // List, FixedSizeList, LargeList
			return fmt.Errorf("column %d (%.40q) is nested: expected one value per row", i, field.textAt(0))
		}
		if kind, ok := field.tableAt(3); ok && field.byteAt(2) == 2 && kind.GetInt32Slot(slot(0), 0) > 64 { // Int
			return fmt.Errorf("column %d (%.40q) has integers of %d bits, expected at most 64", i, field.textAt(0), kind.GetInt32Slot(slot(0), 0))
		}
		if children == 1 {
			child, err := field.elementAt(5, 0)
			if err != nil {
				return err
			}
			if foreign && child.lengthAt(5) != 0 {
				return fmt.Errorf("column %d (%.40q) is nested: expected one value or one list per row", i, field.textAt(0))
			}
			if child.lengthAt(5) != 0 || !foreign && !child.plain() {
				return fmt.Errorf("column %d is of an unexpected type", i)
			}
			if kind, ok := child.tableAt(3); ok && child.byteAt(2) == 2 && kind.GetInt32Slot(slot(0), 0) > 64 { // Int
				return fmt.Errorf("column %d (%.40q) has integers of %d bits, expected at most 64", i, field.textAt(0), kind.GetInt32Slot(slot(0), 0))
			}
			text += child.lengthAt(0)
			for k := range child.lengthAt(6) {
				pair, err := child.elementAt(6, k)
				if err != nil {
					return err
				}
				text += pair.lengthAt(0) + pair.lengthAt(1)
			}
		}
		if !foreign && !field.plain() {
			return fmt.Errorf("column %d is of an unexpected type", i)
		}
		text += field.lengthAt(0)
		for k := range field.lengthAt(6) {
			pair, err := field.elementAt(6, k)
			if err != nil {
				return err
			}
			text += pair.lengthAt(0) + pair.lengthAt(1)
		}
	}
	for i := range schema.lengthAt(2) {
		pair, err := schema.elementAt(2, i)
		if err != nil {
			return err
		}
		text += pair.lengthAt(0) + pair.lengthAt(1)
	}
	if text > length {
		return fmt.Errorf("the schema's names and metadata claim %d bytes, but the message has %d", text, length)
	}
	return nil
}

// plain reports whether a field has one of the types of our forms, without a dictionary
// or metadata.
func (f flat) plain() bool {
	switch f.byteAt(2) {
	case 2, 3, 4, 5, 12, 16: // Int, FloatingPoint, Binary, Utf8, List, FixedSizeList
		return f.Offset(slot(4)) == 0 && f.lengthAt(6) == 0
	}
	return false
}

// checkBatch checks the size and the compression of a record batch with a number of view columns.
func (m *messages) checkBatch(batch flat, views int) error {
	if rows := batch.int64At(0); rows < 0 || rows > math.MaxInt32 {
		return fmt.Errorf("a batch has %d rows", rows)
	}
	if err := checkVariadic(batch, views); err != nil {
		return err
	}
	compression, ok := batch.tableAt(3)
	if !ok {
		if !m.compressed {
			m.allocator.limit = m.allocator.used + len(m.body) + slack // an uncompressed batch cannot grow
		}
		return nil
	}
	if !m.compressed {
		return errors.New("a batch is compressed, expected no compression")
	}
	codec := compression.byteAt(0)
	if codec == 0 && m.foreign {
		return nil // LZ4 has only small blocks
	}
	if codec != 1 {
		return fmt.Errorf("a batch is compressed with codec %d, expected 1 (zstd)", codec)
	}
	vector := batch.Offset(slot(2))
	if vector == 0 {
		return nil
	}
	start := batch.Vector(flatbuffers.UOffsetT(vector))
	for i := range batch.VectorLen(flatbuffers.UOffsetT(vector)) {
		at := start + flatbuffers.UOffsetT(i)*16
		offset, length := batch.GetInt64(at), batch.GetInt64(at+8)
		if length == 0 {
			continue
		}
		if offset < 0 || length < 8 || offset > int64(len(m.body)) || length > int64(len(m.body))-offset {
			return fmt.Errorf("buffer %d of a batch extends beyond the batch", i)
		}
		if err := checkFrame(m.body[offset : offset+length]); err != nil {
			return fmt.Errorf("buffer %d of a batch: %w", i, err)
		}
	}
	return nil
}

// checkFrame accepts a buffer that is a single zstd frame with a window of at most
// maxWindow.
func checkFrame(buffer []byte) error {
	size, frame := int64(binary.LittleEndian.Uint64(buffer)), buffer[8:]
	if size == -1 {
		return nil // the buffer is not compressed
	}
	var header zstd.Header
	if err := header.Decode(frame); err != nil {
		return err
	}
	window := header.WindowSize
	if header.SingleSegment {
		window = header.FrameContentSize
	}
	if header.Skippable || header.DictionaryID != 0 || window > maxWindow {
		return fmt.Errorf("unsupported zstd frame (window of %d bytes)", window)
	}
	rest := frame[header.HeaderSize:]
	for last := false; !last; {
		if len(rest) < 3 {
			return ErrTruncated
		}
		block := uint32(rest[0]) | uint32(rest[1])<<8 | uint32(rest[2])<<16
		last = block&1 == 1
		length := int(block >> 3)
		if block>>1&3 == 1 {
			length = 1 // a run is stored as a single byte
		}
		if len(rest) < 3+length {
			return ErrTruncated
		}
		rest = rest[3+length:]
	}
	if header.HasCheckSum && len(rest) >= 4 {
		rest = rest[4:]
	}
	if len(bytes.TrimRight(rest, "\x00")) > 0 {
		return errors.New("bytes after the zstd frame")
	}
	return nil
}

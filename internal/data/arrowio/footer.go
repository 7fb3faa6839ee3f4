package arrowio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"

	"shaver/internal/base/fault"
)

// footer is the content of the footer of a user's Arrow file. It locates the messages,
// because what lies between them differs between writers. Polars, for example, writes the
// schema at the front without the prefix of a message.
type footer struct {
	file     io.ReaderAt
	start    int64   // position of the footer in the file
	left     int64   // bytes of messages that may still be read, so that no footer makes a short file long
	schema   []byte  // the description of a message with the schema
	messages []int64 // positions of the messages, dictionaries first
}

// maxFooter bounds a footer, in bytes. The footer takes 24 bytes for each batch.
const maxFooter = 64 << 20

// readFooter returns the footer of an Arrow file of the given size in bytes, or nil if f is
// not an Arrow file.
func readFooter(f io.ReaderAt, size int64) (*footer, error) {
	var head [8]byte
	if n, err := f.ReadAt(head[:], 0); n < len(head) || string(head[:6]) != magic[:6] {
		if err == io.EOF || err == nil {
			return nil, nil
		}
		return nil, err
	}
	var tail [10]byte
	if size < int64(len(tail)) {
		return nil, fault.Inputf("%w", ErrTruncated)
	}
	if _, err := f.ReadAt(tail[:], size-int64(len(tail))); err == io.EOF {
		return nil, fault.Inputf("%w", ErrTruncated)
	} else if err != nil {
		return nil, err
	}
	length := int64(binary.LittleEndian.Uint32(tail[:]))
	start := size - int64(len(tail)) - length
	if string(tail[4:]) != magic[:6] || start < int64(len(magic)) {
		return nil, fault.Inputf("%w", ErrTruncated)
	}
	if length > maxFooter {
		return nil, fault.Inputf("the footer has %d bytes, expected at most %d", length, maxFooter)
	}
	data := make([]byte, length)
	if _, err := f.ReadAt(data, start); err != nil {
		return nil, err
	}
	out := &footer{file: f, start: start, left: start}
	return out, Guarded(func() error { return out.parse(data) })
}

// parse reads the table Footer: version, schema, dictionaries, batches.
func (f *footer) parse(data []byte) error {
	root := table(data, flatbuffers.GetUOffsetT(data))
	schema, ok := root.tableAt(1)
	if !ok {
		return errors.New("the footer has no schema")
	}
	f.schema = schemaMessage(data, schema.Pos)
	for slot := 2; slot <= 3; slot++ {
		if err := f.locate(root, slot); err != nil {
			return err
		}
	}
	return nil
}

// locate adds the messages of a vector of blocks. A block is a structure of 24 bytes that
// begins with the position of a message.
func (f *footer) locate(root flat, i int) error {
	const size = 24
	n := root.lengthAt(i)
	if n == 0 {
		return nil
	}
	start := int64(root.Vector(flatbuffers.UOffsetT(root.Offset(slot(i)))))
	if start+int64(n)*size > int64(len(root.Bytes)) {
		return errors.New("a vector extends beyond the footer")
	}
	for k := range n {
		at := root.GetInt64(flatbuffers.UOffsetT(start + int64(k)*size))
		if at < int64(len(magic)) || at >= f.start {
			return fmt.Errorf("the footer refers to a message at byte %d, which is outside the file", at)
		}
		f.messages = append(f.messages, at)
	}
	return nil
}

// at returns a reader of the messages that begin at a position.
func (f *footer) at(position int64) io.Reader {
	return io.NewSectionReader(f.file, position, f.start-position)
}

// schemaMessage returns the description of a message whose header is the schema at the
// given position of data. All positions in FlatBuffers are relative, so the description is
// a table Message in front of data. The table has the slots version, header type and header.
func schemaMessage(data []byte, schema flatbuffers.UOffsetT) []byte {
	const vtable, object, header, size = 4, 16, 24, 32
	out := make([]byte, size, size+len(data))
	put16 := func(at int, x uint16) { binary.LittleEndian.PutUint16(out[at:], x) }
	put32 := func(at int, x uint32) { binary.LittleEndian.PutUint32(out[at:], x) }
	put32(0, object)
	put16(vtable, 10)            // size of the vtable
	put16(vtable+2, 12)          // size of the table
	put16(vtable+4, 4)           // position of the version in the table
	put16(vtable+6, 6)           // position of the header's type
	put16(vtable+8, 8)           // position of the header
	put32(object, object-vtable) // distance to the vtable
	put16(object+4, uint16(ipc.MetadataV5))
	out[object+6] = byte(ipc.MessageSchema)
	put32(header, uint32(min(int64(size)+int64(schema)-header, math.MaxUint32)))
	return append(out, data...)
}

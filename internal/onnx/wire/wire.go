package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"shaver/internal/base/fault"
)

const (
	maxName        = 4 << 10  // bytes of a name
	maxText        = 64 << 10 // bytes of a string attribute
	maxMetadata    = 4 << 20  // bytes of a value of the metadata
	maxDescription = 64 << 20 // bytes of memory for everything except tensors
)

// meter counts the memory that the description of a model takes.
type meter struct{ used int64 }

// take adds n bytes, and fails if the sum exceeds maxDescription. Callers call it before
// they allocate.
func (m *meter) take(n int) error {
	if m.used += int64(n); m.used > maxDescription {
		return fault.Inputf("the graph takes more than %d MiB of memory without its tensors, expected a click model", maxDescription>>20)
	}
	return nil
}

// reader reads protobuf messages from a file through a small window.
type reader struct {
	source io.ReaderAt
	size   int64
	meter  meter

	open *message // innermost message that is being read; nil = the file

	window []byte
	start  int64 // position of window in the file
	buffer []byte
}

// field is a field of a message.
type field struct {
	kind    protowire.Type
	number  uint64 // value of a field that is not a message, string or array
	tag     int64  // position in the file of the field
	length  int64  // position in the file of the number, or of the length of a message, string or array
	at, end int64  // position in the file of the bytes of a message, string or array; at the end of another field
}

// message is the position of a message in the file.
type message struct {
	tag, length, at, end int64    // as those of field
	outer                *message // message that contains it; nil = the file
}

// peek returns bytes of the file from at up to end, as many as the window holds. It returns
// at least binary.MaxVarintLen64 bytes, or all if there are fewer.
func (r *reader) peek(at, end int64) ([]byte, error) {
	need := min(binary.MaxVarintLen64, end-at)
	if at < r.start || at+need > r.start+int64(len(r.window)) {
		if r.buffer == nil {
			r.buffer = make([]byte, chunk)
		}
		n, err := r.source.ReadAt(r.buffer[:min(chunk, r.size-at)], at)
		if int64(n) < need {
			return nil, cutShort(err)
		}
		r.window, r.start = r.buffer[:n], at
	}
	from := at - r.start
	return r.window[from:min(int64(len(r.window)), end-r.start)], nil
}

// fields calls f for each field of the message from at to end.
func (r *reader) fields(at, end int64, f func(number protowire.Number, v field) error) error {
	for at < end {
		b, err := r.peek(at, end)
		if err != nil {
			return err
		}
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fault.Inputf("byte %d: %w", at, protowire.ParseError(n))
		}
		v := field{kind: kind, tag: at}
		at += int64(n)
		v.length = at
		switch kind {
		case protowire.VarintType, protowire.BytesType, protowire.Fixed32Type, protowire.Fixed64Type:
		default:
			return fault.Inputf("byte %d: field %d has wire type %d, which ONNX does not use", at, number, kind)
		}
		if at == end {
			return fault.Inputf("byte %d: field %d has no value: the file is cut short", at, number)
		}
		if b, err = r.peek(at, end); err != nil {
			return err
		}
		switch kind {
		case protowire.VarintType, protowire.BytesType:
			v.number, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var bits uint32
			bits, n = protowire.ConsumeFixed32(b)
			v.number = uint64(bits)
		case protowire.Fixed64Type:
			v.number, n = protowire.ConsumeFixed64(b)
		}
		if n < 0 {
			return fault.Inputf("byte %d: field %d: %w", at, number, protowire.ParseError(n))
		}
		at += int64(n)
		v.at, v.end = at, at
		if kind == protowire.BytesType {
			if v.number > uint64(end-at) {
				return fault.Inputf("byte %d: field %d claims %d bytes, but %d follow: the file is cut short or damaged", at, number, v.number, end-at)
			}
			v.end = at + int64(v.number)
			at = v.end
		}
		if err := f(number, v); err != nil {
			return err
		}
	}
	return nil
}

// message calls f for each field of the message v.
func (r *reader) message(v field, f func(number protowire.Number, v field) error) error {
	if v.kind != protowire.BytesType {
		return fault.Inputf("a message has wire type %d, expected %d", v.kind, protowire.BytesType)
	}
	outer := r.open
	r.open = &message{v.tag, v.length, v.at, v.end, outer}
	err := r.fields(v.at, v.end, f)
	r.open = outer
	return err
}

// text returns the string v. It fails if v has more than most bytes.
func (r *reader) text(v field, most int64) (string, error) {
	if v.kind != protowire.BytesType {
		return "", fault.Inputf("a string has wire type %d, expected %d", v.kind, protowire.BytesType)
	}
	size := v.end - v.at
	if size > most {
		return "", fault.Inputf("byte %d: a string has %d bytes, expected at most %d", v.at, size, most)
	}
	if size == 0 {
		return "", nil
	}
	if err := r.meter.take(int(size) + 16); err != nil {
		return "", err
	}
	b, err := r.bytes(v)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", fault.Inputf("byte %d: a string is not UTF-8", v.at)
	}
	return string(b), nil
}

// bytes reads the bytes of a string or an array. The caller has checked how many they are.
func (r *reader) bytes(v field) ([]byte, error) {
	b := make([]byte, v.end-v.at)
	if n, err := r.source.ReadAt(b, v.at); n < len(b) {
		return nil, cutShort(err)
	}
	return b, nil
}

// cutShort returns the error for a file that gave fewer bytes than its size, where err is
// what ReadAt returned.
func cutShort(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return fault.Inputf("the file was cut short while it was read")
	}
	return err
}

// name reads a name into s.
func (r *reader) name(v field, s *string) (err error) {
	*s, err = r.text(v, maxName)
	return err
}

// names appends a name to list.
func (r *reader) names(v field, list *[]string) error {
	if err := r.meter.take(2 * 16); err != nil {
		return err
	}
	var s string
	if err := r.name(v, &s); err != nil {
		return err
	}
	*list = append(*list, s)
	return nil
}

// integer reads a whole number into n.
func integer[T int | int64 | Type | Kind](v field, n *T) error {
	if v.kind != protowire.VarintType {
		return fault.Inputf("a whole number has wire type %d, expected %d", v.kind, protowire.VarintType)
	}
	*n = T(v.number)
	if int64(*n) != int64(v.number) {
		return fault.Inputf("the number %d is out of range", int64(v.number))
	}
	return nil
}

// integers appends a whole number or a packed array of whole numbers to list.
func (r *reader) integers(v field, list *[]int64) error {
	if v.kind != protowire.BytesType {
		if err := r.meter.take(2 * 8); err != nil {
			return err
		}
		var n int64
		if err := integer(v, &n); err != nil {
			return err
		}
		*list = append(*list, n)
		return nil
	}
	for at := v.at; at < v.end; {
		b, err := r.peek(at, v.end)
		if err != nil {
			return err
		}
		n, length := protowire.ConsumeVarint(b)
		if length < 0 {
			return fault.Inputf("byte %d: %w", at, protowire.ParseError(length))
		}
		at += int64(length)
		if err := r.meter.take(2 * 8); err != nil {
			return err
		}
		*list = append(*list, int64(n))
	}
	return nil
}

// floats appends a float32 or a packed array of float32 to list.
func (r *reader) floats(v field, list *[]float32) error {
	if v.kind == protowire.Fixed32Type {
		if err := r.meter.take(2 * 4); err != nil {
			return err
		}
		*list = append(*list, math.Float32frombits(uint32(v.number)))
		return nil
	}
	if v.kind != protowire.BytesType || (v.end-v.at)%4 != 0 {
		return fault.Inputf("an array of float32 has wire type %d and %d bytes, expected packed or single float32", v.kind, v.end-v.at)
	}
	if v.end-v.at > maxDescription {
		return fault.Inputf("an array of float32 has %d bytes, expected at most %d", v.end-v.at, maxDescription)
	}
	if err := r.meter.take(2 * int(v.end-v.at)); err != nil {
		return err
	}
	b, err := r.bytes(v)
	if err != nil {
		return err
	}
	for ; len(b) > 0; b = b[4:] {
		*list = append(*list, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return nil
}

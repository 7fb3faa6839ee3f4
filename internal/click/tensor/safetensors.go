package tensor

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/base/seal"
)

// MaxHeader bounds the header of a safetensors file in bytes, as the reference
// implementation does.
const MaxHeader = 100 << 20

// Entry is a tensor with its key.
type Entry struct {
	Key string
	Tensor
}

// header describes one tensor in the JSON header.
type header struct {
	DType   *DType `json:"dtype"`
	Shape   *[]int `json:"shape"`
	Offsets *[]int `json:"data_offsets"`
}

// Parse returns the tensors of a safetensors file, in the header's order, and the metadata. name stands for the file in errors. The
// tensors share data's memory. Like the reference implementation it refuses gaps,
// overlaps and bytes that belong to no tensor.
func Parse(name string, data []byte) ([]Entry, map[string]string, error) {
	if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(min(len(data)-8, MaxHeader)) {
		return nil, nil, fault.Inputf("%s is not a whole safetensors file", name)
	}
	head := 8 + binary.LittleEndian.Uint64(data)
	body := data[head:]
	entries, places, metadata, err := Placed(name, data[8:head], int64(len(body)))
	if err != nil {
		return nil, nil, err
	}
	for i, place := range places {
		entries[i].Data = body[place[0]:place[1]:place[1]]
	}
	return entries, metadata, nil
}

// Metadata returns the metadata of the safetensors file at path. It reads only the header.
func Metadata(path string) (map[string]string, error) {
	f, err := files.Open(path, "a safetensors file")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	text, err := ReadHeader(path, f, info.Size())
	if err != nil {
		return nil, err
	}
	_, _, metadata, err := ParseHeader(text)
	return metadata, err
}

// ReadHeader returns the text of the header of a file of the given size, which r reads from its first byte. It reads no more of r. name
// stands for the file in errors.
func ReadHeader(name string, r io.Reader, size int64) ([]byte, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil && size >= 8 {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	length := binary.LittleEndian.Uint64(head)
	if size < 8 || length > uint64(min(size-8, MaxHeader)) {
		return nil, fault.Inputf("%s is not a whole safetensors file", name)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return text, nil
}

// Placed parses the header of a file whose tensors have size bytes in all. places[i] holds tensor
// i's first byte and the byte after its last one. It reads no tensor, so a reader can refuse a
// large file before it allocates memory for it.
func Placed(name string, text []byte, size int64) (entries []Entry, places [][2]int, metadata map[string]string, err error) {
	refuse := func(format string, args ...any) ([]Entry, [][2]int, map[string]string, error) {
		return nil, nil, nil, fault.Inputf("%s"+format, append([]any{name}, args...)...)
	}
	if entries, places, metadata, err = ParseHeader(text); err != nil {
		return refuse(": safetensors header: %w", err)
	}
	order := make([]int, len(entries))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(places[a][0], places[b][0]), cmp.Compare(places[a][1], places[b][1]))
	})
	end := 0
	for _, i := range order {
		e, place := entries[i], places[i]
		n, ok := Count(e.Shape)
		switch {
		case e.DType.Size() == 0:
			return refuse(": tensor %s has the unsupported type %s", e.Key, Quote(string(e.DType)))
		case !ok || place[1]-place[0] != n*e.DType.Size():
			return refuse(": tensor %s has shape %s and type %s, but %d bytes", e.Key, ShapeText(e.Shape), e.DType, place[1]-place[0])
		case place[0] != end:
			return refuse(": tensor %s starts at byte %d, expected %d, because tensors follow each other without gaps", e.Key, place[0], end)
		case int64(place[1]) > size:
			return refuse(": tensor %s ends at byte %d of %d: the file is cut short", e.Key, place[1], size)
		}
		end = place[1]
	}
	if int64(end) != size {
		return refuse(" has %d bytes after its last tensor", size-int64(end))
	}
	return entries, places, metadata, nil
}

// ParseHeader returns the tensors without their data. places[i] holds tensor i's first
// byte and the byte after its last one, not yet checked.
func ParseHeader(text []byte) (entries []Entry, places [][2]int, metadata map[string]string, err error) {
	if !utf8.Valid(text) {
		return nil, nil, nil, fmt.Errorf("is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, nil, nil, fmt.Errorf("is not a JSON object")
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		key, _ := token.(string)
		if err != nil {
			return nil, nil, nil, err
		}
		if seen[key] {
			return nil, nil, nil, fmt.Errorf("has the key %s twice", Quote(key))
		}
		seen[key] = true
		if key == MetadataKey {
			if err := decoder.Decode(&metadata); err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w", MetadataKey, err)
			}
			continue
		}
		var h header
		if err := decoder.Decode(&h); err != nil {
			return nil, nil, nil, fmt.Errorf("tensor %s: %w", Quote(key), err)
		}
		if h.DType == nil || h.Shape == nil || h.Offsets == nil || len(*h.Offsets) != 2 {
			return nil, nil, nil, fmt.Errorf("tensor %s lacks dtype, shape or two data_offsets", Quote(key))
		}
		if err := CheckKey(key); err != nil {
			return nil, nil, nil, err
		}
		offsets := *h.Offsets
		if offsets[0] < 0 || offsets[1] < offsets[0] {
			return nil, nil, nil, fmt.Errorf("tensor %s has invalid data_offsets %s", Quote(key), ShapeText(offsets))
		}
		entries = append(entries, Entry{key, Tensor{DType: *h.DType, Shape: *h.Shape}})
		places = append(places, [2]int(offsets))
	}
	if _, err := decoder.Token(); err != nil {
		return nil, nil, nil, fmt.Errorf("is cut short: %w", err)
	}
	if rest := bytes.TrimSpace(text[decoder.InputOffset():]); len(rest) > 0 {
		return nil, nil, nil, fmt.Errorf("has %d bytes after its JSON object", len(rest))
	}
	return entries, places, metadata, nil
}

// Arrange sorts entries as the reference writer does: by decreasing width of their
// elements, then by key. Every tensor then starts at a multiple of its element's size.
func Arrange(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.DType.Size(), a.DType.Size()), cmp.Compare(a.Key, b.Key))
	})
}

// encodeHeader returns everything in a file that precedes the data, and the length in
// bytes of the data. It reads only types and shapes. The same entries and metadata give
// the same bytes.
func encodeHeader(entries []Entry, metadata map[string]string) ([]byte, int64) {
	text := binary.LittleEndian.AppendUint64(nil, 0)
	text = append(text, '{')
	field := func(key string, value any) {
		if len(text) > 9 {
			text = append(text, ',')
		}
		text = append(text, marshal(key)...)
		text = append(text, ':')
		text = append(text, marshal(value)...)
	}
	if len(metadata) > 0 {
		field(MetadataKey, metadata) // encoding/json sorts the keys
	}
	at := 0
	for _, e := range entries {
		end := at + e.Elements()*e.DType.Size()
		shape, offsets := append([]int{}, e.Shape...), []int{at, end}
		field(e.Key, header{&e.DType, &shape, &offsets})
		at = end
	}
	text = append(text, '}')
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	binary.LittleEndian.PutUint64(text, uint64(len(text)-8))
	return text, int64(at)
}

func marshal(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("tensor: header does not marshal: " + err.Error())
	}
	return text
}

// File is the content of a safetensors file that is to be written.
type File struct {
	Entries  []Entry
	Metadata map[string]string
}

func NewFile(tensors map[string]Tensor, metadata map[string]string) *File {
	f := &File{Metadata: metadata}
	for _, key := range slices.Sorted(maps.Keys(tensors)) {
		f.Entries = append(f.Entries, Entry{key, tensors[key]})
	}
	Arrange(f.Entries)
	return f
}

// Size returns the length in bytes of the whole file.
func (f *File) Size() int64 {
	head, data := encodeHeader(f.Entries, f.Metadata)
	return int64(len(head)) + data
}

// Header returns everything that precedes the data.
func (f *File) Header() []byte {
	head, _ := encodeHeader(f.Entries, f.Metadata)
	return head
}

// WriteTo writes the whole file to w.
func (f *File) WriteTo(w io.Writer) (int64, error) {
	head, _ := encodeHeader(f.Entries, f.Metadata)
	n, err := w.Write(head)
	written := int64(n)
	for i := 0; i < len(f.Entries) && err == nil; i++ {
		n, err = w.Write(f.Entries[i].Data)
		written += int64(n)
	}
	return written, err
}

// Seal sets the metadata under key, which is seal.Blank, to the digest of the file; see package seal.
func (f *File) Seal(key string) (err error) {
	f.Metadata[key], err = seal.Of(func(w io.Writer) error {
		_, err := f.WriteTo(w)
		return err
	})
	return err
}

package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"shaver/internal/base/fault"
)

// maxHeader bounds the header of a safetensors file in bytes, as the reference
// implementation does.
const maxHeader = 100 << 20

const metadataKey = "__metadata__"

// entry is a tensor with its key.
type entry struct {
	key string
	Tensor
}

// header describes one tensor in the JSON header.
type header struct {
	DType   DType  `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// headerLength returns the length in bytes of the header. size is the length of the file,
// and head its beginning, of at least 8 bytes if the file has them.
func headerLength(name string, head []byte, size int64) (uint64, error) {
	if size < 8 || len(head) < 8 {
		return 0, fault.Inputf("%s has %d bytes: neither a .pth nor a safetensors file", name, size)
	}
	length := binary.LittleEndian.Uint64(head)
	if length <= uint64(size-8) && length <= maxHeader {
		return length, nil
	}
	if head[0] == opProto && head[1] >= 2 && head[1] <= 5 {
		return 0, fault.Inputf("%s is a pickle outside a zip file, as torch.save wrote before 1.6: load it and save it again with a current torch", name)
	}
	return 0, fault.Inputf("%s is neither a .pth nor a whole safetensors file: its header would have %d bytes, but only %d follow", name, length, size-8)
}

// parseSafetensors returns the tensors, in the header's order, and the metadata. The
// tensors share data's memory. Like the reference implementation it refuses gaps,
// overlaps and bytes that belong to no tensor.
func parseSafetensors(name string, data []byte) ([]entry, map[string]string, error) {
	length, err := headerLength(name, data, int64(len(data)))
	if err != nil {
		return nil, nil, err
	}
	text, body := data[8:8+length], data[8+length:]
	entries, places, metadata, err := parseHeader(text)
	if err != nil {
		return nil, nil, fault.Inputf("%s: safetensors header: %w", name, err)
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
		e, place := &entries[i], places[i]
		n, ok := elements(e.Shape)
		switch {
		case e.DType.Size() == 0:
			return nil, nil, fault.Inputf("%s: tensor %s has the unsupported type %s", name, e.key, quote(string(e.DType)))
		case !ok || place[1]-place[0] != n*e.DType.Size():
			return nil, nil, fault.Inputf("%s: tensor %s has shape %s and type %s, but %d bytes", name, e.key, shapeText(e.Shape), e.DType, place[1]-place[0])
		case place[0] != end:
			return nil, nil, fault.Inputf("%s: tensor %s starts at byte %d, expected %d, because tensors follow each other without gaps", name, e.key, place[0], end)
		case place[1] > len(body):
			return nil, nil, fault.Inputf("%s: tensor %s ends at byte %d of %d: the file is cut short", name, e.key, place[1], len(body))
		}
		end = place[1]
		e.Data = body[place[0]:end:end]
	}
	if end != len(body) {
		return nil, nil, fault.Inputf("%s has %d bytes after its last tensor", name, len(body)-end)
	}
	return entries, metadata, nil
}

// parseHeader returns the tensors without their data. places[i] holds tensor i's first
// byte and the byte after its last one, not yet checked.
func parseHeader(text []byte) (entries []entry, places [][2]int, metadata map[string]string, err error) {
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
			return nil, nil, nil, fmt.Errorf("has the key %s twice", quote(key))
		}
		seen[key] = true
		if key == metadataKey {
			if err := decoder.Decode(&metadata); err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w", metadataKey, err)
			}
			continue
		}
		h := struct {
			DType   *DType `json:"dtype"`
			Shape   *[]int `json:"shape"`
			Offsets *[]int `json:"data_offsets"`
		}{}
		if err := decoder.Decode(&h); err != nil {
			return nil, nil, nil, fmt.Errorf("tensor %s: %w", quote(key), err)
		}
		if h.DType == nil || h.Shape == nil || h.Offsets == nil || len(*h.Offsets) != 2 {
			return nil, nil, nil, fmt.Errorf("tensor %s lacks dtype, shape or two data_offsets", quote(key))
		}
		if err := checkKey(key); err != nil {
			return nil, nil, nil, err
		}
		offsets := *h.Offsets
		if offsets[0] < 0 || offsets[1] < offsets[0] {
			return nil, nil, nil, fmt.Errorf("tensor %s has invalid data_offsets %s", quote(key), shapeText(offsets))
		}
		entries = append(entries, entry{key, Tensor{DType: *h.DType, Shape: *h.Shape}})
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

// checkKey refuses a key that a safetensors file cannot store unchanged, or that would
// break the lines of our errors.
func checkKey(key string) error {
	if key == "" || key == metadataKey || len(key) > 1<<10 || strconv.Quote(key) != `"`+key+`"` {
		return fmt.Errorf("tensor key %s: expected printable text of at most 1024 bytes", quote(key))
	}
	return nil
}

// arrange sorts entries as the reference writer does: by decreasing width of their
// elements, then by key. Every tensor then starts at a multiple of its element's size.
func arrange(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.DType.Size(), a.DType.Size()), cmp.Compare(a.key, b.key))
	})
}

// encodeHeader returns everything in a file that precedes the data, and the length in
// bytes of the data. It reads only types and shapes. The same entries and metadata give
// the same bytes.
func encodeHeader(entries []entry, metadata map[string]string) ([]byte, int64) {
	text := binary.LittleEndian.AppendUint64(nil, 0)
	text = append(text, '{')
	field := func(key string, value any) {
		if len(text) > 9 {
			text = append(text, ',')
		}
		text = append(text, mustMarshal(key)...)
		text = append(text, ':')
		text = append(text, mustMarshal(value)...)
	}
	if len(metadata) > 0 {
		field(metadataKey, metadata) // encoding/json sorts the keys
	}
	at := 0
	for _, e := range entries {
		end := at + e.Elements()*e.DType.Size()
		field(e.key, header{e.DType, append([]int{}, e.Shape...), [2]int{at, end}})
		at = end
	}
	text = append(text, '}')
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	binary.LittleEndian.PutUint64(text, uint64(len(text)-8))
	return text, int64(at)
}

func mustMarshal(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("checkpoint: header does not marshal: " + err.Error())
	}
	return text
}

// file is the content of a safetensors file that is to be written.
type file struct {
	entries  []entry
	metadata map[string]string
}

func newFile(tensors map[string]Tensor, metadata map[string]string) *file {
	f := &file{metadata: metadata}
	for _, key := range slices.Sorted(maps.Keys(tensors)) {
		f.entries = append(f.entries, entry{key, tensors[key]})
	}
	arrange(f.entries)
	return f
}

// size returns the length in bytes of the whole file.
func (f *file) size() int64 {
	head, data := encodeHeader(f.entries, f.metadata)
	return int64(len(head)) + data
}

// WriteTo writes the whole file to w.
func (f *file) WriteTo(w io.Writer) (int64, error) {
	head, _ := encodeHeader(f.entries, f.metadata)
	n, err := w.Write(head)
	written := int64(n)
	for i := 0; i < len(f.entries) && err == nil; i++ {
		n, err = w.Write(f.entries[i].Data)
		written += int64(n)
	}
	return written, err
}

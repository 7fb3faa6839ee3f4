package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/checkpoint/tensor"
)

// maxHeader bounds the header of a safetensors file in bytes, as the reference
// implementation does.
const maxHeader = 100 << 20

// entry is a tensor with its key.
type entry struct {
	key string
	Tensor
}

// header describes one tensor in the JSON header.
type header struct {
	DType   *DType `json:"dtype"`
	Shape   *[]int `json:"shape"`
	Offsets *[]int `json:"data_offsets"`
}

// others are files of other forms by their first bytes, and what reads them.
var others = []struct{ magic, is, reader string }{
	{"PAR1", "a Parquet file", "shaver dataset import parquet reads rows from one"},
	{"ARROW1", "an Arrow file", "shaver scores inspect reads scores from one"},
	{"\x1f\x8b", "compressed by gzip", "decompress it"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd", "decompress it"},
}

// joining says how to join the files of a checkpoint of which one has the given name.
func joining(name string) string {
	if strings.Contains(filepath.Base(name), ".bin") {
		return `join them, as in torch.save(torch.load(A) | torch.load(B), "model.pth")`
	}
	return `join them, as in save_file(load_file(A) | load_file(B), "model.safetensors") with safetensors.torch`
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
	if strings.HasSuffix(name, ".index.json") {
		return 0, fault.Inputf("%s is the index of a checkpoint in several files, expected one: %s", name, joining(name))
	}
	for _, o := range others {
		if bytes.HasPrefix(head, []byte(o.magic)) {
			return 0, fault.Inputf("%s is %s, expected a .pth, safetensors or .onnx file: %s", name, o.is, o.reader)
		}
	}
	if !bytes.ContainsFunc(head[:8], func(r rune) bool { return r != '\t' && r != '\n' && r != '\r' && (r < ' ' || r > '~') }) {
		text := strings.TrimSpace(string(head[:8]))
		if end := strings.IndexAny(text, " \t\r\n\""); end > 0 {
			text = text[:end]
		}
		return 0, fault.Inputf("%s is text (it begins with %q), expected a .pth, safetensors or .onnx file", name, text)
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
	body := data[8+length:]
	entries, places, metadata, err := placed(name, data[8:8+length], int64(len(body)))
	if err != nil {
		return nil, nil, err
	}
	for i, place := range places {
		entries[i].Data = body[place[0]:place[1]:place[1]]
	}
	return entries, metadata, nil
}

// placed parses the header of a file whose tensors have size bytes in all. places[i] holds tensor
// i's first byte and the byte after its last one. It reads no tensor, so a reader can refuse a
// large file before it allocates memory for it.
func placed(name string, text []byte, size int64) (entries []entry, places [][2]int, metadata map[string]string, err error) {
	refuse := func(format string, args ...any) ([]entry, [][2]int, map[string]string, error) {
		return nil, nil, nil, fault.Inputf("%s"+format, append([]any{name}, args...)...)
	}
	if entries, places, metadata, err = parseHeader(text); err != nil {
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
		n, ok := tensor.Count(e.Shape)
		switch {
		case e.DType.Size() == 0:
			return refuse(": tensor %s has the unsupported type %s", e.key, tensor.Quote(string(e.DType)))
		case !ok || place[1]-place[0] != n*e.DType.Size():
			return refuse(": tensor %s has shape %s and type %s, but %d bytes", e.key, tensor.ShapeText(e.Shape), e.DType, place[1]-place[0])
		case place[0] != end:
			return refuse(": tensor %s starts at byte %d, expected %d, because tensors follow each other without gaps", e.key, place[0], end)
		case int64(place[1]) > size:
			return refuse(": tensor %s ends at byte %d of %d: the file is cut short", e.key, place[1], size)
		}
		end = place[1]
	}
	if int64(end) != size {
		return refuse(" has %d bytes after its last tensor", size-int64(end))
	}
	return entries, places, metadata, nil
}

// readWhole reads a safetensors file of the given size if its header describes it and, with a sidecar, a
// model. It reads no more than the header of any other file.
func readWhole(name string, f io.ReaderAt, size int64, sidecar family.Lookup) ([]byte, error) {
	head := make([]byte, min(8, size))
	if _, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	length, err := headerLength(name, head, size)
	if err != nil {
		return nil, err
	}
	text := make([]byte, length)
	if _, err := f.ReadAt(text, 8); err != nil && err != io.EOF {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	entries, places, metadata, err := placed(name, text, size-8-int64(length))
	for _, key := range []string{metaDigest, metaGraph, metaCompact, metaComposed, metaPacked} {
		if _, ok := metadata[key]; ok {
			sidecar = nil
		}
	}
	if err == nil && sidecar != nil { // a dense state dict
		err = checkHeader(name, io.NewSectionReader(f, 8+int64(length), size), entries, places, metadata, sidecar)
	}
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), data); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return data, nil
}

// checkHeader returns an error for a dense state dict that its names, types and shapes already refuse. Of its tensors, which begin
// in body at their places, it reads the offsets only.
func checkHeader(name string, body io.ReaderAt, entries []entry, places [][2]int, metadata map[string]string, sidecar family.Lookup) error {
	c := &Checkpoint{Tensors: map[string]Tensor{}, name: name, unordered: true}
	total := 0
	for i, e := range entries {
		if strings.HasSuffix(e.key, "offsets") {
			size := places[i][1] - places[i][0]
			if total += size; total > 8*maxFields {
				return c.inputf("tensor %s %w", e.key, tooMany(total/e.DType.Size()))
			}
			e.Data = make([]byte, size)
			if _, err := body.ReadAt(e.Data, int64(places[i][0])); err != nil && err != io.EOF {
				return fmt.Errorf("reading %s: %w", name, err)
			}
		}
		c.add(e.key, e.Tensor)
	}
	_, err := c.takeState(metadata, 0, sidecar)
	return err
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
			return nil, nil, nil, fmt.Errorf("has the key %s twice", tensor.Quote(key))
		}
		seen[key] = true
		if key == tensor.MetadataKey {
			if err := decoder.Decode(&metadata); err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w", tensor.MetadataKey, err)
			}
			continue
		}
		var h header
		if err := decoder.Decode(&h); err != nil {
			return nil, nil, nil, fmt.Errorf("tensor %s: %w", tensor.Quote(key), err)
		}
		if h.DType == nil || h.Shape == nil || h.Offsets == nil || len(*h.Offsets) != 2 {
			return nil, nil, nil, fmt.Errorf("tensor %s lacks dtype, shape or two data_offsets", tensor.Quote(key))
		}
		if err := tensor.CheckKey(key); err != nil {
			return nil, nil, nil, err
		}
		offsets := *h.Offsets
		if offsets[0] < 0 || offsets[1] < offsets[0] {
			return nil, nil, nil, fmt.Errorf("tensor %s has invalid data_offsets %s", tensor.Quote(key), tensor.ShapeText(offsets))
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
		field(tensor.MetadataKey, metadata) // encoding/json sorts the keys
	}
	at := 0
	for _, e := range entries {
		end := at + e.Elements()*e.DType.Size()
		shape, offsets := append([]int{}, e.Shape...), []int{at, end}
		field(e.key, header{&e.DType, &shape, &offsets})
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

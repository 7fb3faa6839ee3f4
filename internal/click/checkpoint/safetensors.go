package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/tensor"
)

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
	if length <= uint64(size-8) && length <= tensor.MaxHeader {
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

// parseSafetensors is tensor.Parse, with better errors for files of other forms.
func parseSafetensors(name string, data []byte) ([]tensor.Entry, map[string]string, error) {
	if _, err := headerLength(name, data, int64(len(data))); err != nil {
		return nil, nil, err
	}
	return tensor.Parse(name, data)
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
	entries, places, metadata, err := tensor.Placed(name, text, size-8-int64(length))
	if inLayers(text) { // parseLayers checks it; the end of the file may be missing
		err, sidecar = nil, nil
	}
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
func checkHeader(name string, body io.ReaderAt, entries []tensor.Entry, places [][2]int, metadata map[string]string, sidecar family.Lookup) error {
	c := &Checkpoint{Tensors: map[string]Tensor{}, name: name, unordered: true}
	total := 0
	for i, e := range entries {
		if strings.HasSuffix(e.Key, "offsets") {
			size := places[i][1] - places[i][0]
			if total += size; total > 8*maxFields {
				return c.inputf("tensor %s %w", e.Key, tooMany(total/e.DType.Size()))
			}
			e.Data = make([]byte, size)
			if _, err := body.ReadAt(e.Data, int64(places[i][0])); err != nil && err != io.EOF {
				return fmt.Errorf("reading %s: %w", name, err)
			}
		}
		c.add(e.Key, e.Tensor)
	}
	_, err := c.takeState(metadata, 0, sidecar)
	return err
}

func mustMarshal(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("checkpoint: header does not marshal: " + err.Error())
	}
	return text
}

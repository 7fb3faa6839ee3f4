package checkpoint

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family/familytest"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// shared returns the path of a file in the shared folder next to the checkout, and skips
// the test if the file is missing.
func shared(t testing.TB, elements ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "..", "shared"}, elements...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("missing on CI: %v", err)
		}
		t.Skip(err)
	}
	return path
}

// sampleDims are the field sizes of all samples.
var sampleDims = familytest.Dims

// sampleEntries returns a small state dict of every kind.
func sampleEntries(kind string) (entries []tensor.Entry) {
	for _, e := range familytest.Sample(kind) {
		entries = append(entries, tensor.Entry{Key: e.Key, Tensor: e.Tensor})
	}
	return entries
}

func sampleArchitecture(kind string) model.Architecture {
	a := model.Architecture{Kind: model.Kind(kind), FieldDims: sampleDims, Dim: 2, Hidden: []int{5}}
	switch kind {
	case "fm":
		a.Hidden = nil
	case "dcn-mix":
		a.CrossLayers, a.Experts, a.Rank = 2, 4, 3
	case "dcnv2-stacked", "dcnv2-parallel":
		a.Kind, a.CrossLayers, a.Hidden = model.DCNv2, 1, []int{5, 5}
		a.Structure = strings.TrimPrefix(kind, "dcnv2-")
	}
	return a
}

var sampleKinds = familytest.Kinds

// offsetsOf returns the buffer that gives the samples' field sizes.
func offsetsOf(values ...int) tensor.Entry {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return tensor.Entry{Key: "offsets", Tensor: Tensor{DType: I64, Shape: []int{1, len(values)}, Data: data}}
}

// fileBytes returns a safetensors file with the entries in the given order.
func fileBytes(entries []tensor.Entry, metadata map[string]string) []byte {
	var buffer bytes.Buffer
	_, _ = (&tensor.File{Entries: entries, Metadata: metadata}).WriteTo(&buffer)
	return buffer.Bytes()
}

// unsealed returns the bytes of a compact file in the version without a digest, so that a
// test can change them.
func unsealed(entries []tensor.Entry, metadata map[string]string) []byte {
	metadata = maps.Clone(metadata)
	delete(metadata, metaDigest)
	if metadata[metaCompact] == compactVersion {
		metadata[metaCompact] = unsealedVersion
	}
	return fileBytes(entries, metadata)
}

// zipBytes returns a zip file. pairs alternates names and contents.
func zipBytes(t testing.TB, method uint16, pairs ...string) []byte {
	t.Helper()
	var buffer bytes.Buffer
	z := zip.NewWriter(&buffer)
	for i := 0; i < len(pairs); i += 2 {
		w, err := z.CreateHeader(&zip.FileHeader{Name: pairs[i], Method: method})
		if err == nil {
			_, err = w.Write([]byte(pairs[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// pickled writes opcodes. A byte slice is copied as it is, text becomes a str, and an int
// becomes a BININT.
func pickled(parts ...any) string {
	out := []byte{opProto, 2}
	for _, part := range parts {
		switch part := part.(type) {
		case rune:
			out = append(out, byte(part))
		case []byte:
			out = append(out, part...)
		case string:
			out = append(out, opUnicode)
			out = binary.LittleEndian.AppendUint32(out, uint32(len(part)))
			out = append(out, part...)
		case int:
			if part == int(int32(part)) {
				out = append(out, opInt)
				out = binary.LittleEndian.AppendUint32(out, uint32(part))
			} else {
				out = append(out, opLong1, 8)
				out = binary.LittleEndian.AppendUint64(out, uint64(part))
			}
		case named:
			out = append(append(append(out, opGlobal), strings.Replace(string(part), " ", "\n", 1)...), '\n')
		default:
			panic(fmt.Sprintf("part of type %T", part))
		}
	}
	return string(append(out, opStop))
}

// named writes a global, given as "module name".
type named string

// tensorParts are the opcodes of a tensor of type class on storage key.
func tensorParts(class, key string, elements, offset int, shape, stride []int) []any {
	parts := []any{named("torch._utils _rebuild_tensor_v2"), opMark,
		opMark, "storage", named("torch " + class), key, "cpu", elements, rune(opTuple), rune(opPersistent), offset}
	for _, list := range [][]int{shape, stride} {
		parts = append(parts, opMark)
		for _, v := range list {
			parts = append(parts, v)
		}
		parts = append(parts, opTuple)
	}
	return append(parts, rune(opFalse), named("collections OrderedDict"), opEmptyTuple, opReduce, opTuple, opReduce)
}

// pthBytes returns a .pth file with a dict that holds one value under key.
func pthBytes(t testing.TB, key string, value []any, pairs ...string) []byte {
	t.Helper()
	parts := append(append([]any{opEmptyDict, key}, value...), opSetItem)
	return zipBytes(t, zip.Store, append([]string{"m/data.pkl", pickled(parts...)}, pairs...)...)
}

// wantInput fails the test unless err is an input error of one line that contains all
// texts.
func wantInput(t testing.TB, err error, texts ...string) {
	t.Helper()
	if err == nil || !fault.IsInput(err) {
		t.Fatalf("error %v, want an input error with %q", err, texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r\x00") {
		t.Errorf("error %q is not one line", err)
	}
}

// canonical returns the bytes of c's canonical file.
func canonical(c *Checkpoint) []byte {
	var data bytes.Buffer
	_, _ = c.WriteTo(&data) // writing to a Buffer does not fail
	return data.Bytes()
}

package columnfile

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"

	"shaver/internal/base/fault"
	"shaver/internal/data/arrowio"
)

// slot returns the place of slot i of a FlatBuffers table in its list of slots.
func slot(i int) flatbuffers.VOffsetT { return flatbuffers.VOffsetT(4 + 2*i) }

// seekable is a writer that knows its position, for which Arrow's file writer asks.
type seekable struct {
	bytes.Buffer
}

func (s *seekable) Seek(int64, int) (int64, error) { return int64(s.Len()), nil }

// ipcFile returns a file with batches of the given numbers of rows, and the position of the
// offset of each batch in the footer.
func ipcFile(t *testing.T, batches ...int) (data []byte, offsets []int) {
	t.Helper()
	s := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	var out seekable
	w, err := ipc.NewFileWriter(&out, ipc.WithSchema(s))
	if err != nil {
		t.Fatal(err)
	}
	builder := array.NewRecordBuilder(memory.DefaultAllocator, s)
	for k, n := range batches {
		for range n {
			builder.Field(0).(*array.Int64Builder).Append(int64(k))
		}
		if err := w.Write(builder.NewRecord()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data = out.Bytes()
	start := len(data) - 10 - int(binary.LittleEndian.Uint32(data[len(data)-10:]))
	foot := data[start : len(data)-10]
	root := flatbuffers.Table{Bytes: foot, Pos: flatbuffers.GetUOffsetT(foot)}
	vector := int(root.Vector(flatbuffers.UOffsetT(root.Offset(slot(3)))))
	for k := range batches {
		offsets = append(offsets, start+vector+24*k)
	}
	return data, offsets
}

// The footer decides which batches a file has and their order. It cannot make a short file
// long, and cannot refer to anything outside the file.
func TestFooter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.arrow")
	data, offsets := ipcFile(t, 1, 2)
	swapped := slices.Clone(data)
	copy(swapped[offsets[0]:][:24], data[offsets[1]:])
	copy(swapped[offsets[1]:][:24], data[offsets[0]:])
	if rows, _, err := tableOf(swapped, path); err != nil || !slices.EqualFunc(rows, []string{"1", "1", "0"}, func(row []string, want string) bool { return row[0] == want }) {
		t.Errorf("batches in the footer's order: %q, %v", rows, err)
	}
	if _, _, err := tableOf(data[:len(data)-1], path); !fault.IsInput(err) || !strings.Contains(err.Error(), arrowio.ErrTruncated.Error()) {
		t.Errorf("a file without its end: %v", err)
	}
	for _, at := range []uint64{0, 7, uint64(len(data)), 1 << 62, 1 << 63} {
		outside := slices.Clone(data)
		binary.LittleEndian.PutUint64(outside[offsets[1]:], at)
		if _, _, err := tableOf(outside, path); !fault.IsInput(err) || !strings.Contains(err.Error(), "outside the file") {
			t.Errorf("a batch at byte %d: %v", at, err)
		}
	}
	data, offsets = ipcFile(t, append([]int{10_000}, make([]int, 50)...)...)
	for _, at := range offsets {
		copy(data[at:][:24], data[offsets[0]:])
	}
	rows, _, err := tableOf(data, path)
	if !fault.IsInput(err) || !strings.Contains(err.Error(), "the footer refers to some bytes more than once") || len(rows) > 20_000 {
		t.Errorf("51 times the same batch: %d rows, %v", len(rows), err)
	}
}

// variants returns the content of files that ../ingest/testdata/variants.py wrote.
func variants(t testing.TB, pattern string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../ingest/testdata/variants/" + pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files %s, %v", pattern, err)
	}
	files := map[string][]byte{}
	for _, path := range paths {
		if files[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// A batch cannot claim more buffers for its views than it has.
func TestViewsThatClaimTooMuch(t *testing.T) {
	for name, data := range variants(t, "polars-newest-uncompressed.arrow*") {
		at := -1 // of the numbers of buffers in data
		for i := 8; i+8 < len(data); i += 8 {
			if binary.LittleEndian.Uint32(data[i:]) != 1<<32-1 || binary.LittleEndian.Uint32(data[i+4:]) == 0 {
				continue
			}
			meta := data[i+8:][:binary.LittleEndian.Uint32(data[i+4:])]
			root := flatbuffers.Table{Bytes: meta, Pos: flatbuffers.GetUOffsetT(meta)}
			header := flatbuffers.Table{Bytes: meta, Pos: root.Indirect(root.Pos + flatbuffers.UOffsetT(root.Offset(slot(2))))}
			if numbers := flatbuffers.UOffsetT(header.Offset(slot(4))); ipc.MessageType(root.GetByteSlot(slot(1), 0)) == ipc.MessageRecordBatch && numbers > 0 && header.VectorLen(numbers) > 0 {
				at = i + 8 + int(header.Vector(numbers))
			}
		}
		if at < 0 {
			t.Fatalf("%s has no batch with views", name)
		}
		for _, n := range []uint64{1000, 1 << 40, 1 << 62, 1<<64 - 1} {
			claims := slices.Clone(data)
			binary.LittleEndian.PutUint64(claims[at:], n)
			if _, _, err := tableOf(claims, filepath.Join(t.TempDir(), name)); !fault.IsInput(err) || !strings.Contains(err.Error(), "buffers for a column, expected at most") {
				t.Errorf("%s with %d buffers: %v", name, n, err)
			}
		}
	}
}

package checkpoint

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/tensor"
)

const shardedFolder = "testdata/sharded"

// A state dict that 1, 2 or 4 processes saved has the digest of the same state dict in one
// file, whether its table is divided by rows, by columns or by both.
func TestSharded(t *testing.T) {
	one, err := Read(filepath.Join(shardedFolder, "model.pth"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ranks1", "ranks2", "ranks4", "columns2", "grid4", "wrapped2", "model.pt2"} {
		path := filepath.Join(shardedFolder, name)
		if name != "model.pt2" {
			path += "/"
		}
		c, err := Read(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if c.Digest() != one.Digest() || !slices.Equal(c.Keys, one.Keys) {
			t.Errorf("%s: digest %s and tensors %v, expected %s and %v", name, c.Digest(), c.Keys, one.Digest(), one.Keys)
		}
	}
	if _, err := ReadPart(filepath.Join(shardedFolder, "wrapped2"), Options{StateDict: "other"}); err == nil || !strings.Contains(err.Error(), `only "model"`) {
		t.Errorf("another state dict: %v", err)
	}
}

// A JSON file next to the folder says what it says next to a file.
func TestShardedStatement(t *testing.T) {
	path := copied(t, "ranks2")
	if err := os.WriteFile(path+".json", []byte(`{"field_dims": [6, 7]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if c, err := Read(path); err == nil || !strings.Contains(err.Error(), "expected [5, 8]") {
		t.Errorf("%v, %v", c, err)
	}
}

// copied returns a copy of a folder that the test may change.
func copied(t *testing.T, name string) string {
	path := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(path, os.DirFS(filepath.Join(shardedFolder, name))); err != nil {
		t.Fatal(err)
	}
	return path
}

// A folder that is cut short or damaged is refused with one line that names the file.
func TestDamagedShards(t *testing.T) {
	change := func(name string, to func(data []byte) []byte) func(t *testing.T, folder string) {
		return func(t *testing.T, folder string) {
			data, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, name), to(data), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	half := func(data []byte) []byte { return data[:len(data)/2] }
	for name, test := range map[string]struct {
		damage func(t *testing.T, folder string)
		want   string
	}{
		"no metadata": {func(_ *testing.T, folder string) { _ = os.Remove(filepath.Join(folder, ".metadata")) }, "ranks2 is a folder without .metadata: expected a .pth"},
		"no shard":    {func(_ *testing.T, folder string) { _ = os.Remove(filepath.Join(folder, "__1_0.distcp")) }, `ranks2/.metadata: refers to "__1_0.distcp", which cannot be read`},
		"a folder": {func(_ *testing.T, folder string) {
			_ = os.Remove(filepath.Join(folder, "__1_0.distcp"))
			_ = os.Mkdir(filepath.Join(folder, "__1_0.distcp"), 0o777)
		}, "is a folder: expected a file of this folder"},
		"metadata outside": {func(t *testing.T, folder string) {
			_ = os.Rename(filepath.Join(folder, ".metadata"), filepath.Join(folder, "..", "outside"))
			if err := os.Symlink("../outside", filepath.Join(folder, ".metadata")); err != nil {
				t.Skip(err)
			}
		}, "ranks2/.metadata leads out of "},
		"half metadata": {change(".metadata", half), "ranks2/.metadata"},
		"half a shard":  {change("__1_0.distcp", half), "the file is cut short"},
		"flipped": {change("__1_0.distcp", func(data []byte) []byte {
			data[bytes.Index(data, []byte("archive/data/0"))+100] ^= 1
			return data
		}), "__1_0.distcp at byte 0: tensor cannot be read: entry \"archive/data/0\": the file is cut short or damaged: zip: checksum error"},
		"zeros": {change("__0_0.distcp", func(data []byte) []byte { clear(data); return data }), "__0_0.distcp at byte 0: the file is cut short or damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := copied(t, "ranks2")
			test.damage(t, folder)
			_, err := Read(folder)
			if err == nil || !fault.IsInput(err) || !strings.Contains(filepath.ToSlash(err.Error()), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, expected %q", err, test.want)
			}
		})
	}
}

// Text of a metadata pickle: an object of a class with attributes.
func made(class string, attributes ...any) []any {
	parts := []any{named(class), opEmptyTuple, []byte{opNewObject}, opEmptyDict, opMark}
	return append(append(parts, attributes...), opSetItems, opBuild)
}

// ints are a torch.Size.
func ints(values ...int) []any {
	parts := []any{named("torch Size"), opMark}
	for _, v := range values {
		parts = append(parts, v)
	}
	return append(parts, opTuple, []byte{opTuple1}, opReduce)
}

const dcp = "torch.distributed.checkpoint."

// described is the entry of a tensor in state_dict_metadata.
func described(key, dtype string, shape []any, chunks ...[2][]any) []any {
	parts := []any{key}
	var all []any
	for _, c := range chunks {
		all = append(all, made(dcp+"metadata ChunkStorageMetadata", joined("offsets", c[0], "sizes", c[1])...)...)
	}
	properties := joined(named(dcp+"metadata TensorProperties"), opEmptyTuple, []byte{opNewObject}, opMark, named("torch "+dtype), opNone, opTuple, opBuild)
	return append(parts, made(dcp+"metadata TensorStorageMetadata", joined("properties", properties, "size", shape, "chunks", opEmptyList, opMark, all, opAppends)...)...)
}

// stored is an entry of storage_data.
func stored(key string, start []any, file string, offset, length int) []any {
	return joined(made(dcp+"metadata MetadataIndex", joined("fqn", key, "offset", start)...),
		made(dcp+"filesystem _StorageInfo", "relative_path", file, "offset", offset, "length", length))
}

// joined joins lists of parts.
func joined(parts ...any) (all []any) {
	for _, p := range parts {
		if list, ok := p.([]any); ok {
			all = append(all, list...)
		} else {
			all = append(all, p)
		}
	}
	return all
}

// wholeMetadata is a .metadata file.
func wholeMetadata(tensors, places []any) string {
	return pickled(made(dcp+"metadata Metadata", joined("state_dict_metadata", opEmptyDict, opMark, tensors, opSetItems,
		"storage_data", opEmptyDict, opMark, places, opSetItems)...)...)
}

// memoryFile is a file in memory.
type memoryFile struct{ *bytes.Reader }

func (memoryFile) Close() error { return nil }

// inMemory reads a folder of one other file, a.
func inMemory(metadata string, a []byte) (*Checkpoint, error) {
	return parseShards("m", []byte(metadata), func(name string) (shardFile, int64, error) {
		if name != "a" {
			return nil, 0, fs.ErrNotExist
		}
		return memoryFile{bytes.NewReader(a)}, int64(len(a)), nil
	}, "", noSidecar)
}

// onePart is a file of torch.save with a tensor of n float32.
func onePart(t testing.TB, n int) []byte {
	pickle := pickled(named("torch._utils _rebuild_tensor_v2"), opMark, opMark, "storage", named("torch FloatStorage"), "0", "cpu", n, opTuple, opPersistent,
		0, opMark, n, opTuple, opMark, 1, opTuple, []byte{opFalse}, named("collections OrderedDict"), opEmptyTuple, opReduce, opTuple, opReduce)
	return zipBytes(t, zip.Store, "m/data.pkl", pickle, "m/data/0", strings.Repeat("\x00\x00\x80?", n))
}

// Metadata that contradicts itself or the files is refused with one line, in memory that the
// files bound.
func TestHostileShards(t *testing.T) {
	a := onePart(t, 4)
	n := len(a)
	whole := [2][]any{ints(0), ints(4)}
	first, second := [2][]any{ints(0), ints(2)}, [2][]any{ints(2), ints(2)}
	place := stored("w", ints(0), "a", 0, n)
	var every []any
	for i := range 1000 {
		every = append(every, described(fmt.Sprintf("w%d", i), "float32", ints(4), whole)...)
		place = append(place, stored(fmt.Sprintf("w%d", i), ints(0), "a", 0, n)...)
	}
	for name, test := range map[string]struct {
		metadata, want string
	}{
		"another object":   {pickled(opEmptyDict), "m/.metadata: holds a dict, expected the torch.distributed.checkpoint.metadata.Metadata"},
		"a call":           {pickled(named("os system"), opMark, "echo", opTuple, opReduce), "holds an object of os.system, expected"},
		"no places":        {pickled(made(dcp+"metadata Metadata", "state_dict_metadata", opEmptyDict)...), "has no storage_data"},
		"outside":          {wholeMetadata(nil, stored("w", ints(0), "../a", 0, n)), "does not say which part of which file of this folder"},
		"absolute":         {wholeMetadata(nil, stored("w", ints(0), "/etc/passwd", 0, n)), "does not say which part of which file of this folder"},
		"no file":          {wholeMetadata(nil, stored("w", ints(0), "b", 0, n)), `refers to "b", which cannot be read`},
		"past the end":     {wholeMetadata(nil, stored("w", ints(0), "a", 2, n)), "the file is cut short"},
		"negative":         {wholeMetadata(nil, stored("w", ints(0), "a", -1, n)), "does not say which part"},
		"gap":              {wholeMetadata(described("w", "float32", ints(4), first), place), "tensor \"w\" of size [4] has 1 chunks that leave a gap or overlap"},
		"overlap":          {wholeMetadata(described("w", "float32", ints(4), first, second, second), place), "3 chunks that leave a gap or overlap"},
		"beyond":           {wholeMetadata(described("w", "float32", ints(4), first, [2][]any{ints(2), ints(3)}), place), "leave a gap or overlap"},
		"dimensions":       {wholeMetadata(described("w", "float32", ints(4, 1), whole), place), "a chunk without 2 offsets and sizes"},
		"overflow":         {wholeMetadata(described("w", "float32", joined(ints(1<<30, 1<<30, 1<<30)), whole), place), "which overflows"},
		"huge":             {wholeMetadata(described("w", "float32", ints(1<<30), [2][]any{ints(0), ints(1 << 30)}), place), "have more bytes than the"},
		"another shape":    {wholeMetadata(described("w", "float32", ints(3), [2][]any{ints(0), ints(3)}), place), "is not a part of type F32 and shape [3]"},
		"another type":     {wholeMetadata(described("w", "int32", ints(4), whole), place), "is not a part of type I32"},
		"unsupported type": {wholeMetadata(described("w", "float8_e5m2", ints(4), whole), place), `has elements of the unsupported type "torch.float8_e5m2"`},
		"no part":          {wholeMetadata(described("w", "float32", ints(4), first, second), place), "has no part in storage_data that begins at [2]"},
		"twice":            {wholeMetadata(joined(described("w", "float32", ints(4), whole), described("w", "float32", ints(4), whole)), place), `has the tensor "w" twice`},
		"one part for all": {wholeMetadata(every, place), "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := inMemory(test.metadata, a)
			runtime.ReadMemStats(&after)
			if err == nil || !fault.IsInput(err) || !strings.Contains(filepath.ToSlash(err.Error()), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, expected %q", err, test.want)
			}
			if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 32<<20 {
				t.Errorf("%d bytes of memory for a folder of %d", bytes, len(test.metadata)+n)
			}
		})
	}
}

// A tensor is read into its own memory, without a second copy of any part.
func TestShardedMemory(t *testing.T) {
	const n = 4 << 20
	a := onePart(t, n)
	s := &shards{name: "m", open: func(string) (shardFile, int64, error) { return memoryFile{bytes.NewReader(a)}, int64(len(a)), nil },
		places: map[string][]place{"w": {{[]int{0}, "a", 0, int64(len(a))}, {[]int{n}, "a", 0, int64(len(a))}}}, total: 2 * int64(len(a))}
	parts := []box{{[]int{0}, []int{n}}, {[]int{n}, []int{n}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w, err := s.tensor(&sharded{key: "w", named: "torch.float32", parts: parts}, []int{2 * n})
	runtime.ReadMemStats(&after)
	if err != nil || len(w.Data) != 8*n || !bytes.Equal(w.Data[8*n-8:], []byte("\x00\x00\x80?\x00\x00\x80?")) {
		t.Fatal(err)
	}
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 8*n+1<<20 {
		t.Errorf("reading %d bytes took %d bytes of memory", 8*n, bytes)
	}
}

// The runs of the parts of a tensor are all its elements, each once and in order.
func TestRuns(t *testing.T) {
	for _, shape := range [][]int{{}, {5}, {4, 3}, {3, 4, 5}, {1, 6, 1}, {2, 1, 3}} {
		r := rand.New(rand.NewPCG(1, uint64(len(shape))))
		for range 20 {
			boxes := []box{{make([]int, len(shape)), shape}}
			for range 4 { // cut a box in two
				if len(shape) == 0 {
					break
				}
				b, by := boxes[len(boxes)-1], r.IntN(len(shape))
				if b.size[by] < 2 {
					continue
				}
				at := 1 + r.IntN(b.size[by]-1)
				left, right := box{b.start, slices.Clone(b.size)}, box{slices.Clone(b.start), slices.Clone(b.size)}
				left.size[by] = at
				right.start[by] += at
				right.size[by] -= at
				boxes = append(boxes[:len(boxes)-1], left, right)
			}
			total, _ := tensor.Count(shape)
			times := make([]int, total)
			for _, b := range boxes {
				last, sum := -1, 0
				_ = runs(shape, b, func(from, n int) error {
					if from <= last {
						t.Fatalf("%v of %v: run at %d after %d", b, shape, from, last)
					}
					last, sum = from, sum+n
					for i := range n {
						times[from+i]++
					}
					return nil
				})
				if want, _ := tensor.Count(b.size); sum != want {
					t.Fatalf("%v of %v: %d elements", b, shape, sum)
				}
			}
			if slices.Min(times) != 1 || slices.Max(times) != 1 {
				t.Fatalf("%v of %v: elements are in %v runs", boxes, shape, times)
			}
		}
	}
}

// Metadata and parts give a checkpoint or an input error.
func FuzzShards(f *testing.F) {
	a := onePart(f, 4)
	whole := [2][]any{ints(0), ints(4)}
	f.Add([]byte(wholeMetadata(described("w", "float32", ints(4), whole), stored("w", ints(0), "a", 0, len(a)))), a)
	for _, name := range []string{"ranks2", "wrapped2"} { // the file of one process is missing
		metadata, err := os.ReadFile(filepath.Join(shardedFolder, name, ".metadata"))
		if err != nil {
			f.Fatal(err)
		}
		part, err := os.ReadFile(filepath.Join(shardedFolder, name, "__0_0.distcp"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(metadata, part)
	}
	metadata, err := os.ReadFile(filepath.Join(shardedFolder, "ranks1", ".metadata"))
	if err != nil {
		f.Fatal(err)
	}
	part, err := os.ReadFile(filepath.Join(shardedFolder, "ranks1", "__0_0.distcp"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(metadata, part)
	f.Fuzz(func(t *testing.T, metadata, part []byte) {
		c, err := parseShards("m", metadata, func(name string) (shardFile, int64, error) {
			if name != "a" && name != "__0_0.distcp" {
				return nil, 0, fs.ErrNotExist
			}
			return memoryFile{bytes.NewReader(part)}, int64(len(part)), nil
		}, "", noSidecar)
		if err == nil {
			bytes := 0
			for _, t := range c.Tensors {
				bytes += len(t.Data)
			}
			if bytes > len(part) {
				t.Fatalf("%d bytes of tensors from %d", bytes, len(part))
			}
		}
		checkFuzzed(t, c, err)
	})
}

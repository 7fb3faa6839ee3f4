package checkpoint

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// A file whose header does not describe it is refused before its length is allocated. The files
// are sparse: they are long and take no space.
func TestSparseFile(t *testing.T) {
	const length = 1 << 30
	for name, test := range map[string]struct{ header, want string }{
		"zeros":    {"", "safetensors header: is not a JSON object"},
		"empty":    {"{}", "has 1073741814 bytes after its last tensor"},
		"one":      {`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "bytes after its last tensor"},
		"disagree": {`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1000000000]}}`, "tensor a has shape [1] and type F32, but 1000000000 bytes"},
		"beyond":   {`{"a":{"dtype":"U8","shape":[2000000000],"data_offsets":[0,2000000000]}}`, "the file is cut short"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.safetensors")
			head := append(binary.LittleEndian.AppendUint64(nil, uint64(len(test.header))), test.header...)
			if err := os.WriteFile(path, head, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, length); err != nil {
				t.Fatal(err)
			}
			for read, f := range map[string]func() error{
				"Read":        func() error { _, err := Read(path); return err },
				"ReadVectors": func() error { return ReadVectors(path, func(string) ([]Vector, error) { return nil, nil }) },
			} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := f()
				runtime.ReadMemStats(&after)
				wantInput(t, err, path, test.want)
				if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
					t.Errorf("%s allocates %d bytes for a header of %d", read, allocated, len(test.header))
				}
			}
		})
	}
}

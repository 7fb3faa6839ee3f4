package worker

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/job"
)

func blobOf(data []byte) job.Blob {
	sum := sha256.Sum256(data)
	return job.Blob{Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

// A cache deletes the least recently used models. It deletes damaged files and stale
// half-written ones, and keeps no model that is too large.
func TestCache(t *testing.T) {
	c := &Cache{Dir: filepath.Join(t.TempDir(), "models"), Bytes: 25, Log: zap.NewNop()}
	var all [][]byte
	for i := range 3 {
		data := bytes.Repeat([]byte{byte(i)}, 10)
		all = append(all, data)
		c.put(blobOf(data), data)
		then := time.Now().Add(time.Duration(i-10) * time.Minute) // the models were used in this order
		if err := os.Chtimes(c.path(blobOf(data)), then, then); err != nil {
			t.Fatal(err)
		}
		if i == 1 && c.get(blobOf(all[0])) == nil { // this get makes it the most recently used
			t.Error("the first model is not in the cache")
		}
	}
	for i, want := range []bool{true, false, true} {
		if got := c.get(blobOf(all[i])); (got != nil) != want || want && !bytes.Equal(got, all[i]) {
			t.Errorf("model %d: got %v, expected it in the cache: %v", i, got, want)
		}
	}
	if err := os.WriteFile(c.path(blobOf(all[0])), make([]byte, 10), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.path(blobOf(all[2])), []byte("damaged it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c.get(blobOf(all[0])) == nil {
		t.Error("a file with the right bytes was not used")
	}
	if c.get(blobOf(all[2])) != nil {
		t.Error("a damaged file was used")
	}
	if _, err := os.Stat(c.path(blobOf(all[2]))); !os.IsNotExist(err) {
		t.Errorf("the damaged file was not deleted: %v", err)
	}
	large := make([]byte, 26)
	c.put(blobOf(large), large)
	if c.get(blobOf(large)) != nil || c.get(blobOf(all[0])) == nil {
		t.Error("a model that is too large was kept, or other models were deleted for it")
	}
	left := filepath.Join(c.Dir, ".x"+modelSuffix+".1.tmp")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-2 * staleAfter)
	if err := os.Chtimes(left, then, then); err != nil {
		t.Fatal(err)
	}
	c.put(blobOf(all[1]), all[1])
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the stale half-written file was not deleted: %v", err)
	}
	var none *Cache
	none.put(blobOf(large), large)
	if none.get(blobOf(large)) != nil {
		t.Error("a nil cache returned a model")
	}
}

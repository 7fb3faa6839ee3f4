package files_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// Small reads a file up to its bound, and names a larger one. Beginning returns what there is.
func TestSizes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	whole := bytes.Repeat([]byte("x"), 1<<20)
	for _, data := range [][]byte{nil, whole, append(whole, 'y')} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := files.Small(path, 1, "a letter")
		if len(data) > 1<<20 {
			if !fault.IsInput(err) || !strings.HasPrefix(err.Error(), path+" is larger than 1 MiB: expected a letter") {
				t.Errorf("%d bytes: %v", len(data), err)
			}
		} else if err != nil || !bytes.Equal(found, data) {
			t.Errorf("%d bytes of %d: %v", len(found), len(data), err)
		}
		if n := len(files.Beginning(path, 3)); n != min(3, len(data)) {
			t.Errorf("%d bytes at the beginning of %d", n, len(data))
		}
	}
	if _, err := files.Small(path+"x", 1, "a letter"); !os.IsNotExist(err) {
		t.Error(err)
	}
	if head := files.Beginning(path+"x", 3); head != nil {
		t.Errorf("%q", head)
	}
}

// Digest is that of the bytes of a file.
func TestDigest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := files.Digest(path); err != nil || found != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("%s: %v", found, err)
	}
	if _, err := files.Digest(path + "x"); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// Strict takes one JSON value without unknown properties. Read bounds what it reads.
func TestStrict(t *testing.T) {
	for text, want := range map[string]string{`{"a": 1}`: "", `{"a": 1} `: "", `{"b": 1}`: "unknown field", `{"a": 1} {}`: "more than one", `{"a": 1}]`: "more than one", "": "EOF"} {
		var to struct{ A int }
		if err := files.Strict([]byte(text), &to); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := files.Read(bytes.NewReader(make([]byte, 1<<20+1)), "x", 1, "a letter"); !fault.IsInput(err) || err.Error() != "x is larger than 1 MiB: expected a letter" {
		t.Error(err)
	}
}

package main

import (
	"bytes"
	"math/bits"
	"os"
	"path/filepath"
	"testing"
)

// At most four bits of one file change, and with messages set only files of messages do.
func TestFlip(t *testing.T) {
	dir, files := t.TempDir(), []string{"streams/A/meta.inf", "streams/A/msgs/1.blk", "streams/A/msgs/index.db", "streams/A/obs/w/o.dat"}
	content := make([]byte, 100)
	hit := map[string]bool{}
	for pick := range uint32(200) {
		for _, name := range append(files, "empty/msgs/2.blk") {
			data := content
			if name == "empty/msgs/2.blk" {
				data = nil
			}
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		messages := pick%2 == 0
		what, err := flip(dir, pick, messages)
		if err != nil || what == "" {
			t.Fatalf("%q, %v", what, err)
		}
		damaged, flipped := "", 0
		for _, name := range files {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(data, content) {
				continue
			}
			if damaged != "" {
				t.Errorf("%s and %s are damaged", damaged, name)
			}
			damaged = name
			for _, b := range data {
				flipped += bits.OnesCount8(b)
			}
		}
		if flipped < 1 || flipped > 4 {
			t.Errorf("%s: %d bits are different", what, flipped)
		}
		if messages && filepath.Base(filepath.Dir(damaged)) != "msgs" {
			t.Errorf("%s is damaged", damaged)
		}
		hit[damaged] = true
	}
	if len(hit) != len(files) {
		t.Errorf("damaged only %v", hit)
	}
	if what, err := flip(t.TempDir(), 1, false); what != "" || err != nil {
		t.Errorf("an empty folder: %q, %v", what, err)
	}
}

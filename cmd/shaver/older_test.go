package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/sweep"
)

// Files of earlier programs are read, and hold what those programs read in them.
func TestOlderFiles(t *testing.T) {
	dir := filepath.Join("..", "..", "testdata", "older")
	sum := func(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }
	// read returns the digest of what a file holds, and the version that it says.
	read := map[string]func(path string) (string, error){
		"compact": func(path string) (string, error) {
			ck, err := checkpoint.Read(path)
			if err != nil {
				return "", err
			}
			if _, err := ck.Model(); err != nil {
				return "", err
			}
			return ck.Digest(), nil
		},
		"scores": func(path string) (string, error) {
			if err := scores.Verify(path); err != nil {
				return "", err
			}
			return sum(command(t, "shaver", "scores", "export", path)), nil
		},
		"dataset": func(path string) (string, error) {
			d, err := dataset.Open(path)
			if err != nil {
				return "", err
			}
			var rows strings.Builder
			err = d.Scan(t.Context(), d.SplitNames(), 100, func(r *model.Rows) error {
				for i := range r.Len() {
					fmt.Fprintln(&rows, r.Number[i], r.Label[i], r.Row(i), r.DenseRow(i))
				}
				return nil
			})
			rows.WriteString(d.Digest())
			return sum([]byte(rows.String())), err
		},
		"sweep": func(path string) (string, error) {
			d, err := sweep.Read(path)
			if err != nil {
				return "", err
			}
			var points strings.Builder
			for _, p := range d.Points {
				fmt.Fprintln(&points, p.Method, p.Sparsity, p.Parameters)
			}
			return sum([]byte(points.String())), nil
		},
	}
	for name, want := range map[string]struct{ mark, digest string }{
		"compact-2-float32.safetensors": {`"shaver.compact":"2"`, "a0fde8ca69e664c5"},
		"compact-2-float16.safetensors": {`"shaver.compact":"2"`, "b787a94c445f8583"},
		"compact-2-int8.safetensors":    {`"shaver.compact":"2"`, "ee53d2f2a422d709"},
		"compact-3.safetensors":         {`"shaver.compact":"3"`, "158c867bd3a80737"},
		"compact-4.safetensors":         {`"shaver.compact":"4"`, "58a4229e72804587"},
		"compact-5.safetensors":         {`"shaver.compact":"5"`, "6c3bf7709dcf1eac"},
		"scores-2.arrow":                {"shaver.scores/2", "53c00e848ca9a0a3"},
		"scores-3.arrow":                {"shaver.scores/3", "53c00e848ca9a0a3"},
		"scores-4.arrow":                {"shaver.scores/4", "ff0e0660bc1aa4fa"},
		"scores-5.arrow":                {"shaver.scores/5", "eae1d6e459309bb2"},
		"dataset-1":                     {"shaver.dataset/1", "bf05df12e5982740"},
		"dataset-2":                     {"shaver.dataset/2", "d5aaf40a8b8e7a0e"},
		"dataset-3":                     {"shaver.dataset/3", "6ad935a8002d0089"},
		"sweep-1.json":                  {"shaver.sweep/1", "4df4dedde6821dfd"},
		"sweep-2.json":                  {"shaver.sweep/2", "bf2b661b10d61134"},
		"sweep-3.json":                  {"shaver.sweep/3", "075204a68ec9d041"},
	} {
		path := filepath.Join(dir, name)
		kind, _, _ := strings.Cut(name, "-")
		head := path
		if kind == "dataset" {
			head = filepath.Join(path, dataset.ManifestName)
		}
		if data, err := os.ReadFile(head); err != nil || !strings.Contains(string(data), want.mark) {
			t.Errorf("%s does not say %s (%v)", head, want.mark, err)
		}
		if got, err := read[kind](path); err != nil || !strings.HasPrefix(got, want.digest) {
			t.Errorf("%s: digest %q, expected %q (%v)", name, got, want.digest, err)
		}
	}
}

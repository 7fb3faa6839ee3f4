// Package trainingtest makes a small dataset whose labels a model can learn, for tests.
package trainingtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/data/ingest"
	"shaver/internal/num/random"
)

// Clicks makes a dataset of rows with 4 fields of 30 features in a folder, split 8:1:1. A
// row's label depends on its features and on chance.
func Clicks(t testing.TB, dir string, rows int) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("label,a,b,c,d\n")
	for i := range rows {
		stream := random.At(1, random.Initial, uint64(i), 0)
		ids, worth := [4]uint64{}, 0.0
		for j := range ids {
			ids[j] = stream.Below(30)
			worth += float64(ids[j]*ids[j]*7%31)/31 - .5
		}
		label := 0
		if worth+stream.Normal() > 0 {
			label = 1
		}
		fmt.Fprintf(&text, "%d,%d,%d,%d,%d\n", label, ids[0], ids[1], ids[2], ids[3])
	}
	file, out := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "data")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Split: "8:1:1", Seed: 1, OnBadRow: ingest.Fail, Out: out}); err != nil {
		t.Fatal(err)
	}
	return out
}

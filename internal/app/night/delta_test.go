package night_test

import (
	"path/filepath"
	"slices"
	"testing"

	"shaver/internal/prune/delta"
	"shaver/internal/prune/delta/deltatest"
	"shaver/internal/prune/nightly"
)

// The files that a night records are those of a delta.
func TestDeltaFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), nightly.DeltaFolder)
	if _, err := delta.Write(deltatest.Nights(t, 1, "float32")[0], delta.Options{}, folder); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, nightly.DeltaFolder+"/"+filepath.Base(f))
	}
	if !slices.Equal(names, slices.Sorted(slices.Values(nightly.DeltaFiles))) {
		t.Errorf("the delta has %q, and a night %q", names, nightly.DeltaFiles)
	}
}

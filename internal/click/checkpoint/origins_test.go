package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
)

// A file in either form keeps the digests of the models from which it was pruned. Its own digest
// does not depend on them.
func TestOrigins(t *testing.T) {
	c := fmOf(t, 6, 2)
	before := c.Digest()
	dense, small := filepath.Join(t.TempDir(), "dense"), filepath.Join(t.TempDir(), "compact")
	for _, origins := range [][]string{nil, {"one"}, {"one", "two"}} {
		c.Origins = origins
		if _, err := WriteDense(dense, c); err != nil {
			t.Fatal(err)
		}
		if _, err := WriteCompact(small, c, make([]bool, c.Architecture.Parameters()), c.Architecture.Zero(), compact.Float32); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{dense, small} {
			got, err := Read(path)
			if err != nil {
				t.Fatal(err)
			}
			found, pruned := OriginsOf(path)
			if !slices.Equal(got.Origins, origins) || !slices.Equal(found, origins) || got.Digest() != before {
				t.Errorf("%s: %v and %v, expected %v", path, got.Origins, found, origins)
			}
			if want := path == small || origins != nil; pruned != want {
				t.Errorf("%s with the origins %v was pruned: %v", path, origins, pruned)
			}
		}
	}
	text, err := os.ReadFile(dense)
	if err == nil {
		err = os.WriteFile(dense, bytes.Replace(text, []byte(`[\"one`), []byte(`{\"one`), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dense); !fault.IsInput(err) || !strings.Contains(err.Error(), "shaver.origins") {
		t.Errorf("a malformed list: %v", err)
	}
	if _, pruned := OriginsOf(dense); pruned {
		t.Error("a malformed list makes a pruned file")
	}
}

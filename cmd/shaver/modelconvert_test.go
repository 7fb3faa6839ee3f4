package main

import (
	"path/filepath"
	"testing"

	"shaver/internal/prune/cut"
)

// With --from, a conversion says the same of the model as without, and replaces a file of rows without --force. Without a changed row, it writes no
// bytes of the table.
func TestConvertFrom(t *testing.T) {
	t.Parallel()
	in := filepath.Join("..", "..", "testdata", "golden", "fm.pth")
	old, out := filepath.Join(t.TempDir(), "old.safetensors"), filepath.Join(t.TempDir(), "out.safetensors")
	var whole, changed cut.Conversion
	shaver(t, &whole, "model", "convert", in, old, "--rows", "float16")
	for range 2 {
		shaver(t, &changed, "model", "convert", in, out, "--rows", "float16", "--from", old)
	}
	if changed.TableBytes != 0 || changed.Bytes == 0 || changed.Out != out || changed.Kept == changed.Entries {
		t.Errorf("%+v, and whole %+v", changed, whole)
	}
	changed.Out, changed.TableBytes, changed.Bytes = whole.Out, whole.TableBytes, whole.Bytes
	if changed != whole {
		t.Errorf("%+v, expected %+v", changed, whole)
	}
}

package flags_test

import (
	"testing"

	"shaver/internal/app/flags"
)

// Sizes are numbers with a unit, and print as they were written.
func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"512MiB": 512 << 20, "4GiB": 4 << 30, "1TiB": 1 << 40} {
		var b flags.Bytes
		if err := b.Set(text); err != nil || int64(b) != want || b.String() != text {
			t.Errorf("%s: %d, %v: %v", text, int64(b), &b, err)
		}
	}
	for _, text := range []string{"", "5", "0MiB", "-1GiB", "1.5GiB", "9999999TiB", "MiB", "4 GiB"} {
		var b flags.Bytes
		if err := b.Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

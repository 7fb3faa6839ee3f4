package places

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/ops/remote"
)

func newUse(t *testing.T) *use {
	t.Helper()
	s, err := remote.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &use{Session: s}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Of two commands that write one output, the second ends as overtaken and changes nothing. It
// does not if it has the same bytes.
func TestOutputConflict(t *testing.T) {
	for name, k := range map[string]kind{"file": out, "scores": outScores} {
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "s.arrow")
			var uses [3]*use
			for i, text := range []string{"one", "two", "one"} {
				uses[i] = newUse(t)
				path, err := uses[i].place(t.Context(), k, "file://"+filepath.ToSlash(at))
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, text)
			}
			for i, want := range []bool{false, true, false} {
				err := uses[i].renamed(uses[i].publish(t.Context()))
				if errors.Is(err, cli.ErrOvertaken) != want || (err != nil) != want {
					t.Errorf("command %d: %v", i, err)
				}
			}
			if text, err := os.ReadFile(at); string(text) != "one" {
				t.Errorf("the output is %q (%v)", text, err)
			}
		})
	}
}

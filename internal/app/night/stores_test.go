package night

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/app/places"
)

// A night whose folder another night has taken over ends as overtaken.
func TestNightConflict(t *testing.T) {
	url := "file://" + filepath.ToSlash(t.TempDir()) + "/out"
	begin := func(text string) (finish func() error) {
		ctx, end, err := places.Stores(t.Context(), &places.Copying{Scratch: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		commit, folder, err := (&stores{places.Session(ctx)}).results(t.Context(), url)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, "history.jsonl"), []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() error { return end(commit()) }
	}
	first, second := begin("first\n"), begin("second\n")
	if err := first(); !errors.Is(err, cli.ErrOvertaken) {
		t.Errorf("the first night: %v", err)
	}
	if err := second(); err != nil {
		t.Errorf("the second night: %v", err)
	}
}

package fault

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// An error about settings keeps its text and its kind, and is found through wrapping.
func TestSetting(t *testing.T) {
	err := fmt.Errorf("m.csv: %w", Setting(Usagef("allow more"), "memory", "count"))
	if err.Error() != "m.csv: allow more" || !IsUsage(err) || IsInput(err) || !slices.Equal(Settings(err), []string{"memory", "count"}) {
		t.Errorf("%v, settings %q", err, Settings(err))
	}
	if Settings(os.ErrNotExist) != nil || Settings(nil) != nil {
		t.Error("settings of an error that has none")
	}
}

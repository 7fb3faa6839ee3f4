package fault

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// Setting keeps the text and the kind of an error, and Settings sees through wrapping.
func TestSetting(t *testing.T) {
	err := fmt.Errorf("m.csv: %w", Setting(Usagef("allow more"), "memory", "count"))
	if err.Error() != "m.csv: allow more" || !IsUsage(err) || IsInput(err) || !slices.Equal(Settings(err), []string{"memory", "count"}) {
		t.Errorf("%v, settings %q", err, Settings(err))
	}
	if Settings(os.ErrNotExist) != nil || Settings(nil) != nil {
		t.Error("an error that is not from Setting has settings")
	}
}

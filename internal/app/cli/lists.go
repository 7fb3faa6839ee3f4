package cli

import (
	"encoding/csv"
	"strings"
)

// DaysHelp ends the help of flags that take a dataset.
const DaysHelp = "the folders of a window's days, the oldest first, separated by commas"

// List returns the text that sets a flag of a list to the given values.
func List(values []string) string {
	var text strings.Builder
	w := csv.NewWriter(&text)
	_ = w.Write(values) // a Builder does not fail
	w.Flush()
	return strings.TrimSuffix(text.String(), "\n")
}

package main

import (
	"slices"
	"testing"
)

// A flat row has the last item of the history, and the first attribute or, without attributes, the first item.
func TestFlatten(t *testing.T) {
	header := []string{"label", "user", "item", "attributes", "history"}
	for _, c := range []struct{ header, row, want []string }{
		{header, []string{"1", "7", "5", "3|4", "8|9|6"}, []string{"1", "7", "5", "6", "3"}},
		{header, header, []string{"label", "user", "item", "last", "other"}},
		{slices.Delete(slices.Clone(header), 3, 4), []string{"0", "7", "5", "8|9"}, []string{"0", "7", "5", "9", "8"}},
	} {
		if got := flatten(c.header, c.row); !slices.Equal(got, c.want) {
			t.Errorf("%q becomes %q, expected %q", c.row, got, c.want)
		}
	}
}

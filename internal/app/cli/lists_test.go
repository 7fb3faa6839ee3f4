package cli

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// A flag that takes a list reads back what List writes.
func TestList(t *testing.T) {
	for _, values := range [][]string{{"a"}, {"days/1", "days/2"}, {"a,b", `c"d`, "e f"}} {
		var got []string
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.StringSliceVar(&got, "dataset", nil, "")
		if err := f.Parse([]string{"--dataset", List(values)}); err != nil || !slices.Equal(got, values) {
			t.Errorf("%q becomes %q and then %q: %v", values, List(values), got, err)
		}
	}
}

package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"shaver/internal/base/fault"
)

// A flag that takes one value is refused if it is given twice with different values, by its name or its
// letter. Lists may be repeated.
func TestRepeatedFlags(t *testing.T) {
	args := os.Args
	t.Cleanup(func() { os.Args = args })
	for line, want := range map[string]string{
		"--seed 1 --seed 2":                     "--seed is given twice, as 1 and 2: expected one value",
		"--dense --dense=false":                 "--dense is given twice, as true and false: expected one value",
		"--seed=1 --passes 2 --seed 1":          "",
		"--sparsities 0.1 --sparsities 0.2":     "",
		"--aggregates sum --aggregates abs,sum": "",
	} {
		os.Args = append([]string{"shaver", "score", "a", "b"}, strings.Fields(line)...)
		var found []string
		root := command(func(c *cobra.Command) error { found = c.Flags().Args(); return nil })
		root.SetArgs(os.Args[1:])
		err := root.Execute()
		if want == "" && (err != nil || len(found) != 2) || want != "" && (!fault.IsUsage(err) || err.Error() != want) {
			t.Errorf("%s: %v, arguments %q; expected %q", line, err, found, want)
		}
	}
	os.Args = []string{"shaver", "other", "--seed", "1", "--seed", "2"}
	root := command(func(*cobra.Command) error { return nil })
	root.SetArgs([]string{"score", "a", "b", "--seed", "3"})
	if err := root.Execute(); err != nil {
		t.Errorf("a command inside another one: %v", err)
	}
}

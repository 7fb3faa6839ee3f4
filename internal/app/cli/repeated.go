package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shaver/internal/base/fault"
)

// checkRepeated returns wrong usage if args, which are a command line for the root of c, give a flag of c
// two different values and the flag takes only one. It returns nil if they are a command line of another
// command, because a command may run others inside the process.
func checkRepeated(c *cobra.Command, args []string) error {
	found, rest, err := c.Root().Find(args)
	if err != nil || found != c {
		return nil
	}
	values := map[string]string{}
	return c.Flags().ParseAll(rest, func(f *pflag.Flag, value string) error {
		if before, ok := values[f.Name]; ok && before != value && !takesSeveral(f) {
			return fault.Usagef("--%s is given twice, as %s and %s: expected one value", f.Name, before, value)
		}
		values[f.Name] = value
		return nil
	})
}

// takesSeveral reports whether a flag that is repeated adds to its values.
func takesSeveral(f *pflag.Flag) bool {
	_, list := f.Value.(pflag.SliceValue)
	return list || strings.HasPrefix(f.Value.Type(), "stringTo")
}

package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpAllName is the name of the flag that prints the whole help of a command.
const helpAllName = "help-all"

// neededKey is the key of a command's annotation with the flags of its brief help.
const neededKey = "shaver_needed"

// Needed declares the common flags of c besides those of MarkRequired. It is for
// commands with many flags. "--help" shows only these flags, the required ones first, and
// "--help-all" shows all.
func Needed(c *cobra.Command, flags ...string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	for _, name := range flags {
		if c.Flags().Lookup(name) == nil {
			panic("cli: no flag --" + name)
		}
	}
	c.Annotations[neededKey] = strings.Join(flags, " ")
}

// hasNeeded reports whether Needed was called for c.
func hasNeeded(c *cobra.Command) bool {
	_, ok := c.Annotations[neededKey]
	return ok
}

// neededFlags returns the flags of c's brief help, in their order there.
func neededFlags(c *cobra.Command) *pflag.FlagSet {
	set := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	set.SortFlags = false
	for _, name := range append(strings.Fields(c.Annotations[requiredFlags]), strings.Fields(c.Annotations[neededKey])...) {
		set.AddFlag(c.Flags().Lookup(name))
	}
	return set
}

// asksHelp adds a flag that also sets the value of --help. Therefore cobra calls printHelp before it checks the
// command line.
func asksHelp(c *cobra.Command, name, usage string) *pflag.Flag {
	f := c.Flags().VarPF(helpValue{c.Flags()}, name, "", usage)
	f.NoOptDefVal = "true"
	return f
}

type helpValue struct{ flags *pflag.FlagSet }

func (h helpValue) Set(text string) error { return h.flags.Lookup("help").Value.Set(text) }
func (h helpValue) String() string        { return "false" }
func (h helpValue) Type() string          { return "bool" }
func (h helpValue) IsBoolFlag() bool      { return true }

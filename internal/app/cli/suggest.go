package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shaver/internal/base/fault"
)

// flagError turns an error of parsing flags into wrong usage. If a flag is unknown, the
// error suggests the nearest one. If a number is malformed, the error says what was
// expected.
func flagError(c *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		flag, cause := invalid.GetFlag(), errors.Unwrap(err)
		if expected := expectedValue(flag.Value.Type(), cause); expected != "" {
			return fault.Usagef("--%s %q: expected %s", flag.Name, invalid.GetValue(), expected)
		}
		return fault.Usagef("--%s %q: %w", flag.Name, invalid.GetValue(), cause)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return fault.Usagef("%w", err)
	}
	if c.HasSubCommands() && c.Flags().NArg() > 0 { // the flag may be one of the command that was meant
		return unknownCommand(c, c.Flags().Arg(0))
	}
	typed := unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		typed = short // -model is parsed as the short flags m, o, d, e and l
	}
	if to := c.Annotations[renamedKey+typed]; to != "" {
		return fault.Usagef("--%s is now %s", typed, to)
	}
	if to := movedTo(c, typed); to != "" {
		return fault.Usagef("--%s is now a flag of %s", typed, to)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if name := nearest(typed, names); name != "" {
		return fault.Usagef("%w: did you mean --%s?", err, name)
	}
	option := "help"
	if hasNeeded(c) {
		option = helpAllName
	}
	if others := commandsWith(c.Root(), typed); others != "" {
		return fault.Usagef("%w: it is a flag of %s; %s --%s lists the flags of this command", err, others, c.CommandPath(), option)
	}
	return fault.Usagef("%w: %s --%s lists the flags", err, c.CommandPath(), option)
}

// commandsWith names the commands below root that have a flag, at most three of them. It returns "" if no command has it.
func commandsWith(root *cobra.Command, flag string) string {
	var paths []string
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if f := c.Flags().Lookup(flag); f != nil && !f.Hidden && c.IsAvailableCommand() {
			paths = append(paths, c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	const most = 3
	if more := len(paths) - most; more > 0 {
		return fmt.Sprintf("%s and %d other commands", strings.Join(paths[:most], ", "), more)
	}
	return strings.Join(paths, ", ")
}

// movedKey is the beginning of the key of a command's annotation with the command that has
// one of its former flags. The flag's name follows.
const movedKey = "shaver_moved_"

// Moved declares former flags of c, which another command has now. Who gives one gets an
// error that names this command.
func Moved(c *cobra.Command, to string, flags ...string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	for _, name := range flags {
		c.Annotations[movedKey+name] = to
	}
}

// renamedKey is the beginning of the key of a command's annotation with the new name of one of its
// flags. The former name follows.
const renamedKey = "shaver_renamed_"

// Renamed declares a former name of a flag of c. Who gives it gets an error that it is now to, which
// is the new name and what else there is to know.
func Renamed(c *cobra.Command, name, to string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[renamedKey+name] = to
}

// movedTo returns the command that has a former flag of c, or "".
func movedTo(c *cobra.Command, flag string) string { return c.Annotations[movedKey+flag] }

// expectedValue describes the values of a flag's type. It returns "" if the cause of an
// invalid value says more.
func expectedValue(kind string, cause error) string {
	switch {
	case errors.Is(cause, strconv.ErrRange):
		return "a number in range"
	case kind == "float64Slice":
		return "numbers separated by commas"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case strings.HasPrefix(kind, "uint"):
		return "a whole number that is not negative"
	case strings.HasPrefix(kind, "int"):
		return "a whole number"
	case kind == "duration":
		return "a time such as 90s or 2h30m"
	case kind == "bool":
		return "true or false"
	}
	return ""
}

// unknownCommand returns wrong usage about a command that c does not have.
func unknownCommand(c *cobra.Command, typed string) error {
	return fault.Usagef("unknown command %q for %q: %s", typed, c.CommandPath(), suggestCommand(c, typed))
}

// suggestCommand returns the end of an error about a command that c does not have. If
// typed is the name of one of c's flags, such as version, the error suggests the flag.
func suggestCommand(c *cobra.Command, typed string) string {
	if c.Flags().Lookup(typed) != nil {
		return "did you mean " + c.CommandPath() + " --" + typed + "?"
	}
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(append(names, sub.Name()), sub.Aliases...)
		}
	}
	if name := nearest(typed, names); name != "" {
		return "did you mean " + c.CommandPath() + " " + name + "?"
	}
	return c.CommandPath() + " --help lists them"
}

// nearest returns the name that typed probably stands for. That is the name with the
// fewest edits, if these are at most 2 and fewer than the letters in typed. The plural counts
// as one edit. Otherwise it is the first name that begins with typed, or "".
func nearest(typed string, names []string) string {
	typed = strings.ToLower(typed)
	best, least := "", min(3, len(typed))
	for _, name := range names {
		n := edits(typed, name)
		if singular(typed) == singular(name) {
			n = min(n, 1)
		}
		if n < least {
			best, least = name, n
		}
	}
	for _, name := range names {
		if best == "" && len(typed) > 1 && strings.HasPrefix(name, typed) {
			best = name
		}
	}
	return best
}

// singular returns a noun without the ending of its plural.
func singular(noun string) string {
	if stem, ok := strings.CutSuffix(noun, "ies"); ok {
		return stem + "y"
	}
	return strings.TrimSuffix(noun, "s")
}

// edits returns the number of edits that turn a into b. An edit inserts, deletes or
// replaces a letter, or swaps two neighboring letters.
func edits(a, b string) int {
	n := make([][]int, len(a)+1) // n[i][j] is the number of edits that make b[:j] of a[:i]
	for i := range n {
		n[i] = make([]int, len(b)+1)
		for j := range n[i] {
			if i == 0 || j == 0 {
				n[i][j] = i + j
				continue
			}
			replace := n[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			n[i][j] = min(replace, n[i-1][j]+1, n[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				n[i][j] = min(n[i][j], n[i-2][j-2]+1)
			}
		}
	}
	return n[len(a)][len(b)]
}

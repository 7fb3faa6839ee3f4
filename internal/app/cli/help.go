package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/base/fault"
)

// helpWidth is the largest number of columns in a line of help.
const helpWidth = 80

// helpName is the name of the command that prints help.
const helpName = "help"

// Setup gives the root command of a program what all programs have: help, --version,
// suggestions for mistyped names, and errors that Main prints. Main calls it. Tests and
// generators that need the help call it too.
func Setup(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(usage)
	root.SetHelpFunc(printHelp)
	root.Version = version()
	asksHelp(root, versionName, "print the version, the commit, the kernel and the protocol")
	// Only flags and arguments that are declared as files complete to files.
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	if root.HasSubCommands() {
		root.InitDefaultHelpCmd()
		helpCommand(root)
	}
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := checkValues(c); err != nil {
			return err
		}
		return fromEnvironment(c)
	}
	setupAll(root)
}

// setupAll completes the help of the flags of c and of all commands below it.
func setupAll(c *cobra.Command) {
	c.InitDefaultHelpFlag()
	c.Flags().Lookup("help").Usage = "print this help"
	if hasNeeded(c) {
		c.Flags().Lookup("help").Usage = "print a brief help; --" + helpAllName + " prints all of it"
	}
	asksHelp(c, helpAllName, "print all of the help").Hidden = true
	describeVariables(c)
	for _, sub := range c.Commands() {
		setupAll(sub)
	}
}

// helpCommand changes cobra's help command, which exits with code 0 even if the named
// command does not exist.
func helpCommand(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.Name() != helpName {
			continue
		}
		c.Use, c.Short = "help [COMMAND...]", "Print help for a command or topic"
		c.Long = "Print help for a command or topic."
		c.Example = "  " + root.Name() + " help exit-codes"
		c.Run = nil
		c.RunE = func(_ *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if len(rest) > 0 {
				return unknownCommand(found, rest[0])
			}
			if err != nil {
				return fault.Usagef("%w", err)
			}
			return found.Help()
		}
	}
}

// ExitCodes returns the help topic "exit-codes".
func ExitCodes() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "List the exit codes", Long: ExitHelp}
}

// printHelp prints the help of c. If flags of c are marked as needed, and --help-all is not
// given, the help is brief: it has the first paragraph, the needed flags and the examples.
// If --version is given, and --help is not, printHelp prints the version instead. A template
// of cobra's would link package text/template, which calls methods by their names, so that the
// linker could not remove unused ones.
func printHelp(c *cobra.Command, _ []string) {
	if c.Flags().Changed(versionName) && !c.Flags().Changed("help") {
		_ = printVersion(c) // as with help, there is nobody to return an error to
		return
	}
	text := strings.TrimSpace(c.Long)
	if isBrief(c) {
		text, _, _ = strings.Cut(text, "\n\n")
	}
	fmt.Fprintf(c.OutOrStdout(), "%s\n\n", text)
	if c.Runnable() || c.HasSubCommands() {
		fmt.Fprint(c.OutOrStdout(), c.UsageString())
	}
}

// isBrief reports whether the help of c leaves out flags.
func isBrief(c *cobra.Command) bool { return hasNeeded(c) && !c.Flags().Changed(helpAllName) }

// usage prints how to use c, after its long description.
func usage(c *cobra.Command) error {
	w := c.OutOrStderr()
	if c.IsAdditionalHelpTopicCommand() {
		return nil
	}
	brief := isBrief(c)
	if c.HasAvailableSubCommands() {
		fmt.Fprint(w, "Usage:\n")
		if c.Annotations[requiredFlags] != "" { // it does something itself
			fmt.Fprintf(w, "  %s\n", c.UseLine())
		}
		fmt.Fprintf(w, "  %s COMMAND\n", c.CommandPath())
	} else {
		fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
	}
	if len(c.Aliases) > 0 {
		fmt.Fprintf(w, "\nAliases:\n  %s\n", c.NameAndAliases())
	}
	if brief {
		needed := neededFlags(c)
		fmt.Fprintf(w, "\nCommon flags:\n%s\n", strings.TrimRight(needed.FlagUsagesWrapped(helpWidth), "\n"))
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	for _, group := range c.Groups() {
		usageCommands(w, c, group.Title, group.ID)
	}
	usageCommands(w, c, "Commands:", "")
	if c.HasAvailableLocalFlags() && !brief {
		fmt.Fprintf(w, "\n%s\n", FlagHelp(c))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nRun %q for more about a command.\n", c.CommandPath()+" COMMAND --help")
	}
	if brief {
		fmt.Fprintf(w, "\nRun %q for all flags and details.\n", c.CommandPath()+" --"+helpAllName)
		return nil
	}
	if root := c.Root(); root.HasSubCommands() && !strings.Contains(c.Long, ExitHelp) {
		fmt.Fprintf(w, "\nRun %q for the exit codes.\n", root.Name()+" help exit-codes")
	}
	return nil
}

// usageCommands lists the commands and topics below c that are in a group. Without any,
// it prints nothing.
func usageCommands(w io.Writer, c *cobra.Command, title, group string) {
	for _, sub := range c.Commands() {
		if sub.GroupID != group || sub.Hidden || sub.Deprecated != "" {
			continue
		}
		if title != "" {
			fmt.Fprintf(w, "\n%s\n", title)
			title = ""
		}
		fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
	}
}

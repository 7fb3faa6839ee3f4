// Command shaver gives every entry of a click model's embedding table its
// Shapley value, prunes the table by it, and measures what that cost.
package main

import (
	"cmp"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/cli"
)

func main() { os.Exit(cli.Main(newRoot())) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "shaver",
		Short: "Prune a click model's embedding table by Shapley values",
		Long: `shaver gives every entry of a click model's embedding table its Shapley value,
prunes the table by it to any budget, and measures what that cost.

` + cli.ExitHelp,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		quickstartCommand(),
		group("model", "Look at checkpoints, convert them", modelInspectCommand(), modelConvertCommand()),
		group("dataset", "Make and look at datasets", group("import", "Make a dataset", importCommands()...), datasetInspectCommand(), datasetSynthCommand()),
		planCommand(),
		scoreCommand(),
		group("scores", "Look at scores", scoresInspectCommand(), scoresExportCommand(), scoresCompareCommand(), scoresFrequencyCommand()),
		pruneCommand(),
		evaluateCommand(),
		sweepCommand(),
		studyCommand(),
		reportCommand(),
		group("job", "Look after jobs of a cluster", jobCommands()...),
	)
	tellExitCodes(root)
	return root
}

// tellExitCodes adds them to the help of each command below c that works.
func tellExitCodes(c *cobra.Command) {
	for _, sub := range c.Commands() {
		tellExitCodes(sub)
	}
	if !c.HasSubCommands() && !strings.Contains(c.Long, cli.ExitHelp) {
		c.Long = cmp.Or(c.Long, c.Short+".") + "\n\n" + cli.ExitHelp
	}
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(commands...)
	return c
}

// Command shaver finds the order in which the entries of a click model's embedding table can be dropped, or the Shapley value of
// each, prunes the table, and measures what the pruning costs.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/places"
)

func main() { os.Exit(cli.Main(newRoot)) }

// The groups of commands in the help, in this order.
const (
	startGroup   = "start"
	dataGroup    = "data"
	modelsGroup  = "models"
	scoresGroup  = "scores"
	pruningGroup = "pruning"
	nightsGroup  = "nights"
	jobsGroup    = "jobs"
	helpGroup    = "help"
)

// newRoot returns "shaver" with all its commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "shaver",
		Short: "Prune a click model's embedding table",
		Long: `shaver finds the order in which the entries of a click model's embedding table
can be dropped, or the Shapley value of each, prunes the table to any budget,
and measures what the pruning costs.`,
		Example: help.Text("shaver.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	in := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	in(startGroup, "Start here:", quickstartCommand(), compressCommand())
	in(dataGroup, "Datasets:", group("dataset", "Import, inspect and generate datasets",
		"  shaver dataset import csv --train train.csv.gz --split 8:1:1 --out data\n  shaver dataset inspect data",
		group("import", "Make a dataset from files of rows",
			"  shaver dataset import criteo day_*.gz --out data\n  shaver dataset import csv --train train.csv.gz --split 8:1:1 --out data",
			importCommands()...),
		datasetInspectCommand(), datasetSynthCommand()))
	in(modelsGroup, "Models:", trainCommand(), group("model", "Inspect and convert checkpoints",
		"  shaver model inspect model.pth\n  shaver model convert pruned.safetensors dense.safetensors --dense",
		modelInspectCommand(), modelExportHelpCommand(), modelConvertCommand(), modelDeltaCommand(), modelApplyCommand()))
	in(scoresGroup, "Scores:", planCommand(), scoreCommand(), group("scores", "Inspect, export and compare scores files",
		"  shaver scores inspect scores.arrow\n  shaver scores compare tuesday.arrow monday.arrow",
		scoresInspectCommand(), scoresExportCommand(), scoresWorthCommand(), scoresCompareCommand(), scoresFrequencyCommand()))
	in(pruningGroup, "Pruning:", pruneCommand(), tuneCommand(), evaluateCommand(), explainCommand(), checkCommand(), sweepCommand(), studyCommand(), benchmarkCommand(), reportCommand())
	in(nightsGroup, "Every night:", nightlyCommand())
	in(jobsGroup, "Jobs on a cluster:", group("job", "List, watch and cancel jobs on a NATS server",
		"  shaver job list --nats nats://nats:4222\n  shaver job watch 0123456789abcdef0123 --nats nats://nats:4222",
		jobCommands()...))
	in(helpGroup, "Help:", cli.CompletionCommand("shaver"), cli.Environment(), cli.ExitCodes(), cli.VersionCommand())
	root.SetHelpCommandGroupID(helpGroup)
	return places.WrapAll(root)
}

// group returns a command that only has subcommands.
func group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: short + ".", Example: example, Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(commands...)
	return c
}

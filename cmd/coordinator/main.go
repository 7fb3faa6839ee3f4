// Command coordinator runs one shaver job on a cluster's workers.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/score"
)

func main() {
	os.Exit(cli.Main(func() *cobra.Command { return score.CoordinatorCommand() }))
}

// Command worker computes the tasks of shaver jobs.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
)

func main() {
	os.Exit(cli.Main(func() *cobra.Command { return launch.WorkCommand("worker") }))
}

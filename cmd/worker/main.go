// Command worker computes the tasks of shaver jobs.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/work"
)

func main() {
	os.Exit(cli.Main(func() *cobra.Command { return work.Command("worker") }))
}

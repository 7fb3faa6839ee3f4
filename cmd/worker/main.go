// Command worker computes the tasks of shaver jobs.
package main

import (
	"os"

	"shaver/internal/cli"
)

func main() { os.Exit(cli.Main(cli.WorkCommand("worker"))) }

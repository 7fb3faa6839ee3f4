// Command worker computes the tasks of shaver jobs.
package main

import (
	"os"

	"shaver/internal/cli"
	"shaver/internal/launch"
)

func main() { os.Exit(cli.Main(launch.WorkCommand("worker"))) }

// Command coordinator runs one shaver job on a cluster's workers.
package main

import (
	"os"

	"shaver/internal/cli"
	"shaver/internal/launch"
)

func main() { os.Exit(cli.Main(launch.ScoreCommand("coordinator", true))) }

// Command coordinator runs one shaver job on a cluster's workers.
package main

import (
	"os"

	"shaver/internal/cli"
)

func main() { os.Exit(cli.Main(cli.ScoreCommand("coordinator", true))) }

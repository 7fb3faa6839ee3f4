package main

import (
	"github.com/spf13/cobra"

	"shaver/internal/app/launch"
)

func scoreCommand() *cobra.Command { return launch.ScoreCommand() }

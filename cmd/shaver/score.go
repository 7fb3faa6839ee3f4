package main

import (
	"github.com/spf13/cobra"

	"shaver/internal/app/score"
)

func scoreCommand() *cobra.Command { return score.Command() }

// Package help has the long help texts of shaver's commands.
package help

import (
	"embed"

	"shaver/internal/app/cli"
)

// texts holds the long texts of commands and, in NAME.example.txt, the long examples.
// scores export replaces LEAST_ROWS.
//
//go:embed *.txt
var texts embed.FS

// Text returns the texts of the files NAME.txt, with an empty line between two.
func Text(names ...string) string { return cli.HelpTextIn(texts, ".", names...) }

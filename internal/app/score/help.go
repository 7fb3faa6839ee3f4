package score

import (
	"embed"

	"shaver/internal/app/cli"
)

// helpTexts holds the long texts of commands and, in NAME.example.txt, the long examples.
// scoreHelp replaces ESTIMATORS.
//
//go:embed help/*.txt
var helpTexts embed.FS

// help returns the texts of the files help/NAME.txt, with an empty line between two.
func help(names ...string) string { return cli.HelpText(helpTexts, names...) }

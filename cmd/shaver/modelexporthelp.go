package main

import (
	"embed"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
)

// snippets holds one Python file for each framework, which exports the framework's models
// to ONNX. testdata/onnx/snippets.py tries them with the packages.
//
//go:embed snippets/*.py
var snippets embed.FS

// frameworks returns the frameworks that have a snippet, in alphabetical order.
func frameworks() []string {
	files, err := fs.Glob(snippets, "snippets/*.py")
	if err != nil {
		panic(err) // the pattern is valid
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(path.Base(file), ".py")
	}
	slices.Sort(files)
	return files
}

// snippet returns the Python text for a framework.
func snippet(framework string) (string, error) {
	text, err := snippets.ReadFile("snippets/" + framework + ".py")
	return string(text), err
}

func modelExportHelpCommand() *cobra.Command {
	var framework string
	c := &cobra.Command{
		Use:   "export-help",
		Short: "Print the Python lines that export a framework's model to ONNX",
		Long:  help.Text("model-export-help"),
		Example: `  shaver model export-help --for fuxictr
  shaver model export-help --for keras > export.py`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("for") {
				return listFrameworks(c.OutOrStdout())
			}
			text, err := snippet(framework)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write([]byte(text))
			return err
		},
	}
	flags.OneOf(c, &framework, "for", "", "`framework` of the model: "+strings.Join(frameworks(), ", ")+" (default a list of them)", frameworks()...)
	return c
}

// listFrameworks writes the command line for each framework.
func listFrameworks(w io.Writer) error {
	var text strings.Builder
	text.WriteString("Each of these commands prints the lines that export a trained model to ONNX:\n")
	for _, name := range frameworks() {
		text.WriteString("  shaver model export-help --for " + name + "\n")
	}
	text.WriteString("For a module of your own, take pytorch.\n")
	_, err := io.WriteString(w, text.String())
	return err
}

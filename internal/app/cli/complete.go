package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shaver/internal/base/fault"
)

// Checkpoints are the extensions of files with models, for completion.
var Checkpoints = []string{"pth", "safetensors", "onnx"}

// Choices completes the values of a flag. If the flag takes a list, it completes the
// last element.
func Choices(c *cobra.Command, flag string, values ...string) {
	takesList := strings.HasSuffix(c.Flag(flag).Value.Type(), "Slice")
	register(c, flag, func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if !takesList {
			return values, cobra.ShellCompDirectiveNoFileComp
		}
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		var completions []cobra.Completion
		for _, value := range values {
			completions = append(completions, before+value)
		}
		return completions, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// oneOf is the key of a flag's annotation with its only values.
const oneOf = "shaver_one_of"

// OneOf is like Choices for a flag that takes no other values. Another value is refused
// before the command runs.
func OneOf(c *cobra.Command, flag string, values ...string) {
	Choices(c, flag, values...)
	if err := c.Flags().SetAnnotation(flag, oneOf, values); err != nil {
		panic(err)
	}
}

// checkValues returns wrong usage for a flag of OneOf that has another value.
func checkValues(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		values := f.Annotations[oneOf]
		if len(values) == 0 || err != nil {
			return
		}
		given := []string{f.Value.String()}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			given = several.GetSlice()
		}
		for _, value := range given {
			if !slices.Contains(values, value) {
				err = fault.Usagef("--%s %q: expected %s", f.Name, value, list(values, "or"))
			}
		}
	})
	return err
}

// Files completes a flag to files with one of the extensions, which are given without a
// dot. Without extensions it completes to all files.
func Files(c *cobra.Command, flag string, extensions ...string) {
	register(c, flag, FileArgs(extensions...))
}

// Folder completes a flag to folders.
func Folder(c *cobra.Command, flag string) { register(c, flag, FolderArgs) }

// register sets the completion of a flag, which must exist.
func register(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err)
	}
}

// FileArgs completes positional arguments to files with one of the extensions, or to
// all files if there are no extensions.
func FileArgs(extensions ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(extensions) == 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	}
}

// FolderArgs completes positional arguments to folders.
func FolderArgs(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// CompletionCommand returns the command that prints completion scripts of a program.
func CompletionCommand(program string) *cobra.Command {
	scripts := map[string]func(*cobra.Command, io.Writer) error{
		"bash":       func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) },
		"fish":       func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) },
		"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
		"zsh":        (*cobra.Command).GenZshCompletion,
	}
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for a shell",
		Long: fmt.Sprintf(`Print a script that completes commands, flags and their values in SHELL: bash,
zsh, fish or powershell. Load the script in each session, or write it once to
where the shell looks for completions. In PowerShell, run "%s completion
powershell | Out-String | Invoke-Expression".`, program),
		Example: strings.ReplaceAll(`  source <(PROGRAM completion bash)
  PROGRAM completion bash > /etc/bash_completion.d/PROGRAM
  PROGRAM completion zsh > "${fpath[1]}/_PROGRAM"
  PROGRAM completion fish > ~/.config/fish/completions/PROGRAM.fish`, "PROGRAM", program),
		Args:      Args(cobra.ExactArgs(1)),
		ValidArgs: shells,
		RunE: func(c *cobra.Command, args []string) error {
			script := scripts[args[0]]
			if script == nil {
				return fault.Usagef("shell %q: expected %s", args[0], list(shells, "or"))
			}
			return script(c.Root(), c.OutOrStdout())
		},
	}
}

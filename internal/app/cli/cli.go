// Package cli is what the programs have in common on the command line: exit codes,
// signals, help, completion, version, output, logs, progress, and the flags that
// several commands share.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus"
)

// Exit codes. They are stable: scripts and Kubernetes act on them.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnconverged = 3   // the scores are written, but the stop rule is not met
	ExitIncomplete  = 4   // the scores are written, but they lack the rows of some shards
	ExitFenced      = 5   // another process leads the job, has ended it or has written the output; do not retry
	ExitCancelled   = 6   // somebody cancelled the job; do not retry
	ExitGate        = 7   // the pruned model failed its check
	ExitBadInput    = 42  // do not retry
	ExitDrained     = 75  // the worker was asked to leave; start another one
	ExitInterrupted = 130 // Ctrl-C, SIGTERM or SIGHUP
)

// ExitHelp documents the codes, in "shaver help exit-codes" and in the help of the
// commands that run jobs.
const ExitHelp = `Exit codes:
    0  done
    1  failed; trying again may help
    2  wrong usage
    3  the scores are written, but they have not converged
    4  finished, but some shards could not be computed and were left out
    5  another process leads the job, has ended it or has written the output
    6  somebody cancelled the job with shaver job cancel
    7  the pruned model failed its check
   42  bad input; trying again does not help
   75  the worker was asked to leave and has finished its task
  130  interrupted by Ctrl-C or another signal`

// ErrDrained ends a worker that was asked to leave and has finished its task.
var ErrDrained = errors.New("drained")

// ErrIncomplete ends a job that finished without the shards that could not be
// computed.
var ErrIncomplete = errors.New("some shards could not be computed and were left out")

// ErrUnconverged ends a job that wrote its scores although its stop rule was not
// met, or its time was over before all rows were scored.
var ErrUnconverged = errors.New("not converged")

// ErrGate ends a check that found the pruned model worse than allowed.
var ErrGate = errors.New("the pruned model failed its check")

// ErrOvertaken ends a command because another process has written its output, or works on it.
var ErrOvertaken = errors.New("another process writes the output")

// Main makes a program's root command, runs it with the process's arguments, and returns
// its exit code. Ctrl-C, SIGTERM and SIGHUP cancel the command's context. The process then
// ends within about a second, unless the command has called Drain. A second Ctrl-C or
// SIGTERM ends it at once.
func Main(newRoot func() *cobra.Command) int {
	followQuota()
	ctx, stop := interruptible()
	defer stop()
	root := newRoot()
	Setup(root)
	root.SetErr(PrintableWriter(os.Stderr))
	last := lastWords{root.Name(), logsJSON(os.Args[1:])}
	err := root.ExecuteContext(leaveInTime(ctx, last))
	code := exitCode(ctx, err)
	switch code {
	case ExitDone, ExitDrained:
	case ExitInterrupted:
		last.interrupted()
	default:
		last.failed(err, code)
	}
	return code
}

func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, ErrDrained):
		return ExitDrained
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, bus.ErrCancelled):
		return ExitCancelled
	case errors.Is(err, ErrUnconverged):
		return ExitUnconverged
	case errors.Is(err, ErrIncomplete):
		return ExitIncomplete
	case errors.Is(err, ErrGate):
		return ExitGate
	case errors.Is(err, bus.ErrFenced), errors.Is(err, bus.ErrEnded), errors.Is(err, ErrOvertaken):
		return ExitFenced
	case fault.IsUsage(err):
		return ExitUsage
	case fault.IsInput(err), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return ExitBadInput
	}
	return ExitFailed
}

// Args returns check with errors of wrong usage. If arguments are missing, the error names
// them as Use does. If the command has subcommands, the error suggests the nearest one.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		err := check(c, args)
		if err == nil {
			return nil
		}
		if c.HasSubCommands() && len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		var wanted []string // the arguments in Use, such as FILE
		for _, word := range strings.Fields(c.Use)[1:] {
			wanted = append(wanted, strings.TrimSuffix(word, "..."))
		}
		switch {
		case len(args) < len(wanted):
			return fault.Usagef("%s needs %s", c.CommandPath(), list(wanted[len(args):], "and"))
		case len(wanted) == 0:
			return fault.Usagef("unexpected argument %q: %s takes flags only", args[0], c.CommandPath())
		}
		return fault.Usagef("unexpected argument %q: %s takes %s and flags", args[len(wanted)], c.CommandPath(), list(wanted, "and"))
	}
}

// Given reports whether the user gave a setting, by the name of its flag. It belongs to the options of a step, which a command
// or a file of settings sets.
type Given func(setting string) bool

// Has is false for a nil Given.
func (g Given) Has(setting string) bool { return g != nil && g(setting) }

// requiredFlags is the key of the annotation that lists a command's required flags.
const requiredFlags = "shaver_required"

// MarkRequired declares flags of c that Required checks, and says so in their help.
func MarkRequired(c *cobra.Command, flags ...string) {
	for _, name := range flags {
		c.Flags().Lookup(name).Usage += " (required)"
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[requiredFlags] = strings.Join(flags, " ")
}

// Required returns wrong usage that names all of the flags that were not given, or the
// first one whose value is empty. Without flags it checks those that MarkRequired declared.
func Required(c *cobra.Command, flags ...string) error {
	if len(flags) == 0 {
		flags = strings.Fields(c.Annotations[requiredFlags])
	}
	var missing []string
	for _, name := range flags {
		if !given(c.Flags().Lookup(name)) {
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) > 0 {
		return fault.Usagef("%s needs %s", c.CommandPath(), list(missing, "and"))
	}
	for _, name := range flags {
		f := c.Flags().Lookup(name)
		kind, _ := pflag.UnquoteUsage(f)
		// A command reports an empty list itself, unless it is one of folders.
		if text := f.Value.String(); f.Value.Type() == "string" && text == "" || kind == "folder" && text == "[]" {
			expected := "a value"
			if kind == "file" || kind == "folder" {
				expected = "the name of a " + kind
			}
			return fault.Usagef("--%s \"\": expected %s", name, expected)
		}
	}
	return nil
}

// Run returns the RunE of a command. It calls Required, then each of the checks, and then run.
func Run(run func(c *cobra.Command, args []string) error, checks ...func() error) func(c *cobra.Command, args []string) error {
	return func(c *cobra.Command, args []string) error {
		if err := Required(c); err != nil {
			return err
		}
		for _, check := range checks {
			if err := check(); err != nil {
				return err
			}
		}
		return run(c, args)
	}
}

// list joins words as a sentence does: "a, b and c".
func list(words []string, conjunction string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// Output is a command's -o flag.
type Output struct {
	format  string
	oneLine bool
	command *cobra.Command // has the flag
}

// Flag adds -o to a command.
func (o *Output) Flag(c *cobra.Command) {
	o.command = c
	c.Flags().StringVarP(&o.format, "output", "o", "table", "`format` of what is printed: table or json")
	Choices(c, "output", "table", "json")
	Group(c, OutputFlags, "output")
}

// Check returns wrong usage for an unknown format. Commands call it before they
// begin to work.
func (o *Output) Check() error {
	if o.format != "table" && o.format != "json" {
		return fault.Usagef("-o %s: the formats are table and json", o.format)
	}
	return nil
}

// JSON reports whether the format is JSON.
func (o *Output) JSON() bool { return o.format == "json" }

// OneLine makes Print write JSON on one line.
func (o *Output) OneLine() { o.oneLine = true }

// Print writes value as JSON, or calls table with a writer that aligns columns
// separated by tabs. Invisible characters are escaped. In text that may contain tabs and
// line ends table escapes these with Printable.
func (o *Output) Print(w io.Writer, value any, table func(io.Writer)) error {
	var text strings.Builder
	if o.format == "json" {
		if err := writeJSON(&text, value, o.oneLine); err != nil {
			return err
		}
		_, err := io.WriteString(w, o.renamed(text.String()))
		return err
	}
	table(&text)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if _, err := io.WriteString(t, escape(o.renamed(text.String()), "\t\n")); err != nil {
		return err
	}
	return t.Flush()
}

// renameKey is the key of a function in a context that changes what commands print.
type renameKey struct{}

// WithRename makes Print change all text by rename, for commands with the context that it
// returns. It is for commands that work on copies of the files that the user named.
func WithRename(ctx context.Context, rename func(text string) string) context.Context {
	return context.WithValue(ctx, renameKey{}, rename)
}

func (o *Output) renamed(text string) string {
	if o.command == nil || o.command.Context() == nil {
		return text
	}
	return renamed(o.command.Context(), text)
}

func renamed(ctx context.Context, text string) string {
	if rename, ok := ctx.Value(renameKey{}).(func(string) string); ok {
		return rename(text)
	}
	return text
}

// Document returns value as "-o json" prints it in a command with this context.
func Document(ctx context.Context, value any) (string, error) {
	var text strings.Builder
	err := WriteJSON(&text, value)
	return renamed(ctx, text.String()), err
}

// WriteJSON writes value as "-o json" prints it. Invisible characters are escaped, which
// leaves the value the same.
func WriteJSON(w io.Writer, value any) error { return writeJSON(w, value, false) }

func writeJSON(w io.Writer, value any, oneLine bool) error {
	var text strings.Builder
	e := json.NewEncoder(&text)
	if !oneLine {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, escape(text.String(), "\n"))
	return err
}

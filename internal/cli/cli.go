// Package cli is what the programs have in common on the command line: exit codes,
// signals, help, completion, version, output, logs, progress, and the flags that
// several commands share.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"shaver/internal/bus"
	"shaver/internal/fault"
)

// Exit codes. They are stable: scripts and Kubernetes act on them.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnconverged = 3   // the scores are written, but the stop rule is not met
	ExitIncomplete  = 4   // the scores are written, but they lack the rows of some shards
	ExitFenced      = 5   // another coordinator leads the job or has ended it; do not retry
	ExitBadInput    = 42  // do not retry
	ExitDrained     = 75  // the worker was asked to leave; start another one
	ExitCancelled   = 130 // Ctrl-C
)

// ExitHelp documents the codes, in "shaver help exit-codes" and in the help of the
// commands that run jobs.
const ExitHelp = `Exit codes:
    0  done
    1  failed; trying again may help
    2  wrong usage
    3  the scores are written, but they have not converged
    4  finished, but some shards could not be computed and were left out
    5  another coordinator leads the job or has ended it
   42  bad input; trying again does not help
   75  the worker was asked to leave and has finished its task
  130  cancelled`

// ErrDrained ends a worker that was asked to leave and has finished its task.
var ErrDrained = errors.New("drained")

// ErrIncomplete ends a job that finished without the shards that could not be
// computed.
var ErrIncomplete = errors.New("some shards could not be computed and were left out")

// ErrUnconverged ends a job that wrote its scores although its stop rule was not
// met, or its time was over before all rows were scored.
var ErrUnconverged = errors.New("not converged")

// ErrCancelled ends a job that somebody cancelled.
var ErrCancelled = errors.New("cancelled")

// Main sets up a program's root command, runs it with the process's arguments, and
// returns its exit code. Ctrl-C and SIGTERM cancel the command's context. A second
// signal ends the process.
func Main(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on a signal has its usual effect
	Setup(root)
	err := root.ExecuteContext(ctx)
	code := exitCode(ctx, err)
	switch code {
	case ExitDone, ExitDrained:
	case ExitCancelled:
		fmt.Fprintln(os.Stderr, root.Name()+": cancelled")
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", root.Name(), err)
	}
	return code
}

func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, ErrDrained):
		return ExitDrained
	case ctx.Err() != nil && errors.Is(err, context.Canceled), errors.Is(err, ErrCancelled):
		return ExitCancelled
	case errors.Is(err, ErrUnconverged):
		return ExitUnconverged
	case errors.Is(err, ErrIncomplete):
		return ExitIncomplete
	case errors.Is(err, bus.ErrFenced), errors.Is(err, bus.ErrEnded):
		return ExitFenced
	case fault.IsUsage(err):
		return ExitUsage
	case fault.IsInput(err), errors.Is(err, fs.ErrNotExist):
		return ExitBadInput
	}
	return ExitFailed
}

// Args returns check with errors of wrong usage. If the command has subcommands, the
// error suggests the nearest one.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		err := check(c, args)
		switch {
		case err == nil:
			return nil
		case c.HasSubCommands() && len(args) > 0:
			return fault.Usagef("unknown command %q for %q: %s", args[0], c.CommandPath(), suggestCommand(c, args[0]))
		case !strings.Contains(c.Use, " ") && len(args) > 0:
			return fault.Usagef("unexpected argument %q: %s takes flags only", args[0], c.CommandPath())
		}
		return fault.Usagef("%w (%s)", err, c.UseLine())
	}
}

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

// Required returns wrong usage that names all of the flags that were not given. Without
// flags it checks those that MarkRequired declared.
func Required(c *cobra.Command, flags ...string) error {
	if len(flags) == 0 {
		flags = strings.Fields(c.Annotations[requiredFlags])
	}
	var missing []string
	for _, name := range flags {
		if !c.Flags().Changed(name) {
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fault.Usagef("%s needs %s", c.CommandPath(), list(missing, "and"))
}

// list joins words as a sentence does: "a, b and c".
func list(words []string, conjunction string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// CheckOut returns an error unless a file can be written at path without replacing one
// of the inputs. Commands call it before they begin work that may take hours. They write
// a new file and then rename it (package atomicfile), which would replace a device. So
// whatever is at path must be a regular file.
func CheckOut(path string, inputs ...string) error {
	if there, err := os.Stat(path); err == nil {
		if !there.Mode().IsRegular() {
			return fault.Usagef("cannot write %s: it exists and is not a regular file", path)
		}
		for _, input := range inputs {
			if given, err := os.Stat(input); err == nil && os.SameFile(there, given) {
				return fault.Usagef("cannot write %s: it is an input of this command; name another file", path)
			}
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err // without the temporary name
		}
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Output is a command's -o flag.
type Output struct{ format string }

// Flag adds -o to a command.
func (o *Output) Flag(c *cobra.Command) {
	c.Flags().StringVarP(&o.format, "output", "o", "table", "`format` of what is printed: table or json")
	Choices(c, "output", "table", "json")
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

// Print writes value as JSON, or calls table with a writer that aligns columns
// separated by tabs.
func (o *Output) Print(w io.Writer, value any, table func(io.Writer)) error {
	if o.format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(value)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	table(t)
	return t.Flush()
}

// LogFlags adds --log and --verbose to c, bound to format and verbose.
func LogFlags(c *cobra.Command, format *string, verbose *bool) {
	c.Flags().StringVar(format, "log", "text", "`format` of the log on stderr: text or json")
	c.Flags().BoolVarP(verbose, "verbose", "v", false, "log more, for troubleshooting")
	Choices(c, "log", "text", "json")
}

// Logger returns a logger to stderr with the format "text" or "json". On a terminal
// levels have colors, unless NO_COLOR is set. verbose adds messages that are only
// useful for finding a fault.
func Logger(format string, verbose bool) (*zap.Logger, error) {
	level := zapcore.InfoLevel
	if verbose {
		level = zapcore.DebugLevel
	}
	var encoder zapcore.Encoder
	switch format {
	case "text":
		c := zap.NewDevelopmentEncoderConfig()
		c.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05")
		c.EncodeCaller, c.CallerKey = nil, zapcore.OmitKey
		c.EncodeLevel = zapcore.CapitalLevelEncoder
		if term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("NO_COLOR") == "" {
			c.EncodeLevel = zapcore.CapitalColorLevelEncoder
		}
		encoder = zapcore.NewConsoleEncoder(c)
	case "json":
		encoder = zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	default:
		return nil, fault.Usagef("--log %s: the formats are text and json", format)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level)), nil
}

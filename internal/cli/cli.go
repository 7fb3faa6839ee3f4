// Package cli is what the programs have in common on the command line: exit codes,
// signals, output, logs, progress, and the flags that several commands have.
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
	ExitUnconverged = 3   // the scores are written, and the rule to stop by is not met
	ExitIncomplete  = 4   // the scores are written, and lack the rows of some shards
	ExitFenced      = 5   // another coordinator leads or has ended the job: leave it alone
	ExitBadInput    = 42  // do not retry
	ExitDrained     = 75  // a worker that was asked to leave: replace it
	ExitCancelled   = 130 // Ctrl-C
)

// ExitHelp documents the codes in the help of every program.
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

// ErrDrained ends a worker that was asked to leave and did so in order.
var ErrDrained = errors.New("drained")

// ErrIncomplete ends a job that finished without the shards that could not be
// computed.
var ErrIncomplete = errors.New("some shards could not be computed and were left out")

// ErrUnconverged ends a job that wrote its scores before its rule to stop by was
// met, or its time was over before all was done.
var ErrUnconverged = errors.New("not converged")

// ErrCancelled ends a job that somebody cancelled.
var ErrCancelled = errors.New("cancelled")

// Main runs a program's root command with the process's arguments, and returns
// its exit code. Ctrl-C and SIGTERM cancel the command's context; a second one
// ends the process.
func Main(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on a signal has its usual effect
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fault.Usagef("%w", err) })
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

// Args makes cobra's check of positional arguments wrong usage.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil && c.HasSubCommands() {
			return fault.Usagef("%w: %s --help lists them", err, c.CommandPath())
		} else if err != nil {
			return fault.Usagef("%w (%s)", err, c.UseLine())
		}
		return nil
	}
}

// Required returns wrong usage that names the first of the flags that was not
// given.
func Required(c *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if !c.Flags().Changed(name) {
			return fault.Usagef("%s needs --%s", c.CommandPath(), name)
		}
	}
	return nil
}

// CheckOut returns an error unless a file can be written at path, in place of none of
// the inputs. Commands call it before they begin with what may take hours. Writing is
// by a new file that takes the name (atomicfile), so it would not spare a device.
func CheckOut(path string, inputs ...string) error {
	if there, err := os.Stat(path); err == nil {
		if !there.Mode().IsRegular() {
			return fault.Usagef("cannot write %s: it is there and no ordinary file", path)
		}
		for _, input := range inputs {
			if given, err := os.Stat(input); err == nil && os.SameFile(there, given) {
				return fault.Usagef("cannot write %s: it is what is to be read: name another file", path)
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
	c.Flags().StringVarP(&o.format, "output", "o", "table", "what to print: table or json")
}

// Check returns wrong usage for an unknown format; commands call it before they
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

// Logger returns a logger to stderr: lines for people on a terminal, JSON
// elsewhere if asked. verbose adds what is only of use to find a fault.
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

package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"shaver/internal/base/atomicfile"
)

// leaveWithin is the time for which a command may continue after a signal. Most commands
// return at once. Some steps, such as sorting, do not look at the context.
const leaveWithin = time.Second

// drains is the key of a context's value, an *atomic.Bool that says that the command
// drains.
type drains struct{}

// leaveInTime returns a copy of ctx for a command. If the command still runs leaveWithin
// after ctx ended, leaveInTime deletes its temporary files and ends the process.
func leaveInTime(ctx context.Context, last lastWords) context.Context {
	var draining atomic.Bool
	context.AfterFunc(ctx, func() {
		time.Sleep(leaveWithin)
		if draining.Load() {
			return
		}
		atomicfile.RemoveTemporaries()
		last.interrupted()
		os.Exit(ExitInterrupted)
	})
	return context.WithValue(ctx, drains{}, &draining)
}

// Drain says that the command ends in an orderly way after ctx ends, and may take long for
// that. ctx is the context of a command that Main runs.
func Drain(ctx context.Context) {
	if draining, ok := ctx.Value(drains{}).(*atomic.Bool); ok {
		draining.Store(true)
	}
}

// lastWords writes to stderr why a program ends.
type lastWords struct {
	program string
	json    bool // as a line of the JSON log
}

// logsJSON reports whether the arguments of a command, or else SHAVER_LOG, ask for a log in
// JSON. Errors of parsing the arguments are then JSON too.
func logsJSON(args []string) bool {
	format := os.Getenv(logVariable)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if value, ok := strings.CutPrefix(arg, "--log="); ok {
			format = value
		} else if arg == "--log" && i+1 < len(args) {
			format = args[i+1]
		}
	}
	return format == JSONLog
}

// failed writes an error that ends the program with the given code.
func (l lastWords) failed(err error, code int) {
	for _, line := range lines(err) {
		if l.json {
			jsonLogger(zapcore.InfoLevel).Error(line, zap.String("program", l.program), zap.Int("exit_code", code))
		} else {
			fmt.Fprintf(os.Stderr, "%s: %s\n", l.program, line)
		}
	}
}

func (l lastWords) interrupted() {
	if l.json {
		jsonLogger(zapcore.InfoLevel).Info("interrupted", zap.String("program", l.program), zap.Int("exit_code", ExitInterrupted))
	} else {
		fmt.Fprintln(os.Stderr, l.program+": interrupted")
	}
}

package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shaver/internal/base/fault"
)

// variables are the environment variables that give flags their values, in every command
// that has the flag. A flag that is given wins, even if it is empty.
var variables = []struct{ name, flag, is string }{
	{"SHAVER_DATASET", "dataset", "dataset folder"},
	{logVariable, "log", "text or json, for progress and errors in every command"},
	{"SHAVER_MODEL", "model", "checkpoint file"},
	{"SHAVER_NATS", "nats", "URL of the NATS server; shaver score then runs on it"},
	{"SHAVER_RUN", "run", "id that all tries of a run have"},
	{"SHAVER_SCRATCH", "scratch", "folder for the copies of files at URLs"},
}

// logVariable and progressVariable change what is written to stderr, in all commands.
const (
	logVariable      = "SHAVER_LOG"
	progressVariable = "SHAVER_PROGRESS"
)

// progressEvery returns the value of SHAVER_PROGRESS, or 0 if it is not set.
func progressEvery() (time.Duration, error) {
	text := os.Getenv(progressVariable)
	if text == "" {
		return 0, nil
	}
	every, err := time.ParseDuration(text)
	if err != nil || every <= 0 {
		return 0, fault.Usagef("%s=%s: expected a duration above 0, such as 1s", progressVariable, text)
	}
	return every, nil
}

// EnvironmentHelp documents the environment variables.
func EnvironmentHelp() string {
	var b strings.Builder
	b.WriteString("These variables replace flags that are not given:\n")
	for _, v := range variables {
		fmt.Fprintf(&b, "  %-15s --%s: %s\n", v.name, v.flag, v.is)
	}
	b.WriteString(`A flag wins over its variable, even if the value of the flag is empty. For
example, shaver score --nats "" runs its job in its own process.

These variables are secrets of an Iceberg REST catalogue (--catalog):
  SHAVER_CATALOG_TOKEN       bearer token
  SHAVER_CATALOG_CREDENTIAL  ID:SECRET of a client, for which the catalogue gives
                             a token

These variables change how output looks:
  NO_COLOR         if it is not empty, logs have no colors
  SHAVER_PROGRESS  time between two lines of progress, such as 1s, if there is no
                   progress bar (default 10s, or 30s in a log)
  TERM             if it is "dumb", there are no colors and no progress bar`)
	return b.String()
}

// Environment returns the help topic "environment".
func Environment() *cobra.Command {
	return &cobra.Command{Use: "environment", Short: "List the environment variables", Long: EnvironmentHelp()}
}

// fromEnvironment gives each flag of c that is not on the command line the value of its
// variable. The flag still counts as not given (pflag.Flag.Changed). fromEnvironment returns
// wrong usage for a value that a flag or a variable does not take.
func fromEnvironment(c *cobra.Command) error {
	if _, err := progressEvery(); err != nil {
		return err
	}
	for _, v := range variables {
		f, value := c.Flags().Lookup(v.flag), os.Getenv(v.name)
		if f == nil || f.Changed || value == "" {
			continue
		}
		if err := f.Value.Set(value); err != nil {
			return fault.Usagef("%s: %w", v.name, err)
		}
	}
	return nil
}

// describeVariables says in the help of c's flags which variables set them.
func describeVariables(c *cobra.Command) {
	for _, v := range variables {
		if f := c.Flags().Lookup(v.flag); f != nil {
			f.Usage += " [env " + v.name + "]"
		}
	}
}

// given reports whether a required flag has a value, from the command line or from the
// environment.
func given(f *pflag.Flag) bool { return f.Changed || f.Value.String() != f.DefValue }

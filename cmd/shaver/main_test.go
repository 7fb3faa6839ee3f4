package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/score"
	"shaver/internal/app/steps"
	"shaver/internal/app/work"
	"shaver/internal/base/atomicfile"
)

// pruning is what "prune -o json" prints.
type pruning = steps.Pruning

// TestMain makes the test binary act as all three programs. Tests find them on PATH and
// run them as processes.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"shaver": func() {
			os.Args = recorded(os.Args)
			end(cli.Main(newRoot))
		},
		"coordinator": func() {
			end(cli.Main(func() *cobra.Command { return score.CoordinatorCommand() }))
		},
		"worker":   func() { end(cli.Main(func() *cobra.Command { return work.Command("worker") })) },
		"stubborn": func() { end(cli.Main(stubborn)) },
	})
}

// advisedVariable makes score and plan use their own defaults in a test.
const advisedVariable = "SHAVER_TEST_ADVISED"

// recorded returns the arguments of a program, with score.Recorded for the flags of "shaver score"
// and "shaver plan" that they leave out. Most tests need values, have too few rows for a path, or
// have recorded ids of jobs.
func recorded(args []string) []string {
	if len(args) < 2 || args[1] != "score" && args[1] != "plan" || os.Getenv(advisedVariable) != "" {
		return args
	}
	given := func(name string) bool {
		return slices.ContainsFunc(args, func(arg string) bool { return arg == "--"+name || strings.HasPrefix(arg, "--"+name+"=") })
	}
	if given("previous") { // the previous scores say what the flags would
		return args
	}
	add := func(name, value string) {
		if !given(name) {
			args = append(args, "--"+name, value)
		}
	}
	add("estimator", score.Recorded.Estimator)
	add("baseline", score.Recorded.Baseline)
	add("splits", strings.Join(score.Recorded.Splits, ","))
	return args
}

// stubborn returns a command that works in a temporary folder and does not look at its
// context.
func stubborn() *cobra.Command {
	return &cobra.Command{Use: "stubborn", RunE: func(*cobra.Command, []string) error {
		dir, err := os.MkdirTemp(".", "tmp-*")
		if err != nil {
			return err
		}
		atomicfile.Track(dir)
		open, err := os.Open(dir) // the sign for which TestTerminate waits
		if err != nil {
			return err
		}
		defer open.Close()
		for i := 0; ; i++ {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i%100)), make([]byte, 1<<16), 0o600); err != nil {
				time.Sleep(time.Millisecond) // the folder is gone, and the process is about to end
			}
			time.Sleep(time.Millisecond)
		}
	}}
}

// peakVariable names a file to which each program writes its peak memory in KiB when
// it ends. The system's own figure (getrusage) includes the memory of the parent process.
const peakVariable = "SHAVER_TEST_PEAK"

// end ends the process, and writes its peak memory if peakVariable is set.
func end(code int) {
	if path := os.Getenv(peakVariable); path != "" {
		status, _ := os.ReadFile("/proc/self/status") // only Linux has it
		for line := range strings.Lines(string(status)) {
			if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				_ = os.WriteFile(path, []byte(strings.TrimSuffix(strings.TrimSpace(text), " kB")), 0o600)
			}
		}
	}
	os.Exit(code)
}

// goldenDir holds models with known values.
var goldenDir = filepath.Join("..", "..", "testdata", "golden")

// shared returns a path in the folder ../shared next to the checkout. It skips the test if
// there is no such file.
func shared(t *testing.T, elements ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "shared"}, elements...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("missing on CI: %v", err)
		}
		t.Skip(err)
	}
	return path
}

// goldenDirs returns the folders of golden models by name: ours, and the one in ../shared if there is one.
func goldenDirs(t *testing.T) map[string]string {
	t.Helper()
	dirs := map[string]string{"own": goldenDir}
	if _, err := os.Stat(filepath.Join("..", "..", "..", "shared")); err == nil || os.Getenv("CI") == "true" {
		dirs["shared"] = shared(t, "golden")
	}
	return dirs
}

// command runs a program to its end and returns what it printed.
func command(t *testing.T, name string, args ...string) (stdout []byte) {
	t.Helper()
	c := emulated(t.Context(), name, args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	stdout, err := c.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, &stderr)
	}
	return stdout
}

// emulated returns a command that runs a program of PATH. If SHAVER_EXEC is set, that program runs it,
// such as the emulator that go test -exec names.
func emulated(ctx context.Context, name string, args ...string) *exec.Cmd {
	emulator := os.Getenv("SHAVER_EXEC")
	if emulator == "" {
		return exec.CommandContext(ctx, name, args...)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		path = name // the emulator then reports that it is missing
	}
	return exec.CommandContext(ctx, emulator, append([]string{path}, args...)...)
}

// shaver runs the program with -o json and decodes what it prints into result. If result
// is nil, it runs the program without -o.
func shaver(t *testing.T, result any, args ...string) {
	t.Helper()
	if result == nil {
		command(t, "shaver", args...)
		return
	}
	args = append(args, "-o", "json")
	if err := json.Unmarshal(command(t, "shaver", args...), result); err != nil {
		t.Fatalf("shaver %q printed no JSON: %v", args, err)
	}
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// exitCode returns the exit code of a process that ended, or -1 if a signal killed it.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// wantFiles fails the test unless the folder holds exactly the named files.
func wantFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := []string{}
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if fmt.Sprint(found) != fmt.Sprint(names) {
		t.Errorf("%s holds %v, expected %v", dir, found, names)
	}
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus"
	"shaver/internal/num/kernel"
)

func TestExitCode(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, missing := os.Open("nowhere")
	_, folder := os.ReadFile(t.TempDir())
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		want int
	}{
		"done":                   {t.Context(), nil, 0},
		"failed":                 {t.Context(), errors.New("the network"), 1},
		"usage":                  {t.Context(), fault.Usagef("no such flag"), 2},
		"input":                  {t.Context(), fault.Inputf("row 3"), 42},
		"input, wrapped":         {t.Context(), fmt.Errorf("file: %w", fault.Inputf("row 3")), 42},
		"usage about input":      {t.Context(), fault.Usagef("%w", fault.Inputf("row 3")), 2},
		"no file":                {t.Context(), missing, 42},
		"folder":                 {t.Context(), folder, 42},
		"loop of links":          {t.Context(), &fs.PathError{Op: "open", Path: "a", Err: syscall.ELOOP}, 42},
		"drained":                {cancelled, ErrDrained, 75},
		"cancelled":              {cancelled, fmt.Errorf("score: %w", context.Canceled), 130},
		"input while cancelled":  {cancelled, fault.Inputf("row 3"), 42},
		"done while cancelled":   {cancelled, nil, 0},
		"job cancelled":          {t.Context(), fmt.Errorf("job 1: %w", bus.ErrCancelled), 6},
		"not converged":          {t.Context(), fmt.Errorf("%w: 1 round", ErrUnconverged), 3},
		"incomplete":             {t.Context(), fmt.Errorf("%w: 1 row", ErrIncomplete), 4},
		"fenced":                 {t.Context(), fmt.Errorf("job 1: %w", bus.ErrFenced), 5},
		"overtaken":              {t.Context(), fmt.Errorf("writing s3://b/k: %w", ErrOvertaken), 5},
		"ended":                  {t.Context(), fmt.Errorf("job 1: %w", bus.ErrEnded), 5},
		"cancelled by ourselves": {t.Context(), context.Canceled, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if code := exitCode(test.ctx, test.err); code != test.want {
				t.Errorf("exit code %d, expected %d", code, test.want)
			}
		})
	}
	if !errors.Is(missing, fs.ErrNotExist) {
		t.Error("the file nowhere should not exist")
	}
}

// The arguments of a command say whether its errors are JSON, or else SHAVER_LOG does.
func TestLogsJSON(t *testing.T) {
	for args, want := range map[string]bool{
		"": false, "--log json": true, "score --out a --log=json": true, "--log": false, "--log text json": false, "--log text": false, "-- --log json": false,
	} {
		if logsJSON(strings.Fields(args)) != want {
			t.Errorf("%q: %t", args, !want)
		}
	}
	t.Setenv("SHAVER_LOG", "json")
	for args, want := range map[string]bool{"": true, "prune": true, "--log text": false, "score --log=text": false} {
		if logsJSON(strings.Fields(args)) != want {
			t.Errorf("%q with SHAVER_LOG=json: %t", args, !want)
		}
	}
}

// ExitHelp has one line for each exit code of this package, and no other line.
func TestExitHelp(t *testing.T) {
	source, err := parser.ParseFile(token.NewFileSet(), "cli.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	ast.Inspect(source, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Exit") && spec.Names[0].Name != "ExitHelp" {
			want[spec.Values[0].(*ast.BasicLit).Value] = true
		}
		return true
	})
	if len(want) != 11 || !want[fmt.Sprint(ExitUnconverged)] {
		t.Fatalf("codes of cli.go: %v", want)
	}
	head, lines, _ := strings.Cut(ExitHelp, "\n")
	if head != "Exit codes:" {
		t.Errorf("the help begins with %q", head)
	}
	found := map[string]bool{}
	for line := range strings.SplitSeq(lines, "\n") {
		match := regexp.MustCompile(`^ +(\d+)  [a-z].*[a-z]$`).FindStringSubmatch(line)
		if match == nil || len(match[0])-len(strings.TrimLeft(match[0], " 0123456789")) != 7 || len(line) > 80 {
			t.Errorf("line %q: expected a code that ends in column 5, and what it means, in 80 columns", line)
			continue
		}
		if found[match[1]] {
			t.Errorf("code %s has two lines", match[1])
		}
		found[match[1]] = true
	}
	if !maps.Equal(found, want) {
		t.Errorf("the help has the codes %v, expected %v", found, want)
	}
}

// All missing flags are named together. An empty value is refused.
func TestRequired(t *testing.T) {
	c := &cobra.Command{Use: "cut"}
	for _, name := range []string{"model", "dataset", "scores", "out"} {
		c.Flags().String(name, "", "")
	}
	c.Flags().String("plan", "", "")
	c.Flags().String("store", "", "a `folder`")
	if err := c.Flags().Parse([]string{"--model", "m.pth", "--plan", "", "--store", ""}); err != nil {
		t.Fatal(err)
	}
	if err := Required(c, "model"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"plan": "a value", "store": "the name of a folder"} {
		if err := Required(c, "model", name); !fault.IsUsage(err) || err.Error() != "--"+name+` "": expected `+want {
			t.Errorf("a flag with an empty value: error %v", err)
		}
	}
	MarkRequired(c, "model", "scores")
	if usage := c.Flags().Lookup("scores").Usage; usage != " (required)" {
		t.Errorf("the help of a required flag: %q", usage)
	}
	for want, flags := range map[string][]string{
		"cut needs --scores":                      nil,
		"cut needs --out":                         {"model", "out"},
		"cut needs --dataset and --out":           {"dataset", "model", "out"},
		"cut needs --dataset, --scores and --out": {"dataset", "scores", "out"},
	} {
		if err := Required(c, flags...); !fault.IsUsage(err) || err.Error() != want {
			t.Errorf("%v: error %v, expected %q", flags, err, want)
		}
	}
}

func TestOutput(t *testing.T) {
	table := func(w io.Writer) { fmt.Fprintf(w, "a\t1\nlong\t2\n") }
	for format, want := range map[string]string{
		"table": "a     1\nlong  2\n",
		"json":  "{\n  \"n\": 1\n}\n",
	} {
		o := Output{format: format}
		var out bytes.Buffer
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		if err := o.Print(&out, map[string]int{"n": 1}, table); err != nil || out.String() != want {
			t.Errorf("%s: %q (%v), expected %q", format, out.String(), err, want)
		}
	}
	if err := (&Output{format: "yaml"}).Check(); !fault.IsUsage(err) {
		t.Errorf("format yaml: %v, expected wrong usage", err)
	}
	if _, err := Logger("xml", false); !fault.IsUsage(err) {
		t.Errorf("log format xml: %v, expected wrong usage", err)
	}
}

// --kernel takes the kernels of this machine only. The kernel is selected when the
// command runs, and not when the flag is parsed.
func TestKernelFlag(t *testing.T) {
	was := kernel.Name()
	defer kernel.Use(was)
	command := func(args ...string) (c *cobra.Command, ran *string) {
		ran = new(string)
		c = &cobra.Command{Use: "compute", SilenceErrors: true, SilenceUsage: true, Run: func(*cobra.Command, []string) { *ran = kernel.Name() }}
		KernelFlag(c, "kernel")
		c.SetArgs(args)
		return c, ran
	}
	for _, name := range append(kernel.Names(), was) {
		kernel.Use(was)
		c, ran := command("--kernel", name)
		if err := c.ParseFlags([]string{"--kernel", name}); err != nil || kernel.Name() != was {
			t.Errorf("parsing --kernel %s: %v, and %s is selected", name, err, kernel.Name())
		}
		if err := c.Execute(); err != nil || *ran != name {
			t.Errorf("--kernel %s: %v, and %s runs", name, err, *ran)
		}
	}
	kernel.Use(was)
	c, ran := command("--kernel", "abacus")
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), was) || *ran != "" {
		t.Errorf("an unknown kernel: %v, and %q runs", err, *ran)
	}
	c, ran = command()
	if err := c.Execute(); err != nil || *ran != was {
		t.Errorf("without --kernel: %v, and %s runs", err, *ran)
	}
}

// Run checks the required flags, then what the command checks, in this order, before it runs.
func TestRun(t *testing.T) {
	var did []string
	failing := ""
	step := func(name string) func() error {
		return func() error {
			did = append(did, name)
			if name == failing {
				return errors.New(name)
			}
			return nil
		}
	}
	c := &cobra.Command{Use: "prune", RunE: Run(func(*cobra.Command, []string) error { return step("run")() }, step("first"), step("second"))}
	c.Flags().String("model", "", "")
	MarkRequired(c, "model")
	for _, test := range []struct{ value, failing, did string }{{"", "", ""}, {"m", "first", "first"}, {"m", "second", "first second"}, {"m", "run", "first second run"}, {"m", "", "first second run"}} {
		did, failing = nil, test.failing
		if err := c.Flags().Set("model", test.value); err != nil {
			t.Fatal(err)
		}
		err := c.RunE(c, nil)
		if text := strings.Join(did, " "); text != test.did || (err == nil) != (test.value != "" && test.failing == "") {
			t.Errorf("with --model %q and an error in %q: did %q, %v", test.value, test.failing, text, err)
		}
	}
}

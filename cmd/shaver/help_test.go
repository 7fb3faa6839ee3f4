package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shaver/internal/app/cli"
	"shaver/internal/app/score"
	"shaver/internal/app/work"
	"shaver/internal/base/fault"
	"shaver/internal/num/kernel"
	"shaver/internal/value/estimator"
)

// roots returns the three programs, set up as cli.Main does.
func roots() []*cobra.Command {
	all := []*cobra.Command{newRoot(), score.CoordinatorCommand(), work.Command("worker")}
	for _, root := range all {
		cli.Setup(root)
	}
	return all
}

// commands returns all commands of the three programs, without help topics.
func commands() (all []*cobra.Command) {
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		if !c.IsAdditionalHelpTopicCommand() {
			all = append(all, c)
		}
		for _, sub := range c.Commands() {
			add(sub)
		}
	}
	for _, root := range roots() {
		add(root)
	}
	return all
}

// A command uses every text in the folders help.
func TestHelpTexts(t *testing.T) {
	call, name := regexp.MustCompile(`\bhelp(?:\.Text)?\(("[^)]*")\)`), regexp.MustCompile(`"([^"]*)"`)
	for _, dir := range []string{".", filepath.Join("..", "..", "internal", "app", "score")} {
		sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		used := map[string]bool{}
		for _, file := range sources {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range call.FindAllSubmatch(source, -1) {
				for _, quoted := range name.FindAllSubmatch(match[1], -1) {
					used[string(quoted[1])+".txt"] = true
				}
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "help", "help.go")); err == nil {
			used["help.go"] = true // the package with the texts
		}
		wantFiles(t, filepath.Join(dir, "help"), slices.Sorted(maps.Keys(used))...)
	}
}

// The help of every command fits into 80 columns and is complete: it has a short and a
// long text, an example, and a usage for each flag. It does not depend on the machine.
func TestHelp(t *testing.T) {
	all := commands()
	if len(all) < 30 {
		t.Fatalf("%d commands, expected at least 30", len(all))
	}
	for _, c := range all {
		t.Run(c.CommandPath(), func(t *testing.T) {
			var out bytes.Buffer
			c.SetOut(&out)
			if err := c.Help(); err != nil {
				t.Fatal(err)
			}
			if err := c.Flags().Set("help-all", "true"); err != nil {
				t.Fatal(err)
			}
			if err := c.Help(); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if line = strings.TrimSuffix(line, "\n"); len(line) > 80 || strings.HasSuffix(line, " ") || strings.Contains(line, "\t") {
					t.Errorf("a line of %d columns, which may have at most 80, no tab, and no space at its end: %q", len(line), line)
				}
			}
			if !regexp.MustCompile(`^[A-Z][a-z]+,? .*[A-Za-z0-9]$`).MatchString(c.Short) {
				t.Errorf("short text %q: expected an imperative without a full stop", c.Short)
			}
			if !strings.HasSuffix(strings.Split(c.Long+"\n\n", "\n\n")[0], ".") && !strings.Contains(c.Long, ":\n") {
				t.Errorf("the long text does not begin with sentences: %q", c.Long)
			}
			if c.Example == "" {
				t.Error("no example")
			}
			c.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if !regexp.MustCompile("^[a-zA-Z`].*[^.]$").MatchString(f.Usage) {
					t.Errorf("--%s has the usage %q, expected a phrase without a full stop", f.Name, f.Usage)
				}
			})
			for _, level := range kernel.Names() {
				if strings.Contains(out.String(), "default "+level) {
					t.Errorf("the help depends on the machine's kernel %s", level)
				}
			}
		})
	}
}

// The help of a command with many flags shows the common ones, with the required ones and those that its
// description lists. That of another command shows all.
func TestBriefHelp(t *testing.T) {
	const many, few = 20, 10
	entry := regexp.MustCompile(`(?m)^ {1,6}(?:-[a-z], )?--([a-z-]+)`)
	listed := regexp.MustCompile(`(?m)^  (--[a-z-]+)  `)
	for _, c := range commands() {
		flags, required := 0, 0
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				flags++
			}
			if strings.Contains(f.Usage, "(required)") {
				required++
			}
		})
		var out bytes.Buffer
		c.SetOut(&out)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		text, brief := out.String(), strings.Contains(out.String(), `Run "`+c.CommandPath()+` --help-all" for`)
		if brief != (flags > many) {
			t.Errorf("%s has %d flags, and the help is brief: %v", c.CommandPath(), flags, brief)
		}
		if !brief {
			continue
		}
		_, text, _ = strings.Cut(text, "\nCommon flags:\n")
		text, _, _ = strings.Cut(text, "\n\n")
		for _, flag := range listed.FindAllStringSubmatch(c.Long, -1) {
			if !strings.Contains(text, flag[1]+" ") {
				t.Errorf("%s: the brief help lacks %s, which the description lists", c.CommandPath(), flag[1])
			}
		}
		if n := len(entry.FindAllString(text, -1)); n > few || n <= required || strings.Count(text, "(required)") != required {
			t.Errorf("%s: the brief help has %d flags, expected at most %d, and all %d that are required:\n%s", c.CommandPath(), n, few, required, text)
		}
	}
}

// shaver score has at most 47 flags.
func TestScoreFlags(t *testing.T) {
	c, _, err := roots()[0].Find([]string{"score"})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			n++
		}
	})
	if n > 47 {
		t.Errorf("%d flags, expected at most 47", n)
	}
}

// The flags that shaver nightly score has and shaver score has not fail with the name of the command that
// has them, and the Python package knows them.
func TestMovedFlags(t *testing.T) {
	find := func(path ...string) *cobra.Command {
		c, _, err := roots()[0].Find(path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	plain, nightly := find("score"), find("nightly", "score")
	var moved []string
	nightly.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if plain.Flags().Lookup(f.Name) == nil {
			moved = append(moved, strings.ReplaceAll(f.Name, "-", "_"))
			root := roots()[0]
			root.SetArgs([]string{"score", "--" + f.Name + "=1"})
			if err := root.Execute(); !fault.IsUsage(err) || !strings.Contains(err.Error(), " is now a flag of ") {
				t.Errorf("score --%s: %v", f.Name, err)
			}
		}
	})
	source, err := os.ReadFile(filepath.Join("..", "..", "python", "src", "shaver", "_scores.py"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `"` + strings.Join(moved, `", "`) + `"`; !strings.Contains(string(source), want) {
		t.Errorf("the Python package does not list these flags: %s", want)
	}
}

// Every example is a command line that parses: its command exists, and so do its flags.
func TestExamples(t *testing.T) {
	for _, c := range commands() {
		found := false
		text := c.Example
		if c.CommandPath() == "shaver quickstart" {
			text += "\n" + ownSteps
		}
		text = strings.ReplaceAll(text, "\\\n", " ")
		for line := range strings.Lines(text) {
			args := exampleArgs(line)
			for _, root := range roots() { // new flags for each example
				if len(args) == 0 || args[0] != root.Name() {
					continue
				}
				sub, rest, err := root.Find(args[1:])
				if err == nil {
					err = sub.ParseFlags(rest)
				}
				if err == nil {
					err = sub.ValidateArgs(sub.Flags().Args())
				}
				if err != nil {
					t.Errorf("%s: example %q: %v", c.CommandPath(), line, err)
				}
				found = found || sub.CommandPath() == c.CommandPath() || c.HasSubCommands() || c.Name() == "help"
				args = nil
			}
			if args != nil {
				t.Errorf("%s: example %q is not a command of these programs", c.CommandPath(), line)
			}
		}
		if !found {
			t.Errorf("%s: no example is about this command", c.CommandPath())
		}
	}
}

// exampleArgs returns the words of a shell command, without the parts that the shell
// itself interprets.
func exampleArgs(line string) []string {
	line, _, _ = strings.Cut(line, " > ")
	if _, inner, ok := strings.Cut(line, "<("); ok {
		line, _, _ = strings.Cut(inner, ")")
	}
	return strings.Fields(line)
}

// Every command at the top is in a group, and "shaver help exit-codes" lists the codes.
func TestGroups(t *testing.T) {
	root := roots()[0]
	for _, c := range root.Commands() {
		if !root.ContainsGroup(c.GroupID) || c.GroupID == "" {
			t.Errorf("%s is in group %q", c.Name(), c.GroupID)
		}
	}
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"help", "exit-codes"})
	if err := root.Execute(); err != nil || strings.TrimSpace(out.String()) != cli.ExitHelp {
		t.Errorf("help exit-codes: %q (%v)", &out, err)
	}
}

// Shells complete commands, flags, and the values of flags.
func TestCompletion(t *testing.T) {
	const noFiles, noSpace, extensions, folders, files = 4, 2, 8, 16, 0
	for _, c := range []struct {
		args      string
		want      []string
		directive int
	}{
		{"sc", []string{"score", "scores"}, noFiles},
		{"score --estim", []string{"--estimator"}, noFiles},
		{"score --estimator ", estimator.Names(), noFiles},
		{"plan --baseline ", []string{"zero", "codebook", "words"}, noFiles},
		{"score --kernel ", append(kernel.Names(), cli.AutoKernel), noFiles},
		{"score --splits train,", []string{"train,train", "train,val", "train,test", "train,fresh"}, noFiles | noSpace},
		{"report --aggregate ", []string{"rms", "sum", "abs"}, noFiles},
		{"prune --aggregate ", []string{"rms", "sum", "abs", "signed"}, noFiles},
		{"sweep --values float", []string{"auto", "float16", "float32", "int8"}, noFiles | noSpace},
		{"score --log ", []string{"json", "text"}, noFiles},
		{"evaluate -o ", []string{"table", "json"}, noFiles},
		{"score --passes ", nil, noFiles},
		{"score --model ", []string{"onnx", "pth", "safetensors"}, extensions},
		{"score --dataset ", nil, folders},
		{"scores inspect ", []string{"arrow"}, extensions},
		{"dataset inspect ", nil, folders},
		{"dataset import criteo ", nil, files},
		{"completion ", []string{"bash", "zsh", "fish", "powershell"}, noFiles},
		{"help eval", []string{"evaluate"}, noFiles},
	} {
		root := roots()[0]
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(new(bytes.Buffer))
		root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(c.args, " ")...))
		if err := root.Execute(); err != nil {
			t.Errorf("%q: %v", c.args, err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		got, last := lines[:len(lines)-1], lines[len(lines)-1]
		slices.Sort(got)
		want := slices.Sorted(slices.Values(c.want))
		if !slices.Equal(got, want) || last != fmt.Sprint(":", c.directive) {
			t.Errorf("%q completes to %q, directive %s, expected %q and :%d", c.args, got, last, want, c.directive)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		root := roots()[0]
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{"completion", shell})
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), "__complete") {
			t.Errorf("%s: %v, and a script of %d bytes", shell, err, out.Len())
		}
	}
}

package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"shaver/internal/base/fault"
)

// command returns a program with a few flags of every kind, set up as Main does. Run
// calls run.
func command(run func(c *cobra.Command) error) *cobra.Command {
	c := &cobra.Command{Use: "score FILE OUT", Args: Args(cobra.ExactArgs(2)), RunE: func(c *cobra.Command, _ []string) error { return run(c) }}
	f := c.Flags()
	f.String("model", "", "checkpoint `file`")
	f.String("dataset", "", "dataset `folder`")
	f.String("nats", "", "`URL`")
	f.String("run", "", "id")
	f.String("log", "text", "`format`")
	f.String("scratch", "", "`folder`")
	f.String("aggregate", "sum", "aggregate")
	f.StringSlice("aggregates", nil, "aggregates")
	f.Int("passes", 1, "passes")
	f.Int8("level", 1, "level")
	f.Uint64("seed", 1, "seed")
	f.Float64("sample", 1, "sample")
	f.Float64Slice("sparsities", nil, "sparsities")
	f.Duration("max-time", 0, "time")
	f.Bool("dense", false, "dense")
	OneOf(c, "aggregate", "sum", "abs", "rms")
	OneOf(c, "aggregates", "sum", "abs", "rms")
	MarkRequired(c, "model", "dataset")
	root := &cobra.Command{Use: "shaver"}
	root.AddCommand(c)
	Setup(root)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	return root
}

// A wrong command line is wrong usage, and one line says what was expected.
func TestUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"score":                           "shaver score needs FILE and OUT",
		"score a":                         "shaver score needs OUT",
		"score a b c":                     `unexpected argument "c": shaver score takes FILE and OUT and flags`,
		"score a b --sparsities=":         `--sparsities "": expected numbers separated by commas`,
		"score a b --sparsities=.5,x":     `--sparsities ".5,x": expected numbers separated by commas`,
		"score a b --passes=x":            `--passes "x": expected a whole number`,
		"score a b --seed=-1":             `--seed "-1": expected a whole number that is not negative`,
		"score a b --sample=all":          `--sample "all": expected a number`,
		"score a b --max-time=2":          `--max-time "2": expected a time such as 90s or 2h30m`,
		"score a b --dense=maybe":         `--dense "maybe": expected true or false`,
		"score a b --level=1000":          `--level "1000": expected a number in range`,
		"score a b --aggregate=x":         `--aggregate "x": expected sum, abs or rms`,
		"score a b --aggregates=sum,mean": `--aggregates "mean": expected sum, abs or rms`,
		"score a b":                       "shaver score needs --model and --dataset",
		"score a b --dataset d":           "shaver score needs --model",
	} {
		root := command(func(c *cobra.Command) error { return Required(c) })
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); !fault.IsUsage(err) || err.Error() != want {
			t.Errorf("%s: error %v, expected %q", args, err, want)
		}
	}
}

// Environment variables replace flags that are not given, required ones too. A flag wins,
// even if it is empty. The help names the variables.
func TestEnvironment(t *testing.T) {
	for _, v := range variables {
		t.Setenv(v.name, "from "+v.flag)
	}
	values := func(args ...string) (text string) {
		root := command(func(c *cobra.Command) error {
			for _, v := range variables {
				text += c.Flag(v.flag).Value.String() + ";"
				if c.Flag(v.flag).Changed != strings.Contains(strings.Join(args, " "), v.flag) {
					t.Errorf("%q: --%s counts as given: %v", args, v.flag, c.Flag(v.flag).Changed)
				}
			}
			return Required(c)
		})
		root.SetArgs(append([]string{"score", "a", "b"}, args...))
		if err := root.Execute(); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		return text
	}
	if got := values(); got != "from dataset;from log;from model;from nats;from run;from scratch;" {
		t.Errorf("values %s", got)
	}
	if got := values("--nats=", "--model=m"); got != "from dataset;from log;m;;from run;from scratch;" {
		t.Errorf("values with flags: %s", got)
	}
	t.Setenv("SHAVER_NATS", "")
	if got := values(); got != "from dataset;from log;from model;;from run;from scratch;" {
		t.Errorf("values with an empty variable: %s", got)
	}
	score, _, err := command(nil).Find([]string{"score"})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variables {
		if usage := score.Flag(v.flag).Usage; !strings.HasSuffix(usage, "[env "+v.name+"]") {
			t.Errorf("--%s has the usage %q", v.flag, usage)
		}
		if !strings.Contains(EnvironmentHelp(), v.name) {
			t.Errorf("the topic environment lacks %s", v.name)
		}
	}
}

// A time between two lines of progress that is no duration above 0 is refused.
func TestProgressVariable(t *testing.T) {
	for text, good := range map[string]bool{"": true, "1s": true, "200ms": true, "1": false, "0s": false, "-1s": false, "often": false} {
		t.Setenv("SHAVER_PROGRESS", text)
		root := command(func(*cobra.Command) error { return nil })
		root.SetArgs([]string{"score", "a", "b", "--model", "m", "--dataset", "d"})
		if err := root.Execute(); err == nil != good || err != nil && !fault.IsUsage(err) {
			t.Errorf("SHAVER_PROGRESS=%s: error %v", text, err)
		}
	}
}

// The help lists flags by group: those without a group first, those of the output last.
func TestFlagGroups(t *testing.T) {
	c := &cobra.Command{Use: "score"}
	var connection Connection
	var output Output
	output.Flag(c)
	connection.Flags(c, "", 0)
	c.Flags().Int("passes", 1, "passes")
	c.Flags().Int("other", 1, "other")
	Group(c, "Job", "passes")
	Setup(c)
	last := -1
	help := "\n" + FlagHelp(c)
	for _, word := range []string{"\nFlags:\n", "--other", "\n\nNATS connection:\n", "--creds", "--nats", "\n\nJob:\n", "--passes", "\n\nOutput and log:\n", "--help", "--output"} {
		at := strings.Index(help, word)
		if at <= last {
			t.Errorf("%q is missing or at the wrong place:\n%s", word, help)
		}
		last = max(last, at)
	}
	few := &cobra.Command{Use: "inspect"}
	output.Flag(few)
	Setup(few)
	if help := FlagHelp(few); !strings.HasPrefix(help, "Flags:\n") || strings.Count(help, ":\n") != 1 {
		t.Errorf("the help of a command with few flags has groups:\n%s", help)
	}
}

// The place of a job is logged without passwords, with the flag or the variable that
// names it.
func TestServers(t *testing.T) {
	c := &cobra.Command{Use: "score"}
	var connection Connection
	connection.Flags(c, "", 0)
	connection.NATS = "nats://me:secret@a:4222, tls://b"
	if servers, from, err := connection.Servers(); servers != "nats://a:4222, tls://b" || from != "SHAVER_NATS" || err != nil {
		t.Errorf("%s from %s: %v", servers, from, err)
	}
	if err := c.ParseFlags([]string{"--nats", "nats://a"}); err != nil {
		t.Fatal(err)
	}
	if servers, from, err := connection.Servers(); servers != "nats://a" || from != "--nats" || err != nil {
		t.Errorf("%s from %s: %v", servers, from, err)
	}
}

// --help of a command with needed flags shows the required ones and these, and --help-all shows all.
// Both work on a command line that is incomplete.
func TestNeeded(t *testing.T) {
	help := func(args ...string) string {
		root := command(func(*cobra.Command) error { return nil })
		c := root.Commands()[0]
		for _, sub := range root.Commands() {
			if sub.Name() == "score" {
				c = sub
			}
		}
		c.Long = "Score rows.\n\nDetails."
		Needed(c, "passes")
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(append([]string{"score"}, args...))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	brief, all := help("--help"), help("--help-all")
	for _, word := range []string{"Score rows.\n\nUsage:", "Common flags:", "--model", "--dataset", "--passes", "--help-all"} {
		if !strings.Contains(brief, word) {
			t.Errorf("the help lacks %q:\n%s", word, brief)
		}
	}
	for _, word := range []string{"Details.", "--seed", "--max-time"} {
		if strings.Contains(brief, word) || !strings.Contains(all, word) {
			t.Errorf("%q is in the brief help, or not in the whole:\n%s\n%s", word, brief, all)
		}
	}
	if same := help("-h"); same != brief {
		t.Errorf("-h prints\n%s", same)
	}
	if same := help("--help", "--help-all", "FILE"); same != all {
		t.Errorf("--help --help-all prints\n%s", same)
	}
}

// A former flag of a command fails with the name of the command that has it now.
func TestMoved(t *testing.T) {
	root := command(func(*cobra.Command) error { return nil })
	c, _, err := root.Find([]string{"score"})
	if err != nil {
		t.Fatal(err)
	}
	Moved(c, "shaver night", "state")
	root.SetArgs([]string{"score", "--state", "s", "a", "b"})
	if err := root.Execute(); !fault.IsUsage(err) || err.Error() != "--state is now a flag of shaver night" {
		t.Errorf("%v", err)
	}
}

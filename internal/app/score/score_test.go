package score

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/merge"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/prepare"
)

// The help of each shared command documents the exit codes.
func TestExitHelp(t *testing.T) {
	for _, c := range []*cobra.Command{Command(), NightCommand(), CoordinatorCommand(), merge.Command()} {
		if !strings.Contains(c.Long, cli.ExitHelp) {
			t.Errorf("%s does not document its exit codes", c.Name())
		}
	}
}

// --sparsity without one of its two uses is wrong usage, and so is a path with a stop rule.
func TestSparsityFlag(t *testing.T) {
	_, folder := tiny(t)
	for want, args := range map[string][]string{
		"--sparsity needs --until overlap or --estimator path":              {"--sparsity", "0.5"},
		"--sparsity needs --until overlap or --estimator path ":             {"--sparsity", "0.5", "--until", "paper"},
		"--until needs an estimator of values, such as debiased, not path":  {"--estimator", "path", "--until", "overlap"},
		"--until needs an estimator of values, such as debiased, not path ": {"--estimator", "path", "--until", "overlap", "--sparsity", "0.5"},
	} {
		var request prepare.Request
		var flags JobOptions
		c := &cobra.Command{Use: "score"}
		flags.Add(c, &request, Recorded)
		if err := c.ParseFlags(append([]string{"--model", "m.pth", "--dataset", folder}, args...)); err != nil {
			t.Fatal(err)
		}
		if err := flags.Open(); !fault.IsUsage(err) || err.Error() != strings.TrimSpace(want) {
			t.Errorf("%v: %v, expected %q", args, err, want)
		}
	}
}

// Each flag of a job changes the request.
func TestJobOptions(t *testing.T) {
	_, folder := tiny(t)
	model := filepath.Join("..", "..", "..", "testdata", "golden", "fm.pth")
	open := func(t *testing.T, args ...string) string {
		t.Helper()
		var request prepare.Request
		var flags JobOptions
		c := &cobra.Command{Use: "score"}
		flags.Add(c, &request, Recorded)
		if err := c.ParseFlags(append([]string{"--model", model, "--dataset", folder}, args...)); err != nil {
			t.Fatal(err)
		}
		if err := flags.Open(); err != nil {
			t.Fatal(err)
		}
		if _, err := request.Open(); err != nil || request.Dataset == nil {
			t.Fatalf("the model or the dataset is not open: %v", err)
		}
		until := request.Until
		request.Open, request.Dataset, request.Until = nil, nil, nil
		return fmt.Sprintf("%+v %+v", request, until)
	}
	plain := open(t)
	values := map[string]string{
		"baseline": "codebook", "estimator": "antithetic", "passes": "3", "draws": "4", "endpoints": "balanced", "flips": "5", "parts": "3", "seed": "7", "splits": "test",
		"sample": "0.5", "max-rows": "9", "until": "paper", "bound": "0.25", "sparsity": "0.5", "max-time": "1m", "audit": "0.1", "rows-per-shard": "8", "loss": "squared", "freeze": "a", "fresh-weight": "2", "fresh-days": "1",
	}
	for name, value := range values {
		without := plain
		args := []string{"--" + name, value}
		if name == "sparsity" { // needs one of these
			without = open(t, "--until", "overlap")
			if open(t, append(args, "--until", "overlap")...) == without {
				t.Errorf("--%s %s changes nothing with --until overlap", name, value)
			}
			without, args = open(t, "--estimator", "path"), append(args, "--estimator", "path")
		}
		if open(t, args...) == without {
			t.Errorf("--%s %s changes nothing", name, value)
		}
	}
	c := &cobra.Command{Use: "score"}
	flags := new(JobOptions)
	flags.Add(c, new(prepare.Request), Recorded)
	flags.AddPrevious(c)
	for name, value := range previousDefaults { // TestPreviousFlags
		values[name] = value
	}
	for _, match := range regexp.MustCompile(`(?m)^ +--([a-z-]+) `).FindAllStringSubmatch(c.Flags().FlagUsages(), -1) {
		if name := match[1]; values[name] == "" && name != "model" && name != "model-output" && name != "task" && name != "dataset" && name != "kernel" {
			t.Errorf("--%s has no value in this test", name)
		}
	}
}

// People get the defaults that README advises. Commands whose flags are in files, such as a
// manifest or a nightly.yaml of an earlier version, keep those that they had.
func TestDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		command *cobra.Command
		want    string
	}{
		"score":         {Command(), "path  train"},
		"nightly score": {NightCommand(), "permutation zero train"},
		"coordinator":   {CoordinatorCommand(), "permutation zero train,val"},
	} {
		f := c.command.Flags()
		splits, err := f.GetStringSlice("splits")
		if got := f.Lookup("estimator").Value.String() + " " + f.Lookup("baseline").DefValue + " " + strings.Join(splits, ","); err != nil || got != c.want {
			t.Errorf("%s has the defaults %s, %v, expected %s", name, got, err, c.want)
		}
		// The help says what Open does without the flags.
		says := f.Lookup("estimator").Usage + f.Lookup("baseline").Usage + f.Lookup("splits").DefValue
		if name == "score" != (strings.Contains(says, "or multilinear below 30000 rows") && strings.Contains(says, "default words for path, else codebook") && strings.HasSuffix(says, ", and fresh if the dataset has it")) {
			t.Errorf("the help of %s says %s", name, says)
		}
	}
}

// By default a dropped entry reads one of several words in a path, and the codebook with estimators of values.
func TestDefaultBaseline(t *testing.T) {
	_, folder := tiny(t)
	for args, want := range map[string]string{
		"": "codebook", "--estimator taylor": "codebook", "--estimator path": "words", "--estimator path --sparsity 0.5": "words",
		"--estimator path --baseline zero": "zero", "--players fields": "marginal",
	} {
		var flags JobOptions
		var r prepare.Request
		c := &cobra.Command{Use: "score"}
		flags.Add(c, &r, Advised)
		flags.AddPlayers(c)
		if err := c.ParseFlags(append([]string{"--model", filepath.Join("..", "..", "..", "testdata", "golden", "fm.pth"), "--dataset", folder}, strings.Fields(args)...)); err != nil {
			t.Fatal(err)
		}
		if err := flags.Open(); err != nil || r.Baseline != want {
			t.Errorf("%q: the baseline %s, expected %s: %v", args, r.Baseline, want, err)
		}
	}
}

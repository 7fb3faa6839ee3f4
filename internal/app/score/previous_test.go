package score

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
)

// previousDefaults has a value for each flag about previous scores.
var previousDefaults = map[string]string{"previous": "s.arrow", "previous-model": "m.pth", "full-every": "7", "max-inherited-error": "0.1"}

// The flags about previous scores complete the request by the settings of these scores. A
// bound that the scores exceed makes the job score all rows.
func TestPreviousFlags(t *testing.T) {
	j, folder := tiny(t)
	j.Options.Passes, j.Seed = 3, 9
	if _, err := j.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	full := j.Out
	f, err := scores.Read(full)
	if err != nil {
		t.Fatal(err)
	}
	f.Spec.Previous = &job.Previous{Model: f.Spec.Model, Generation: 2}
	f.Lineage = &scores.Lineage{Generation: 2, Models: []string{f.Spec.Model, f.Spec.Model, f.Spec.Model}, Rows: 5, Error: .04, Fields: []scores.PairedField{{Field: "a"}, {Field: "b"}}}
	f.PairedSE, f.AbsPairedSE, f.RMSPairedSE = f.SE, f.SE, f.SE
	paired := filepath.Join(t.TempDir(), "paired.arrow")
	if err := scores.Write(paired, f); err != nil {
		t.Fatal(err)
	}
	open := func(args ...string) (r prepare.Request, full string, err error) {
		var flags JobOptions
		c := &cobra.Command{Use: "score"}
		flags.Add(c, &r, Recorded)
		flags.AddPrevious(c)
		if err := c.ParseFlags(append([]string{"--model", filepath.Join("..", "..", "..", "testdata", "golden", "fm.pth"), "--dataset", folder}, args...)); err != nil {
			t.Fatal(err)
		}
		err = flags.Open()
		return r, flags.Full, err
	}
	inherited := fmt.Sprint(f.Spec.Baseline, f.Spec.Options, f.Spec.Seed, f.Spec.Splits)
	for _, c := range []struct {
		args   string
		sample float64
		full   string // "" = the job is paired
	}{
		{"", .05, ""},
		{"--sample 0.5", .5, ""},
		{"--max-rows 9", 1, ""},
		{"--until error", 1, ""},
		{"--max-time 1m --sample 0.25", .25, ""},
		{"--full-every 4 --max-inherited-error 0.04", .05, ""},
		{"--full-every 3 --sample 0.5 --until error", 1, "are 2 paired jobs after the last full one, and --full-every is 3"},
		{"--full-every 1 --max-rows 5", 1, "--full-every is 1"},
		{"--max-inherited-error 0.039", 1, "have a relative error of 0.04, and --max-inherited-error is 0.039"},
	} {
		r, full, err := open(append([]string{"--previous", paired, "--previous-model", "m.pth"}, strings.Fields(c.args)...)...)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.Baseline, r.Options, r.Seed, r.Splits); got != inherited || r.Sample != c.sample {
			t.Errorf("%q: settings %s, expected %s; sample %v, expected %v", c.args, got, inherited, r.Sample, c.sample)
		}
		if (full == "") != (c.full == "") || !strings.Contains(full, c.full) || (r.Previous == nil) != (full != "") || full != "" && (r.Until != nil || r.MaxRows != 0) {
			t.Errorf("%q: %q, previous %v, until %v, at most %d rows", c.args, full, r.Previous, r.Until, r.MaxRows)
		}
		if p := r.Previous; p != nil {
			digest, err := files.Digest(paired)
			if err != nil || p.Digest != digest || p.Scores.Lineage.Error != .04 || prepare.Generation(p.Scores) != 3 {
				t.Errorf("%q: %+v, %v", c.args, p, err)
			}
			if _, err := p.Open(); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q: opening the previous model: %v", c.args, err)
			}
		}
	}

	// What the user gives remains. After a full job only --full-every 1 is a bound.
	r, why, err := open("--previous", full, "--previous-model", "m.pth", "--estimator", estimator.Antithetic, "--seed", "5", "--splits", "test", "--baseline", "zero", "--full-every", "2", "--max-inherited-error", "0.001")
	if err != nil || r.Previous == nil || why != "" || r.Options.Estimator != estimator.Antithetic || r.Options.Passes != 3 || r.Seed != 5 || !slices.Equal(r.Splits, []string{dataset.Test}) || r.Baseline != "zero" {
		t.Errorf("%+v, %q, %v", r, why, err)
	}

	for want, args := range map[string]string{
		"--previous-model needs --previous":                                         "--previous-model m.pth",
		"--full-every needs --previous":                                             "--full-every 7",
		"--max-inherited-error needs --previous":                                    "--max-inherited-error 1",
		"--full-every 0: must be above 0":                                           "--previous s --full-every 0",
		"--max-inherited-error -1: must be above 0":                                 "--previous s --max-inherited-error -1",
		"--max-inherited-error NaN: must be above 0":                                "--previous s --max-inherited-error NaN",
		"--previous-model, the checkpoint of the model with digest " + f.Spec.Model: "--previous " + full,
	} {
		if _, _, err := open(strings.Fields(args)...); !fault.IsUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", args, err, want)
		}
	}
}

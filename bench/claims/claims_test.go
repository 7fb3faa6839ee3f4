package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"shaver/bench/paired"
	"shaver/bench/stage"
	"shaver/internal/base/long"
)

// A run prints all tables, another run computes nothing again, and -report prints the
// same tables.
func TestRun(t *testing.T) {
	long.Test(t)
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "shaver/cmd/shaver").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	toySeeds = 1
	claims := tool{work: stage.Folder(dir), seeds: 1, settings: settings{Portion: .00004, Training: "--epochs 1 --hidden 8 --dim 4", Cross: "--cross-layers 1 --experts 1 --rank 2"}}
	o := options{kinds: []string{"dcn-mix"}, only: "kdd-dcn-mix", phases: "pruned,stored,tuned"}
	run := func(report bool) string {
		var text strings.Builder
		o.report = report
		if err := claims.run(&text, &o); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	tables := run(false)
	for _, want := range []string{
		`\nToy check: the mean \|value\| is \.0\d{4}\. The mean \|estimate - value\| is \.00\d{3} with 1, \.00\d{3} with 10, \.000\d\d with 100, orders per row\.\n`,
		`\n\| KDD's shape, DCN-Mix \| 1 \| \d+ \| \d+ \| \.\d{4} \| \.\d{4} \|\n`,
		`\n\| KDD's shape, DCN-Mix: path(, zero)?( \| [+-]\.\d{4} ± \.\d{4}){7} \|\n`,
		`\n\| KDD's shape, DCN-Mix: shapley, .01 of the rows( \| [+-]\.\d{4} ± \.\d{4}){7} \|\n`,
		`\n\| magnitude, synthetic \| 7( \| \d){3}( \| [+-]\.\d{4}){2}( \| \d){3} \|\n`,
		`\n\| KDD's shape, DCN-Mix( \| [+-]\.\d{4} ± \.\d{4}){6} \|\n`,           // PTQ
		`\n\| KDD's shape, DCN-Mix( \| \d\.\d\d){3} \|\n`,                        // bins
		`\n\| KDD's shape, DCN-Mix \| 1( \| [+-]\.\d{4} ± \.\d{4}){6} \|\n`,      // tuning
		`\n\| KDD's shape, DCN-Mix \| 1( \| [+-]\.\d{4} ± \.\d{4} \| \.\d\d){2}`, // bits
	} {
		if !regexp.MustCompile(want).MatchString(tables) {
			t.Errorf("the tables lack %s:\n%s", want, tables)
		}
	}
	before := written(t, dir)
	for _, report := range []bool{false, true} {
		if again := run(report); again != tables {
			t.Errorf("report %v: the second run printed\n%s\nexpected\n%s", report, again, tables)
		}
	}
	if after := written(t, dir); after != before {
		t.Errorf("the second run changed files:\n%s\nexpected\n%s", after, before)
	}
	claims.settings.Portion = .01
	if err := claims.run(&strings.Builder{}, &o); err == nil || !strings.Contains(err.Error(), "another -work") {
		t.Errorf("other settings gave %v", err)
	}
}

// written returns the files of dir with the times at which they were written.
func written(t *testing.T, dir string) string {
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil {
			list.WriteString(path + " " + info.ModTime().String() + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

// A gain is a higher AUC or a lower LogLoss, and cells of synthetic and of real data are counted apart.
func TestTally(t *testing.T) {
	var all []outcome
	for _, shape := range []string{"kdd", ""} {
		o := outcome{subject: &subject{shape: shape}, pruned: []pruned{{Lines: map[string][]against{}}}}
		for i := range sparsities {
			var a against
			a.Reference[paired.AUC].Difference, a.Reference[paired.AUC].SE = .001, .0004
			if shape != "" {
				a.Reference[paired.AUC].Difference *= float64(i - 1)
			}
			a.Reference[paired.LogLoss].Difference = .001
			o.pruned[0].Lines["path"] = append(o.pruned[0].Lines["path"], a)
		}
		all = append(all, o)
	}
	var text strings.Builder
	tally(&text, all, "path")
	want := "| path, synthetic | 7 | 5 | 5 | 1 | -.0010 | +.0050 | 0 | 0 | 7 |\n| path, real | 7 | 7 | 7 | 0 | +.0010 | +.0010 | 0 | 0 | 7 |\n"
	if text.String() != want {
		t.Errorf("tally printed %q, expected %q", text.String(), want)
	}
}

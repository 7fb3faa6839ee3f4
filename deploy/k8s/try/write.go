//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
)

// defects are the numbers of the defects that an earlier run found. Each has its line in the
// table. Those of docker-compose.yml are in the other section of the page.
var defects = []struct{ number, was string }{
	{"1", "`shaver job cancel` made Kubernetes start the job again"},
	{"2", "a night replaced the scores of the night before"},
	{"3", "no way to copy data into the volume and results out of it"},
	{"4", "exit code 4 computed everything again, six times"},
	{"5", "a job by hand made the nightly job fail with 5, without scores"},
	{"6", "the commands of README.md failed in their order"},
	{"7", "no way for an operator to list and cancel jobs"},
	{"8", "the manifests asked for 12 cores and 20 GiB"},
	{"9", "no autoscaling, and no metric for it"},
	{"10", "lines that are no JSON in JSON logs"},
	{"11", "seven deleted or killed pods ended a job for good"},
	{"12", "a job without workers of its kernel waited without limit, at level info"},
	{"13", "a model that came late lost the night"},
	{"14", "README.md said that models stay after their job"},
	{"15", "README.md's command for the log failed, or showed a dead pod"},
	{"16", "workers as a Job ran next to the Deployment"},
	{"17", "a pod was ready up to 30 s late"},
	{"18", "idle workers warned every 15 s"},
	{"19", "no PodMonitor, no alert rules"},
	{"20", "no network policy for object stores"},
	{"21", "no .dockerignore"},
	{"22", "README.md said that nothing had run on Kubernetes"},
}

// write replaces the section "cluster" of a page by the transcript.
func (s *suite) write(page string) error {
	var numbers []string
	for _, d := range defects {
		numbers = append(numbers, d.number)
	}
	table := s.run.Points(numbers)
	for _, d := range defects {
		table = strings.Replace(table, "\n| "+d.number+" | ", "\n| "+d.number+" | "+d.was+" | ", 1)
	}
	table = strings.Replace(table, "| # | what is seen now | step |\n|---|", "| # | what happened before | what is seen now | step |\n|---|---|", 1)
	var b strings.Builder
	fmt.Fprintf(&b, "Run on %s with Kubernetes %s. All steps passed after %.0f s.\n\n", time.Now().UTC().Format(time.DateOnly), s.versions["kubernetes"], time.Since(s.begun).Seconds())
	b.WriteString("### Defects of an earlier run\n\n" + table + "\n### Transcript\n\n" + s.run.Markdown(4))
	return trial.Replace(page, "cluster", b.String())
}

// summary prints a line for each step.
func (s *suite) summary() { fmt.Fprint(os.Stdout, s.run.Summary()) }

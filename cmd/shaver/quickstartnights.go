package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/night"
	"shaver/internal/app/places"
	"shaver/internal/prune/nightly"
)

// simulatedNights is what "quickstart --nights" prints.
type simulatedNights struct {
	Nights []nightly.Line `json:"nights"`
}

// simulate runs nights on a planted model that drifts. file returns the path of a file in
// the folder of the quickstart.
func (o *quickstartOptions) simulate(c *cobra.Command, file func(string) string) error {
	say := func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }
	start := time.Now()
	log, err := cli.Logger("text", false)
	if err != nil {
		return err
	}
	r := night.Runner{Copying: places.Copying{Log: log}, Quiet: true}
	lines, err := r.Simulate(c.Context(), &night.Simulation{Nights: o.nights, Rows: o.rows, Seed: o.seed, File: file, Say: say})
	if err != nil {
		return err
	}
	all := simulatedNights{lines}
	if err := o.output.Print(c.OutOrStdout(), all, all.table); err != nil {
		return err
	}
	say("done in %.0f s\n", time.Since(start).Seconds())
	if o.out == "" {
		say("The files were temporary. With --out DIR they stay, with a page about the nights.")
		return nil
	}
	say("Look at the nights, or run one more, which has nothing to do:\n  %s\n  shaver nightly --config %s", file("nightly/history.html"), file("nightly.yaml"))
	return nil
}

// table lists what each night did and what it cost.
func (s *simulatedNights) table(w io.Writer) {
	percent := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f%%", 100**v)
	}
	fmt.Fprintf(w, "NIGHT\tOUTCOME\tGENERATION\tEVALUATIONS\tOF A FULL JOB\tCORE SECONDS\tERROR\tAUC\tPRUNED\tCHURN\tWITHOUT HYSTERESIS\n")
	var evaluations, full int64
	for _, l := range s.Nights {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%.1f\t%s\t%s\t%s\t%s\t%s\n", l.Night, l.Outcome, l.Generation, l.Evaluations, percent(night.Portion(l.Evaluations, l.FullEvaluations)), l.ScoreCoreSeconds,
			percent(l.RelativeError), cli.Metric(l.AUC), cli.Metric(l.PrunedAUC), percent(l.Churn), percent(l.PlainChurn))
		evaluations += l.Evaluations
		full += l.FullEvaluations
	}
	fmt.Fprintf(w, "all\t\t\t%d\t%s\n", evaluations, percent(night.Portion(evaluations, full)))
}

package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/places"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/cputime"
	"shaver/internal/base/fault"
	"shaver/internal/num/kernel"
	"shaver/internal/ops/metrics"
	"shaver/internal/prune/nightly"
)

// nightlyExample is a configuration with comments.
//
//go:embed nightly.yaml
var nightlyExample string

type nightlyOptions struct {
	config, date string
	again, init  bool
	log          string
	verbose      bool
	output       cli.Output
}

func nightlyCommand() *cobra.Command {
	var o nightlyOptions
	c := &cobra.Command{
		Use:   "nightly",
		Short: "Score, prune, check and publish tonight's model",
		Long:  help("nightly") + "\n\n" + cli.ExitHelp,
		Example: `  shaver nightly --init --config nightly.yaml
  shaver nightly --config nightly.yaml
  shaver nightly --config nightly.yaml --date tuesday --again`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	f.StringVar(&o.config, "config", "", "configuration `file`, YAML")
	cli.Files(c, "config", "yaml", "yml")
	f.StringVar(&o.date, "date", "", "`name` of the night (default the name of the newest day)")
	f.BoolVar(&o.again, "again", false, "run a night even if nothing is new")
	f.BoolVar(&o.init, "init", false, "write an example to --config, which must not exist, and end")
	cli.LogFlags(c, &o.log, &o.verbose)
	f.Lookup("verbose").Usage = "log what the jobs do"
	o.output.Flag(c)
	cli.MarkRequired(c, "config")
	return c
}

func (o *nightlyOptions) run(c *cobra.Command) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	log, err := cli.Logger(o.log, false)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }
	if o.log == cli.JSONLog {
		o.output.OneLine()
		say = func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) }
	}
	if o.init {
		if _, err := os.Lstat(o.config); err == nil {
			return fault.Usagef("cannot write %s: it already exists; name another file", o.config)
		}
		if err := atomicfile.Write(o.config, func(w io.Writer) error { _, err := io.WriteString(w, nightlyExample); return err }); err != nil {
			return err
		}
		say("wrote %s: change it and run shaver nightly --config %s", o.config, o.config)
		return nil
	}
	result, err := runNight(c, o.config, nightly.Options{Date: o.date, Again: o.again, Say: say}, o.log, !o.verbose)
	if err != nil {
		return err
	}
	if err := o.output.Print(c.OutOrStdout(), result.Latest, func(w io.Writer) { nightTable(w, result) }); err != nil {
		return err
	}
	return nightError(result)
}

// runNight runs shaver nightly with a configuration. It sets the rest of the options. log is the
// format of the jobs' log. quiet
// hides what the jobs log, except warnings and errors.
func runNight(c *cobra.Command, path string, o nightly.Options, log string, quiet bool) (*nightly.Result, error) {
	config, err := nightly.Read(path, nightlyKeys)
	if err != nil {
		return nil, err
	}
	if err := checkNightly(config); err != nil {
		return nil, err
	}
	if name := config.Score.Get("kernel"); name != "" {
		kernel.Use(name) // in all steps; auto selects none
	}
	var set *metrics.Set
	if config.Address != "" {
		set = metrics.New()
		server, err := metrics.Serve(config.Address, set)
		if err != nil {
			return nil, fmt.Errorf("%s: metrics.address: %w", path, err)
		}
		defer server.Stop()
		server.SetReady(func() error { return nil })
	}
	commit, end, err := places.Nights(c, config, o.Date)
	if err != nil {
		return nil, end(err)
	}
	o.Now, o.CPU = time.Now, cputime.Process
	report := func(lines []nightly.Line) error {
		if len(lines) == 0 {
			return nil
		}
		n := nightMetrics(lines)
		if set != nil {
			set.Night(n)
		}
		if config.Textfile == "" {
			return nil
		}
		if err := metrics.WriteNight(config.Textfile, n); err != nil {
			return fmt.Errorf("key metrics.textfile of the configuration: %w", err)
		}
		return nil
	}
	o.Changed, o.Commit = report, commit
	result, err := nightly.Run(c.Context(), config, nightlyKeys, &nightSteps{config, log, quiet}, o)
	return result, end(err)
}

// nightError returns cli.ErrGate if the last night that ran failed its check.
func nightError(r *nightly.Result) error {
	if len(r.Nights) == 0 {
		return nil
	}
	last := r.Nights[len(r.Nights)-1]
	if last.Outcome != nightly.Failed {
		return nil
	}
	published := "nothing is published"
	if r.Current != nil {
		published = "the night " + r.Current.Night + " stays published"
	}
	return fmt.Errorf("%w: %s; %s", cli.ErrGate, strings.Join(last.Reasons, "; "), published)
}

// nightMetrics returns the metrics of the last of at least one night.
func nightMetrics(lines []nightly.Line) *metrics.Night {
	l := &lines[len(lines)-1]
	n := &metrics.Night{
		Number: l.Number, Generation: l.Generation, Finished: timeOf(l.Finished), Published: l.Outcome == nightly.Published, Seconds: l.Seconds, CoreSeconds: l.CoreSeconds,
		Rows: l.Rows, Evaluations: l.Evaluations, RelativeError: l.RelativeError, Reduction: l.Reduction, AUC: l.AUC, PrunedAUC: l.PrunedAUC, AUCDrop: l.AUCDrop,
		LogLoss: l.LogLoss, PrunedLogLoss: l.PrunedLogLoss, LogLossRise: l.LogLossRise, RMSE: l.RMSE, PrunedRMSE: l.PrunedRMSE, RMSERise: l.RMSERise, Churn: l.Churn, PlainChurn: l.PlainChurn, Sparsity: l.Sparsity, Bytes: l.Bytes,
	}
	for _, l := range lines {
		if l.Outcome == nightly.Published {
			n.LastPublished = timeOf(l.Finished)
		}
	}
	return n
}

// timeOf returns the time of a line, or the zero time if the line has none.
func timeOf(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// nightTable writes what Run did, and the last line of the history.
func nightTable(w io.Writer, r *nightly.Result) {
	l := r.Latest
	if l == nil {
		return
	}
	percent := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f%%", 100**v)
	}
	fmt.Fprintf(w, "night\t%s\t%s\n", l.Night, l.Outcome)
	for _, reason := range l.Reasons {
		fmt.Fprintf(w, "why\t%s\n", reason)
	}
	if r.Current != nil {
		fmt.Fprintf(w, "current\t%s\n", r.Current.Night)
	}
	fmt.Fprintf(w, "days\t%d\t%s\n", len(l.Days), daysText(l.Days))
	fmt.Fprintf(w, "rows\t%d\n", l.Rows)
	fmt.Fprintf(w, "evaluations\t%d\t%s of a full job, generation %d\n", l.Evaluations, percent(portionOf(l.Evaluations, l.FullEvaluations)), l.Generation)
	if l.RelativeError != nil {
		fmt.Fprintf(w, "relative error\t%.4g\tcompared with a full job\n", *l.RelativeError)
	}
	if l.RMSE != nil {
		fmt.Fprintf(w, "RMSE\t%s\tpruned %s\n", cli.Metric(l.RMSE), cli.Metric(l.PrunedRMSE))
	} else {
		fmt.Fprintf(w, "AUC\t%s\tpruned %s\n", cli.Metric(l.AUC), cli.Metric(l.PrunedAUC))
		fmt.Fprintf(w, "LogLoss\t%s\tpruned %s\n", cli.Metric(l.LogLoss), cli.Metric(l.PrunedLogLoss))
	}
	fmt.Fprintf(w, "churn\t%s\twithout hysteresis %s\n", percent(l.Churn), percent(l.PlainChurn))
	fmt.Fprintf(w, "file\t%s\n", cli.Change(l.DenseBytes, l.Bytes))
	fmt.Fprintf(w, "seconds\t%.1f\t%.1f of CPU\n", l.Seconds, l.CoreSeconds)
	if l.Note != "" {
		fmt.Fprintf(w, "note\t%s\n", l.Note)
	}
}

// portionOf returns part / whole, or nil if whole is 0.
func portionOf(part, whole int64) *float64 {
	if whole == 0 {
		return nil
	}
	p := float64(part) / float64(whole)
	return &p
}

// daysText names the days of a window.
func daysText(days []string) string {
	if len(days) < 2 {
		return strings.Join(days, "")
	}
	return days[0] + " to " + days[len(days)-1]
}

// number parses a setting that the configuration has already accepted as a number.
func number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return v
}

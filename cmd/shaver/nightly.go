package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/night"
	"shaver/internal/app/places"
	"shaver/internal/app/score"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/prune/nightly"
)

// nightlyExample is a configuration with comments.
//
//go:embed nightly.yaml
var nightlyExample string

type nightlyOptions struct {
	config, date string
	again, init  bool
	imports      bool
	log          string
	verbose      bool
	output       cli.Output
}

func nightlyCommand() *cobra.Command {
	var o nightlyOptions
	c := &cobra.Command{
		Use:   "nightly",
		Short: "Score, prune, check and publish tonight's model",
		Long:  help.Text("nightly") + "\n\n" + cli.ExitHelp,
		Example: `  shaver nightly --init --config nightly.yaml
  shaver nightly --config nightly.yaml
  shaver nightly --config nightly.yaml --date tuesday --again`,
		Args: cli.Args(cobra.NoArgs),
		RunE: cli.Run(o.run, o.output.Check),
	}
	f := c.Flags()
	flags.File(c, &o.config, "config", "configuration `file`, YAML", "yaml", "yml")
	f.StringVar(&o.date, "date", "", "`name` of the night (default the name of the newest day)")
	f.BoolVar(&o.again, "again", false, "run a night even if nothing is new")
	f.BoolVar(&o.init, "init", false, "write an example to --config, which must not exist, and end")
	f.BoolVar(&o.imports, "import", false, "import the days of the source, and end: the model may then be trained on them")
	cli.LogFlags(c, &o.log, &o.verbose)
	f.Lookup("verbose").Usage = "log what the jobs do"
	o.output.Flag(c)
	cli.MarkRequired(c, "config")
	c.AddCommand(score.NightCommand())
	return c
}

func (o *nightlyOptions) run(c *cobra.Command, _ []string) error {
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
	if _, err := os.Stat(o.config); errors.Is(err, fs.ErrNotExist) {
		return fault.Inputf("there is no file %s: shaver nightly --init --config %s writes an example", o.config, o.config)
	}
	scratch, err := c.Flags().GetString(places.ScratchFlag)
	if err != nil {
		return err
	}
	r := night.Runner{Copying: places.Copying{Scratch: scratch, Log: log, JSON: o.log == cli.JSONLog}, Quiet: !o.verbose, Importer: nightImporter(c.ErrOrStderr())}
	if o.imports {
		return r.Import(c.Context(), o.config, o.date, say)
	}
	ctx, result, err := r.Run(c.Context(), o.config, nightly.Options{Date: o.date, Again: o.again, Say: say})
	if err != nil {
		return err
	}
	c.SetContext(ctx)
	if err := o.output.Print(c.OutOrStdout(), result.Latest, func(w io.Writer) { nightTable(w, result) }); err != nil {
		return err
	}
	return nightError(result)
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
	for _, text := range l.Answer {
		fmt.Fprintf(w, "answer\t%s\n", text)
	}
	if r.Current != nil {
		fmt.Fprintf(w, "current\t%s\n", r.Current.Night)
	}
	fmt.Fprintf(w, "days\t%d\t%s\n", len(l.Days), daysText(l.Days))
	fmt.Fprintf(w, "rows\t%d\n", l.Rows)
	fmt.Fprintf(w, "evaluations\t%d\t%s of a full job, generation %d\n", l.Evaluations, percent(night.Portion(l.Evaluations, l.FullEvaluations)), l.Generation)
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

// daysText names the days of a window.
func daysText(days []string) string {
	if len(days) < 2 {
		return strings.Join(days, "")
	}
	return days[0] + " to " + days[len(days)-1]
}

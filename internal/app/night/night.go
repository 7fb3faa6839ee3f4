// Package night runs nights: it reads a configuration, sets the options of the steps by it, runs the steps,
// exports the metrics, and simulates nights on generated data.
package night

import (
	"context"
	"fmt"
	"slices"
	"time"

	"shaver/internal/app/cli"
	"shaver/internal/app/places"
	"shaver/internal/base/cputime"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/num/kernel"
	"shaver/internal/ops/metrics"
	"shaver/internal/prune/nightly"
)

// Runner runs nights.
type Runner struct {
	places.Copying
	Quiet    bool // log only warnings and errors of the jobs
	Importer Importer
}

// Read reads the configuration at path, and checks the settings of all steps.
func (r *Runner) Read(path string) (*nightly.Config, error) {
	all := keys
	all.Source = append(slices.Clip(sourceKeys), r.Importer.Keys...)
	config, err := nightly.Read(path, all)
	if err != nil {
		return nil, err
	}
	if err := check(config); err != nil {
		return nil, err
	}
	if config.Source != nil {
		if _, err := readSource(config); err != nil {
			return nil, err
		}
	}
	if err := checkTracking(config); err != nil {
		return nil, err
	}
	return config, checkTextfile(config)
}

// checkTextfile returns bad input unless the metrics may be written where the configuration says.
// They replace an earlier file of metrics only.
func checkTextfile(c *nightly.Config) error {
	if c.Textfile == "" {
		return nil
	}
	if places.IsURL(c.Textfile) {
		return fault.Inputf("%s: metrics.textfile %s: expected a file of this machine", c.Path, c.Textfile)
	}
	o := cli.Outputs{Forceless: true}
	o.Inputs(c.Path)
	if !places.IsURL(c.Model) {
		o.Inputs(checkpoint.Files(c.Model)...)
	}
	if !places.IsURL(c.Out) {
		o.Inputs(c.Files()...)
	}
	if err := o.Check("metrics.textfile", c.Textfile, cli.Unless(metrics.NightWritten, "a file of metrics")); err != nil {
		return fault.Inputf("%s: metrics.textfile: %v", c.Path, err)
	}
	return nil
}

// Run runs a night with the configuration at path. It sets the rest of the options. inner is the context of the night, by which
// what is printed has URLs.
func (r *Runner) Run(ctx context.Context, path string, o nightly.Options) (inner context.Context, result *nightly.Result, err error) {
	config, err := r.Read(path)
	if err != nil {
		return ctx, nil, err
	}
	if name := config.Score.Get("kernel"); name != "" {
		kernel.Use(name) // in all steps; auto selects none
	}
	var set *metrics.Set
	if config.Address != "" {
		set = metrics.New()
		server, err := metrics.Serve(config.Address, set)
		if err != nil {
			return ctx, nil, fmt.Errorf("%s: metrics.address: %w", path, err)
		}
		defer server.Stop()
		server.SetReady(func() error { return nil })
	}
	track := &tracker{*config, o.Say}
	inner, commit, end, err := localise(ctx, &r.Copying, config, o.Date)
	if err != nil {
		return inner, nil, end(err)
	}
	o.Now, o.CPU = time.Now, cputime.Process
	report := func(lines []nightly.Line) error {
		if len(lines) == 0 {
			return nil
		}
		n := Metrics(lines)
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
	o.Observe = func(e nightly.Event) { track.observe(inner, e) }
	result, err = nightly.Run(inner, config, keys, &running{r, config, o.Say}, o)
	return inner, result, end(err)
}

// Import imports the days that a night with the configuration at path would import. It waits for the day of the given name, unless that is "".
func (r *Runner) Import(ctx context.Context, path, date string, say func(format string, args ...any)) error {
	config, err := r.Read(path)
	if err != nil {
		return err
	}
	if config.Source == nil {
		return fault.Inputf("%s: the key source is missing, which says from where days are imported", path)
	}
	inner, end, err := places.Stores(ctx, &r.Copying)
	if err != nil {
		return end(err)
	}
	return end(nightly.Import(inner, config, &running{r, config, say}, date))
}

// Metrics returns the metrics of the last of at least one night.
func Metrics(lines []nightly.Line) *metrics.Night {
	l := &lines[len(lines)-1]
	n := &metrics.Night{
		Number: l.Number, Generation: l.Generation, Finished: Time(l.Finished), Published: l.Outcome == nightly.Published, Seconds: l.Seconds, CoreSeconds: l.CoreSeconds,
		Rows: l.Rows, Evaluations: l.Evaluations, RelativeError: l.RelativeError, Reduction: l.Reduction, AUC: l.AUC, PrunedAUC: l.PrunedAUC, AUCDrop: l.AUCDrop,
		LogLoss: l.LogLoss, PrunedLogLoss: l.PrunedLogLoss, LogLossRise: l.LogLossRise, RMSE: l.RMSE, PrunedRMSE: l.PrunedRMSE, RMSERise: l.RMSERise, Churn: l.Churn, PlainChurn: l.PlainChurn, Sparsity: l.Sparsity, Bytes: l.Bytes,
	}
	for _, l := range lines {
		if l.Outcome == nightly.Published {
			n.LastPublished = Time(l.Finished)
		}
	}
	return n
}

// Time returns the time of a line, or the zero time if the line has none.
func Time(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// Portion returns part / whole, or nil if whole is 0.
func Portion(part, whole int64) *float64 {
	if whole == 0 {
		return nil
	}
	p := float64(part) / float64(whole)
	return &p
}

package score

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/forecast"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/kernel"
	"shaver/internal/num/loss"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

// JobOptions say which job to run. Commands that run or plan a job share them, with their flags.
type JobOptions struct {
	Model       string
	ModelOutput string      // output of the model, if it is an .onnx file with several
	Tasks       []string    // labels with outputs and weights; see model.ParseTasks
	Dataset     []string    // folder of the dataset, or those of a window's days
	Kernel      *cli.Kernel // not nil
	Sparsity    float64     // belongs to the stop rule or to the estimator's options
	Previous    Previous
	Given       cli.Given // settings that were not given may become those of previous scores

	request *prepare.Request
	until   job.Until // becomes the request's Until if one of its settings is given
	maxTime time.Duration
	advised bool // the defaults are Advised
	// Full says why Open made the job score all rows although previous scores are given;
	// "" = it did not.
	Full string
	// warning says that the values of fields come from rows on which the model may be trained, because the dataset
	// has no others, and chosen that there are too few rows for the default estimator. Open sets them; "" = it is not so.
	warning, chosen string
}

// Defaults are the defaults of some flags of a job.
type Defaults struct {
	Estimator, Baseline string
	Splits              []string
}

var (
	// Advised are the defaults of commands that people run. They give the order by which to prune,
	// and leave the other splits to judge it by.
	Advised = Defaults{estimator.Path, baseline.Codebook, []string{dataset.Train}}
	// Recorded are the defaults of commands whose flags are in files, such as a manifest. They never change, so
	// that a file without these flags stays the same job.
	Recorded = Defaults{estimator.Permutation, baseline.Zero, []string{dataset.Train, dataset.Val}}
	// Nightly are the defaults of a night, whose check measures on other splits.
	Nightly = Defaults{Recorded.Estimator, Recorded.Baseline, Advised.Splits}
)

// setDefaults sets the defaults of the options and of request, which they describe.
func (o *JobOptions) setDefaults(request *prepare.Request, d Defaults) {
	auto := cli.Kernel(cli.AutoKernel)
	o.request, o.Kernel, o.advised = request, &auto, d.Estimator == Advised.Estimator
	request.Options = estimator.Options{Estimator: d.Estimator, Passes: 1}
	request.Baseline, request.Splits, request.Seed, request.Sample = d.Baseline, slices.Clone(d.Splits), 1, 1
}

// Add adds the flags to c, except those of previous scores, and binds them to request.
func (o *JobOptions) Add(c *cobra.Command, request *prepare.Request, defaults Defaults) {
	o.setDefaults(request, defaults)
	f := c.Flags()
	o.Given = f.Changed
	f.StringVar(&o.Model, "model", "", "checkpoint `file`: .pth or safetensors")
	f.StringVar(&o.ModelOutput, "model-output", "", "`name` of the output of --model, if it is an .onnx file with several (default the only one)")
	f.StringSliceVar(&o.Tasks, "task", nil, cli.TaskHelp)
	f.StringSliceVar(&o.Dataset, "dataset", nil, "dataset `folder`, made by shaver dataset import; or "+cli.DaysHelp)
	f.StringVar(&o.request.Baseline, "baseline", o.request.Baseline, "`value` that replaces a dropped entry: "+baseline.Help())
	var settings []string
	for _, s := range request.Options.Settings() {
		settings = append(settings, s.Name)
		if s.Target == &request.Options.Sparsity { // Open decides which of the two it sets
			f.Float64Var(&o.Sparsity, s.Name, 0, fmt.Sprintf("`portion` of the entries that pruning will drop: the largest one for %s (default %g), and for --until %s that at which halves are compared (default %g)", estimator.Path, estimator.DefaultSparsity, job.Overlap, job.AtSparsity))
			continue
		}
		switch v := s.Target.(type) {
		case *string:
			f.StringVar(v, s.Name, *v, s.Help)
			cli.Choices(c, s.Name, s.Choices...)
		case *int:
			f.IntVar(v, s.Name, *v, s.Help)
		case *float64:
			f.Float64Var(v, s.Name, *v, s.Help)
		default:
			panic("score: no flag for option " + s.Name)
		}
	}
	f.StringSliceVar(&o.request.Freeze, "freeze", nil, "`fields` whose entries are no players and keep their values, such as one with a table of text vectors, separated by commas or given one by one (default none)")
	f.StringVar(&o.request.Loss, "loss", "", "`loss` of a row: "+strings.Join(loss.Names(), " or ")+" (default squared if labels are numbers, else logistic)")
	cli.Choices(c, "loss", loss.Names()...)
	f.Uint64Var(&o.request.Seed, "seed", o.request.Seed, "seed of all random numbers")
	f.StringSliceVar(&o.request.Splits, "splits", o.request.Splits, "`splits` to score, separated by commas")
	f.Lookup("splits").DefValue = strings.Join(defaults.Splits, ",")
	if o.advised { // see Open
		b := f.Lookup("baseline")
		b.Usage += fmt.Sprintf(" (default %s for %s, else %s)", baseline.Words, estimator.Path, o.request.Baseline)
		b.DefValue = ""
		f.Lookup("splits").DefValue += ", and " + dataset.Fresh + " if the dataset has it"
		e := f.Lookup("estimator")
		e.Usage += fmt.Sprintf(" (default %s, or %s below %d rows unless --%s or --%s is given)", estimator.Path, estimator.Multilinear, scores.FewRows, strings.Join(keepPath[1:3], ", --"), keepPath[3])
		e.DefValue = ""
	}
	f.Int64Var(&o.request.FreshWeight, "fresh-weight", 0, fmt.Sprintf("`number` of times that a row which the model was not trained on counts, at most %d: one of the split %s or of --fresh-days (default 1, or the square root of the number of other rows for each if the model memorises)", estimator.MaxWeight, dataset.Fresh))
	f.IntVar(&o.request.FreshDays, "fresh-days", 0, "`number` of the newest days of a window that the model was not trained on")
	f.Float64Var(&o.request.Sample, "sample", o.request.Sample, "`portion` of the rows to score, drawn without replacement")
	f.Int64Var(&o.request.MaxRows, "max-rows", 0, "largest number of `rows`, instead of --sample (default no limit)")
	f.StringVar(&o.until.Rule, "until", "", fmt.Sprintf("stop `rule`: %s, %s or %s, which shaver score --help-all explains (default none)", job.Paper, job.Overlap, job.Error))
	f.Float64Var(&o.until.Bound, "bound", 0, fmt.Sprintf("bound for --until (default %g for %s, %g for %s, %g for %s)", job.PaperBound, job.Paper, job.OverlapBound, job.Overlap, job.ErrorBound, job.Error))
	f.DurationVar(&o.maxTime, "max-time", 0, "time limit, such as 90m or 2h; a round does not start if it would exceed the limit at the rate so far (default no limit)")
	f.Float64Var(&o.request.Audit, "audit", 0, fmt.Sprintf("for %s: compare the values with debiased ones on this `portion` of the scored rows, such as 0.1, and write the result into the scores (default no audit)", estimator.Multilinear))
	f.Int64Var(&o.request.RowsPerShard, "rows-per-shard", 0, "`rows` in a task (default about a minute of work; see shaver plan)")
	cli.Files(c, "model", cli.Checkpoints...)
	cli.Folder(c, "dataset")
	cli.Choices(c, "baseline", baseline.Names()...)
	cli.Choices(c, "splits", dataset.SplitNames...)
	cli.Choices(c, "until", job.Rules()...)
	o.Kernel = cli.KernelFlag(c, "`name` of the float32 kernel that computes the job, such as avx2; auto keeps that of the job's progress, or measures which one is fastest")
	cli.Group(c, "Job", "model", "model-output", "task", "dataset", "baseline", "freeze", "loss", "splits", "fresh-weight", "fresh-days", "sample", "max-rows", "seed")
	cli.Group(c, "Estimator", append(settings, "audit")...)
	cli.Group(c, "Stop rule", "until", "bound", "max-time")
	cli.Group(c, "Workers", "kernel", "rows-per-shard")
}

// AddPlayers adds the flag that makes fields the players to c. Add must be called before.
func (o *JobOptions) AddPlayers(c *cobra.Command) {
	c.Flags().StringVar(&o.request.Players, "players", estimator.Entries, fmt.Sprintf("`what` gets values: %s, %s with the dense inputs, which says what a model can do without, or %s of these as well", estimator.Entries, estimator.Fields, estimator.Pairs))
	c.Flags().Lookup("baseline").Usage += fmt.Sprintf("; for %s also %s, their default, which is what a random row has", estimator.Fields, baseline.Marginal)
	cli.Choices(c, "players", estimator.Entries, estimator.Fields, estimator.Pairs)
	cli.Group(c, "Job", "players")
}

// AddPrevious adds the flags of previous scores to c. Add must be called before.
func (o *JobOptions) AddPrevious(c *cobra.Command) { o.Previous.add(c) }

// Open checks the options and opens the model and the dataset that they name. It sets
// both in the request.
func (o *JobOptions) Open() error {
	r := o.request
	if r.RowsPerShard < 0 {
		return fault.Usagef("--rows-per-shard %d: must not be negative", r.RowsPerShard)
	}
	if r.MaxRows < 0 {
		return fault.Usagef("--max-rows %d: must not be negative", r.MaxRows)
	}
	if r.MaxRows > 0 && r.Sample != 1 {
		return fault.Usagef("--max-rows and --sample exclude each other")
	}
	fields := r.OfFields()
	if fields && !o.Given.Has("estimator") {
		r.Options.Estimator = "" // depends on the model
	}
	if fields && !o.Given.Has("baseline") {
		r.Baseline = baseline.Marginal
	}
	if err := o.setSparsity(); err != nil {
		return err
	}
	if o.until.Seconds = o.maxTime.Seconds(); o.until != (job.Until{}) {
		o.until.SetDefaults()
		r.Until = &o.until
	}
	var err error
	if o.Full, err = o.openPrevious(r); err != nil {
		return err
	}
	r.Options.SetDefaults()
	tasks, err := cli.Tasks(o.Tasks, o.ModelOutput)
	if err != nil {
		return err
	}
	if len(tasks) > 1 && fields {
		return fault.Usagef("--task: the values of fields are those of one task: give one label, not %s", model.TasksText(tasks))
	}
	first, err := checkpoint.ReadOutput(o.Model, o.ModelOutput, tasks...)
	if err != nil {
		return err
	}
	r.Open = func() (modelfile.Source, error) {
		if ck := first; ck != nil {
			first = nil
			return ck, nil
		}
		return checkpoint.ReadOutput(o.Model, o.ModelOutput, tasks...)
	}
	if r.Dataset, err = openDataset(o.Dataset, o.Previous.state); err != nil {
		return err
	}
	// The values of fields say what to leave out, so they come from rows that the model was not trained on.
	if !o.Given.Has("splits") {
		switch names := r.Dataset.SplitNames(); {
		case fields && slices.Contains(names, dataset.Fresh):
			r.Splits = []string{dataset.Fresh}
		case fields && slices.Contains(names, dataset.Val):
			r.Splits = []string{dataset.Val}
		case fields:
			o.warning = fmt.Sprintf("the dataset has no split %s, so the values are those of the rows of %s, on which an overfitted field looks useful: import the rows with a split %[1]s, or give --splits", dataset.Val, strings.Join(r.Splits, ", "))
		case o.advised && slices.Contains(names, dataset.Fresh):
			r.Splits = append(slices.Clone(r.Splits), dataset.Fresh)
		}
	}
	if o.advised && !fields && r.Previous == nil && !slices.ContainsFunc(keepPath, o.Given.Has) {
		o.avoidNoise()
	}
	if o.advised && !o.Given.Has("baseline") && r.Options.Estimator == estimator.Path {
		r.Baseline = baseline.Words
	}
	return nil
}

// keepPath are the flags that keep the default estimator, whatever the number of rows is.
var keepPath = []string{"estimator", "parts", "sparsity", "max-time"}

// avoidNoise replaces the default estimator, a path, if there are fewer than scores.FewRows rows. Values then rank better.
func (o *JobOptions) avoidNoise() {
	r := o.request
	rows := int64(r.Sample * float64(r.Rows(r.Splits)))
	if r.MaxRows > 0 {
		rows = min(rows, r.MaxRows)
	}
	if rows >= scores.FewRows {
		return
	}
	r.Options.Estimator, r.Options.Parts, r.Options.Sparsity = estimator.Multilinear, 0, 0
	r.Options.SetDefaults()
	o.chosen = fmt.Sprintf("%d rows are few for a path, so the estimator is %s, whose ranking is less noisy below %d rows; --estimator %s gives the path", rows, estimator.Multilinear, scores.FewRows, estimator.Path)
}

// Notices logs what Open has to say about the rows: a warning, or why it took another estimator than the default.
func (o *JobOptions) Notices(log *zap.Logger) {
	if o.warning != "" {
		log.Warn(o.warning)
	}
	if o.chosen != "" {
		log.Info(o.chosen)
	}
}

// setSparsity sets the sparsity of the stop rule, or that of the estimator.
func (o *JobOptions) setSparsity() error {
	options := &o.request.Options
	path := options.Traits().Ranks
	switch {
	case path && o.until.Rule != "":
		return fault.Usagef("--until needs an estimator of values, such as %s, not %s", estimator.Debiased, options.Estimator)
	case !o.Given.Has("sparsity"):
	case path:
		options.Sparsity = o.Sparsity
	case o.until.Rule == job.Overlap:
		o.until.Sparsity = o.Sparsity
	default:
		return fault.Usagef("--sparsity needs --until %s or --estimator %s", job.Overlap, estimator.Path)
	}
	return nil
}

// ChooseKernel selects the kernel that the job would have on this machine, without scores or
// progress of the job. It returns the rates that it measured, or nil if the flags or the
// previous scores give the kernel, or a choice gains nothing. Open has been called.
func (o *JobOptions) ChooseKernel(ctx context.Context) ([]forecast.Rate, error) {
	if !o.Kernel.Auto() {
		return nil, nil
	}
	if p := o.request.Previous; p != nil {
		kernel.Use(p.Scores.Spec.Kernel) // without this kernel, prepare says what is wrong
		return nil, nil
	}
	return launch.ChooseKernel(ctx, *o.request)
}

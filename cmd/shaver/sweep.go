package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/training"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/mask"
)

// sweepInput says what a sweep compares.
type sweepInput struct {
	model, split      string
	modelOutput       string   // output of the model, if it is an .onnx file with several
	dataset           []string // folder, or those of a window's days
	scores            []string // files
	snip              string   // file with the scores of the method SNIP, or ""
	models            []string // files of models that are measured as they are
	aggregates        []string // aggregates of the scores; those of a path have only their order
	given             bool     // the user gave aggregates
	rank              string
	rivals            []string // methods of --methods
	values            []string // how kept values are stored
	seed              uint64
	keep              mask.Keep
	budgets           []mask.Budget
	calibrate, choose bool
	tune              bool
}

// sweepFlags are the flags of "sweep" that "study" has too.
type sweepFlags struct {
	sweepInput
	methods    []string
	sparsities []float64
	picture    string
	outputs    cli.Outputs
	output     cli.Output
}

type sweepOptions struct {
	sweepFlags
	parameters, bytes []int64
	out               string
}

func sweepCommand() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use:     "sweep",
		Short:   "Compare pruning methods at several budgets",
		Long:    help("sweep"),
		Example: help("sweep.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			if !c.Flags().Changed("scores") && !c.Flags().Changed("models") {
				return fault.Usagef("%s needs --scores or --models", c.CommandPath())
			}
			o.given = c.Flags().Changed("aggregate")
			if !o.given && o.choose && o.rank == mask.Abs {
				o.aggregates = scores.Aggregates()
			}
			if c.Flags().Changed("sparsities") && len(o.parameters)+len(o.bytes) > 0 {
				return fault.Usagef("--sparsities, --parameters and --bytes are all budgets: give only one")
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	modelFlag(c, &o.model, "checkpoint `file` that was scored")
	modelOutputFlag(c, &o.modelOutput)
	f.StringSliceVar(&o.scores, "scores", nil, "`files` with scores of the model, separated by commas; several are compared (required without --models)")
	cli.Files(c, "scores", "arrow")
	f.StringVar(&o.snip, "snip", "", "`file` with taylor scores of the model before its training, for the method snip (default none)")
	cli.Files(c, "snip", "arrow")
	f.StringSliceVar(&o.models, "models", nil, "`files` of models to measure as they are, separated by commas (default none)")
	cli.Files(c, "models", cli.Checkpoints...)
	datasetFlag(c, &o.dataset, "dataset `folder`")
	o.add(c, "files at --out and --picture that shaver did not write")
	f.StringSliceVar(&o.values, "values", []string{string(compact.Float32)}, "`encodings` of the kept entries in the compact file to compare: "+strings.Join(compact.EncodingNames(), ", "))
	f.Lookup("values").DefValue = string(compact.Float32)
	cli.Choices(c, "values", compact.EncodingNames()...)
	f.Int64SliceVar(&o.parameters, "parameters", nil, "`budgets` in parameters to keep, instead of --sparsities")
	f.Int64SliceVar(&o.bytes, "bytes", nil, "`budgets` in bytes of the compact file, instead of --sparsities")
	f.Lookup("parameters").DefValue, f.Lookup("bytes").DefValue = "", "" // not "[]"
	rankFlag(c, &o.rank)
	f.StringSliceVar(&o.aggregates, "aggregate", []string{scores.DefaultAggregate}, "`aggregates` of the scores to compare: "+scores.AggregateHelp())
	f.Lookup("aggregate").DefValue = scores.DefaultAggregate + ", or all with --select"
	cli.OneOf(c, "aggregate", scores.Aggregates()...)
	f.BoolVar(&o.choose, "select", false, "for each budget, measure only the method that is best on the validation split")
	f.BoolVar(&o.tune, "tune", false, "also train what each method keeps, and measure the result")
	keepFlags(c, &o.keep)
	outFlag(c, &o.out, "`file` for the result, .json (default none)", "json")
	cli.Group(c, "Files", "model", "model-output", "scores", "snip", "models", "dataset", "out", "picture", "force")
	cli.Group(c, "Budgets", "sparsities", "parameters", "bytes")
	cli.Group(c, "Methods", "methods", "seed", "aggregate", "rank", "protect", "field-minimum", "values")
	cli.Group(c, "Measurement", "split", "select", "calibrate", "tune")
	cli.MarkRequired(c, "model", "dataset")
	return c
}

// add adds the flags to c. force is what --force replaces.
func (o *sweepFlags) add(c *cobra.Command, force string) {
	f := c.Flags()
	splitFlag(c, &o.split)
	portionsFlag(c, &o.sparsities, "sparsities", []float64{.5, .8, .9, .95, .99}, "`portions` of the entries to drop")
	f.StringSliceVar(&o.methods, "methods", []string{sweep.Magnitude}, "`methods` to compare with: all, or some of "+strings.Join(methods(), ", "))
	f.Lookup("methods").DefValue = sweep.Magnitude
	cli.Choices(c, "methods", append([]string{"all"}, methods()...)...)
	seedFlag(c, &o.seed)
	f.BoolVar(&o.calibrate, "calibrate", false, "also measure LogLoss with logits that are calibrated on the validation split")
	f.StringVar(&o.picture, "picture", "", "`file` for a picture of AUC and LogLoss: "+strings.Join(picture.Formats(), " or ")+" (default none)")
	cli.Files(c, "picture", "svg", "png")
	o.outputs.Flag(c, force)
	o.output.Flag(c)
}

// check checks the flags before anything is computed, and sets the rivals and the
// budgets that they name.
func (o *sweepFlags) check(c *cobra.Command) (err error) {
	if err := o.output.Check(); err != nil {
		return err
	}
	o.outputs.Inputs(checkpoint.Files(o.model)...)
	o.outputs.Inputs(dataset.Files(o.dataset...)...)
	o.outputs.Inputs(o.scores...)
	o.outputs.Inputs(o.snip)
	for _, file := range o.models {
		o.outputs.Inputs(checkpoint.Files(file)...)
	}
	if c.Flags().Changed("picture") {
		if err := o.outputs.Check("--picture", o.picture, pictures); err != nil {
			return err
		}
	}
	if err := picture.Check(o.picture); err != nil {
		return err
	}
	if o.rivals, err = rivalsOf(o.methods); err != nil {
		return err
	}
	o.budgets, err = sparsities(o.sparsities)
	return err
}

func (o *sweepOptions) run(c *cobra.Command) error {
	if err := o.check(c); err != nil {
		return err
	}
	switch {
	case len(o.parameters) > 0 && len(o.bytes) > 0:
		return fault.Usagef("--parameters and --bytes are both budgets: give only one")
	case len(o.parameters) > 0:
		o.budgets = budgets(mask.Kept, o.parameters)
	case len(o.bytes) > 0:
		o.budgets = budgets(mask.Bytes, o.bytes)
	}
	if c.Flags().Changed("out") {
		if filepath.Clean(o.out) == filepath.Clean(o.picture) {
			return fault.Usagef("--out and --picture both name %s: expected two files", o.out)
		}
		if err := o.outputs.Check("--out", o.out, sweeps); err != nil {
			return err
		}
	}
	d, err := sweepMethods(c.Context(), &o.sweepInput)
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := atomicfile.Write(o.out, func(w io.Writer) error { return cli.WriteJSON(w, d) }); err != nil {
			return err
		}
	}
	var commands strings.Builder
	if err := o.commands(&commands, d); err != nil {
		return err
	}
	return o.show(c, d, func(w io.Writer) {
		d.WriteTable(w)
		io.WriteString(w, commands.String())
	})
}

// show prints the document, as a table by the given function, and draws it.
func (o *sweepFlags) show(c *cobra.Command, d *sweep.Document, table func(io.Writer)) error {
	if err := o.output.Print(c.OutOrStdout(), d, table); err != nil || o.picture == "" {
		return err
	}
	return picture.Sweep(d).Write(o.picture)
}

// commands writes the commands that prune to what the sweep chose at each budget.
func (o *sweepOptions) commands(w io.Writer, d *sweep.Document) error {
	for i, p := range d.Chosen() {
		if i == 0 {
			fmt.Fprintln(w, "\nTo prune:")
		}
		words, err := o.command(d, p)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "  %s\n", strings.Join(words, " "))
	}
	return nil
}

// command returns the words of the command that prunes to the chosen point p.
func (o *sweepOptions) command(d *sweep.Document, p *sweep.Point) ([]string, error) {
	aggregate, err := d.AggregateOf(p)
	if err != nil {
		return nil, err
	}
	if o.out == "" && aggregate == "" { // no flag of prune ranks as these methods do
		return []string{"#", p.Method, "at", sweep.SparsityText(p.Sparsity) + ":", "repeat this sweep with --out sweep.json, then run shaver prune --from sweep.json"}, nil
	}
	source, err := d.ScoresOf(p)
	if err != nil {
		return nil, err
	}
	words := []string{"shaver", "prune", "--model", sweep.ShellWord(o.model)}
	if o.modelOutput != "" {
		words = append(words, "--model-output", sweep.ShellWord(o.modelOutput))
	}
	scoresFile := o.snip // the last source
	if source < len(o.scores) {
		scoresFile = o.scores[source]
	}
	words = append(words, "--scores", sweep.ShellWord(scoresFile))
	if o.out != "" {
		words = append(words, "--from", sweep.ShellWord(o.out))
	} else {
		words = append(words, d.Flags(p, aggregate)...)
	}
	if o.budgets[0].Unit == mask.Sparsity {
		words = append(words, "--sparsity", strconv.FormatFloat(p.Sparsity, 'g', -1, 64))
	} else {
		words = append(words, "--parameters", strconv.Itoa(p.Parameters))
	}
	if o.calibrate {
		words = append(words, "--calibrate")
	}
	if o.tune {
		words = append(words, "--tune")
	}
	if o.calibrate || o.tune || p.Method == sweep.Frequency {
		words = append(words, "--dataset", sweep.ShellWord(cli.List(o.dataset)))
	}
	extension := ".safetensors"
	if checkpoint.NamedONNX(o.model) && d.Kind == string(model.Graph) && p.Values == string(compact.Float32) && o.calibrated() && !o.tune {
		extension = ".onnx"
	}
	return append(words, "--out", "pruned-"+sweep.SparsityText(p.Sparsity)+extension), nil
}

// calibrated reports whether prune can write an .onnx file of o.model, calibrated if the sweep
// is.
func (o *sweepOptions) calibrated() bool {
	if !o.calibrate {
		return true
	}
	ck, err := checkpoint.Read(o.model)
	return err == nil && ck.CheckCalibration() == nil
}

// sweepMethods measures every method at every budget.
func sweepMethods(ctx context.Context, o *sweepInput) (*sweep.Document, error) {
	switch {
	case len(o.scores) == 0 && len(o.models) == 0:
		return nil, fault.Usagef("--scores is empty: expected at least one file, or --models")
	case len(o.scores) == 0 && o.choose:
		return nil, fault.Usagef("--select needs --scores, as shaver prune does")
	case len(o.values) == 0:
		return nil, fault.Usagef("--values is empty: expected some of %s", strings.Join(compact.EncodingNames(), ", "))
	case o.tune && o.calibrate:
		return nil, fault.Usagef("--tune and --calibrate exclude each other: training changes the scale and the offset of the logits anyway")
	case o.tune && !slices.Equal(o.values, []string{string(compact.Float32)}):
		return nil, fault.Usagef("--tune measures float32 values: expected no other --values")
	case o.tune && o.split != dataset.Test:
		return nil, fault.Usagef("--tune trains on the split %s and chooses the epoch by %s: expected --split %s, not %s", dataset.Train, dataset.Val, dataset.Test, o.split)
	case len(o.rivals) == 0 && len(o.aggregates) == 0 && o.snip == "" && len(o.models) == 0:
		return nil, fault.Usagef("--methods and --aggregate are both empty: there is nothing to compare")
	}
	p, err := cut.Open(o.model, o.modelOutput, o.scores...)
	if err != nil {
		return nil, err
	}
	if len(p.Scores) > 0 && o.given && !slices.ContainsFunc(p.Scores, func(s *scores.File) bool { return !s.Ranks() }) && len(o.aggregates) > 0 {
		if _, err := p.Scores[0].Aggregate(o.aggregates[0]); err != nil {
			return nil, fault.Usagef("--aggregate: %w", err)
		}
	}
	files, all := o.scores, p.Scores
	if o.snip != "" {
		initial, err := p.ReadInitial(o.snip)
		if err != nil {
			return nil, err
		}
		files, all = append(slices.Clone(files), o.snip), append(slices.Clone(all), initial)
	}
	m, err := p.Checkpoint.Model()
	if err != nil {
		return nil, err
	}
	name := lossName(all)
	for i, s := range all {
		if s.Spec.Loss.Name() != name {
			return nil, fault.Inputf("%s has the loss %s, but %s has %s: compare scores of one loss", files[i], s.Spec.Loss.Name(), files[0], name)
		}
	}
	b, err := measure.Open(o.dataset, o.split, name, m)
	if err != nil {
		return nil, err
	}
	ready, err := o.ready(p, b.Dataset)
	if err != nil {
		return nil, err
	}
	document := &sweep.Document{
		Version: sweep.VersionOf(b.Loss, len(ready) > 0), Loss: b.Loss, Model: p.Checkpoint.Digest(), Dataset: b.Dataset.Digest(), Kind: string(m.Kind), Split: o.split, Rows: b.Rows,
		Features: m.Features(), Entries: m.Parameters(), Sources: []sweep.ScoresFile{}, Points: []sweep.Point{},
		Settings: &sweep.Settings{Rank: o.rank, Protect: o.keep.Fields, FieldMinimum: o.keep.Minimum, Seed: o.seed},
	}
	size := p.Checkpoint.Footprint()
	document.Unpruned.Bytes, document.Unpruned.TableBytes, document.Unpruned.MemoryBytes = &size.File, &size.Table, &size.Memory
	for _, s := range all {
		document.Sources = append(document.Sources, sweep.NewScoresFile(s, document.Model))
	}
	methods, err := o.compared(p, all, b.Dataset)
	if err != nil {
		return nil, err
	}
	config := sweep.Config{Model: m, Methods: methods, Budgets: o.budgets, Models: ready, Calibrate: o.calibrate, Select: o.choose}
	validation, err := o.validation(all, m)
	if err != nil {
		return nil, err
	}
	var tuning *training.Tables
	if o.tune {
		if tuning, err = training.NewTables(ctx, p.Checkpoint, o.dataset, "--tune chooses"); err != nil {
			return nil, err
		}
		config.Tune = tuning.Tune
	}
	measured, validated, tuned := config.Work()
	total := int64(measured)*b.Rows + int64(validated)*validation.Rows
	if o.tune {
		total += int64(tuned) * tuning.Work()
	}
	progress := cli.NewProgress("sweep", "rows", total)
	defer progress.End()
	if o.tune {
		tuning.Read = progress.Add
	}
	on := func(b *measure.Bench) func(context.Context, *model.Model) (*evaluate.Predictions, error) {
		return func(ctx context.Context, m *model.Model) (*evaluate.Predictions, error) {
			return b.Predict(ctx, m, func(rows int) { progress.Add(int64(rows)) })
		}
	}
	config.Predict, config.Validate = on(b), on(validation)
	if config.Slices, err = slicer(ctx, b, m); err != nil {
		return nil, err
	}
	return document, config.Run(ctx, document)
}

// slicer assigns the rows of the split to slices. It returns nil if the dataset has no rows
// in which occurrences are counted.
func slicer(ctx context.Context, b *measure.Bench, m *model.Model) (*sweep.Slicer, error) {
	if b.Dataset.Rows(dataset.Train)+b.Dataset.Rows(dataset.Val) == 0 {
		return nil, nil
	}
	counts, err := b.Dataset.Occurrences()
	if err != nil {
		return nil, err
	}
	s := sweep.NewSlicer(&m.Architecture, b.Dataset.Fields(), counts)
	s.Loss = b.Loss
	return s, b.Dataset.Scan(ctx, []string{b.Split}, 4096, func(rows *model.Rows) error {
		s.Add(rows)
		return nil
	})
}

// validation opens the split for --select and --calibrate. Without these flags it returns
// an empty bench.
func (o *sweepInput) validation(by []*scores.File, m *model.Model) (*measure.Bench, error) {
	if !o.choose && !o.calibrate {
		return &measure.Bench{}, nil
	}
	if o.split == dataset.Val {
		return nil, fault.Usagef("--select and --calibrate use the split %s: --split %s would measure the rows that they use", dataset.Val, o.split)
	}
	if o.choose && slices.ContainsFunc(by, func(s *scores.File) bool { return slices.Contains(s.Spec.Splits, dataset.Val) }) {
		log, err := cli.Logger("text", false)
		if err != nil {
			return nil, err
		}
		log.Warn("the scores were computed with the labels of the validation rows, which favors the aggregate sum; for --select, score with --splits train")
	}
	return measure.Open(o.dataset, dataset.Val, lossName(by), m)
}

// lossName returns the name of the loss of the first scores. Without scores it returns "", which
// stands for that of the dataset's labels.
func lossName(all []*scores.File) string {
	if len(all) == 0 {
		return ""
	}
	return all[0].Spec.Loss.Name()
}

// sparsities returns budgets that drop portions of the entries.
func sparsities(portions []float64) ([]mask.Budget, error) {
	for _, t := range portions {
		if !(t >= 0 && t <= 1) {
			return nil, fault.Usagef("--sparsities: sparsity %v is outside [0, 1]", t)
		}
	}
	return budgets(mask.Sparsity, portions), nil
}

// budgets returns budgets of a unit.
func budgets[T int64 | float64](unit string, amounts []T) (all []mask.Budget) {
	for _, amount := range amounts {
		all = append(all, mask.Budget{Unit: unit, Amount: float64(amount)})
	}
	return all
}

// methods returns the names that --methods takes besides all.
func methods() []string { return append(sweep.Rivals(), sweep.SSEDS) }

// rivalsOf returns the methods that names stand for.
func rivalsOf(names []string) ([]string, error) {
	if len(names) == 1 && names[0] == "all" {
		return sweep.Rivals(), nil
	}
	all := methods()
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, fault.Usagef("--methods %q: expected all, or some of %s", name, strings.Join(all, ", "))
		}
	}
	return names, nil
}

// compared returns the methods to compare. sources are the scores of the model and then those of
// SNIP, if there are any.
func (o *sweepInput) compared(p *cut.Source, sources []*scores.File, d *dataset.Dataset) (all []sweep.Method, err error) {
	add := func(m sweep.Method, failed error) {
		if err == nil {
			all, err = append(all, m), failed
		}
	}
	for at, values := range o.values {
		encoding := compact.Encoding(values)
		if encoding.Size() == 0 {
			return nil, fault.Usagef("--values %q: expected some of %s", values, strings.Join(compact.EncodingNames(), ", "))
		}
		t := p.Unpruned(d, o.keep, encoding)
		for source, s := range p.Scores {
			aggregates := o.aggregates
			if s.Ranks() && len(aggregates) > 0 {
				aggregates = s.Aggregates()
			}
			for _, aggregate := range aggregates {
				add(t.ByScores(s, source, aggregate, o.rank))
			}
			if s.Ranks() && len(aggregates) > 0 && err == nil && at == 0 {
				err = o.warnDeep(all[len(all)-1], s, o.scores[source])
			}
		}
		for source := len(p.Scores); source < len(sources); source++ {
			add(t.BySNIP(sources[source], source))
		}
		if slices.Contains(o.rivals, sweep.SSEDS) {
			usable, failed := o.sourcesOfSSEDS(p.Scores)
			if failed != nil {
				return nil, failed
			}
			for _, source := range usable {
				add(t.BySSEDS(p.Scores[source], source))
			}
		}
		seen := map[string]bool{} // baselines
		rivals := func(baselineName string, baseline []float32) {
			for _, name := range o.rivals {
				if ptq := strings.HasPrefix(name, "ptq"); name != sweep.SSEDS && !seen[baselineName] && !(ptq && (at > 0 || len(seen) > 0)) {
					add(t.Rival(name, baselineName, baseline, o.seed))
				}
			}
			seen[baselineName] = true
		}
		for _, s := range p.Scores {
			rivals(s.Spec.Baseline, s.Baseline)
		}
		if len(p.Scores) == 0 {
			rivals(baseline.Zero, make([]float32, p.Checkpoint.Architecture.BaselineSize()))
		}
	}
	return all, err
}

// warnDeep warns if a budget drops more entries than the path s dropped in rounds. m is the
// method that ranks by s, and file the name of its file.
func (o *sweepInput) warnDeep(m sweep.Method, s *scores.File, file string) error {
	for _, b := range o.budgets {
		dropped, err := m.Dropped(b)
		if err != nil {
			return err
		}
		if text := cut.Deep(s, dropped, file); text != "" {
			log, err := cli.Logger("text", false)
			if err != nil {
				return err
			}
			log.Warn(text)
			return nil
		}
	}
	return nil
}

// sourcesOfSSEDS returns the indices of the scores, those of o.scores, by which SSEDS can rank.
// It returns an error if SSEDS can rank by none of them.
func (o *sweepInput) sourcesOfSSEDS(all []*scores.File) (sources []int, err error) {
	if len(all) == 0 {
		return nil, fault.Usagef("--methods %s needs --scores", sweep.SSEDS)
	}
	for source, s := range all {
		if failed := sweep.CheckSSEDS(&s.Spec.Options, s.Spec.Baseline); failed == nil {
			sources = append(sources, source)
		} else if err == nil {
			err = fmt.Errorf("%s: %w", o.scores[source], failed)
		}
	}
	if len(sources) > 0 {
		err = nil
	}
	return sources, err
}

// Package sweeping compares pruning methods by the files of a model, its scores and a dataset. It
// opens the files, and lets package sweep measure the methods, which may be tuned.
package sweeping

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/keep"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// Input says what a sweep compares.
type Input struct {
	Model       string   // file
	ModelOutput string   // output of the model, if it is an .onnx file with several
	Folders     []string // dataset, or those of a window's days
	Split       string
	Group       string   // field within whose values rows are ranked, or ""
	Scores      []string // files; those of taylor for another model are of the model before its training, by which SNIP ranks
	Models      []string // files of models that are measured as they are
	Aggregates  []string // aggregates of the scores; those of a path have only their order
	Given       bool     // the user gave Aggregates
	Rank        string
	Rivals      []string           // methods that are compared with those that rank by scores
	Values      []compact.Encoding // how kept entries are stored
	Seed        uint64
	Keep        keep.Rules
	Budgets     []mask.Budget
	Unnamed     bool      // nobody named Budgets: see sweep.Config
	Within      []float64 // bounds for which the smallest tables are found; nil = only the budgets are measured
	Calibrate   bool      // also measure with logits that are calibrated on the validation split
	Optional    bool      // Calibrate has no effect without validation rows, and if they were scored

	unknown []string // sentences that models do not know their fields
	files   []string // Scores in the order of the document's sources

	// Accept is called with the digests of the model and of the dataset before anything is measured. Its
	// error ends the sweep. It may be nil.
	Accept func(model, dataset string) error
}

// Run measures every method at every budget.
func (o *Input) Run(ctx context.Context) (*sweep.Document, error) {
	o.unknown = nil
	p, initial, err := o.open()
	if err != nil {
		return nil, err
	}
	if len(p.Scores) > 0 && o.Given && !slices.ContainsFunc(p.Scores, func(s *scores.File) bool { return !s.Ranks() }) && len(o.Aggregates) > 0 {
		if _, err := p.Scores[0].Aggregate(o.Aggregates[0]); err != nil {
			return nil, fault.Usagef("--aggregate: %w", err)
		}
	}
	files, all := o.files, slices.Concat(p.Scores, initial)
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
	b, err := measure.Open(o.Folders, o.Split, name, m, p.Checkpoint.Known())
	if err != nil {
		return nil, err
	}
	if err := b.GroupBy(ctx, o.Group, 0); err != nil {
		return nil, err
	}
	if o.Optional && o.Calibrate {
		o.Calibrate = o.calibrates(p.Checkpoint, b.Dataset)
	}
	if len(p.Checkpoint.Tasks) > 1 && o.Calibrate && !o.Optional {
		return nil, fault.Usagef("--calibrate: a model of several tasks has a calibration for each: measure one task, as in --task %s of shaver evaluate", p.Checkpoint.Tasks[0].Label)
	}
	if err := o.checkApart(p.Checkpoint, b.Dataset); err != nil {
		return nil, err
	}
	ready, err := o.ready(p, b.Dataset)
	if err != nil {
		return nil, err
	}
	document := &sweep.Document{
		Version: sweep.VersionOf(b.Loss, len(ready) > 0), Loss: b.Loss, Model: p.Checkpoint.Digest(), Dataset: b.Dataset.Digest(), Kind: string(m.Kind), Split: o.Split, Rows: b.Rows,
		Features: mask.Features(&m.Architecture), Entries: m.Prunable(), Sources: []sweep.ScoresFile{}, Points: []sweep.Point{},
		Settings: &sweep.Settings{Rank: o.Rank, Protect: o.Keep.Fields, FieldMinimum: o.Keep.Minimum, Seed: o.Seed},
	}
	if o.Accept != nil {
		if err := o.Accept(document.Model, document.Dataset); err != nil {
			return nil, err
		}
	}
	size := p.Checkpoint.Footprint()
	document.Unpruned.Bytes, document.Unpruned.TableBytes, document.Unpruned.MemoryBytes = &size.File, &size.Table, &size.Memory
	for _, s := range all {
		document.Sources = append(document.Sources, sweep.NewScoresFile(s, document.Model))
	}
	methods, err := o.compared(ctx, p, all, b)
	if err != nil {
		return nil, err
	}
	config := sweep.Config{Model: m, Methods: methods, Budgets: o.Budgets, Unnamed: o.Unnamed, Within: o.Within, Models: ready, Calibrate: o.Calibrate, Optional: o.Optional, Group: o.Group}
	validation, err := o.validation(all, m, p.Checkpoint.Known())
	if err != nil {
		return nil, err
	}
	progress := cli.NewProgress("sweep", "rows", int64(config.Work())*(b.Rows+validation.Rows))
	defer progress.End()
	on := func(b *measure.Bench) func(context.Context, *model.Model) (*evaluate.Predictions, error) {
		return func(ctx context.Context, m *model.Model) (*evaluate.Predictions, error) {
			return b.Predict(ctx, m, func(rows int) { progress.Add(int64(rows)) })
		}
	}
	config.Predict, config.Validate, config.Warn = on(b), on(validation), func(doubt string) { cli.Warn(o.Model + " " + doubt) }
	if config.Slices, err = slicer(ctx, b, m, p.Checkpoint.Tasks); err != nil {
		return nil, err
	}
	if err := config.Run(ctx, document); err != nil {
		return nil, err
	}
	progress.End()
	document.Answer = document.Ladder(o.Within...)
	if text := document.BelowFloor(); text != "" {
		cli.Warn(text)
	}
	for _, text := range o.unknown {
		cli.Note(text)
	}
	return document, nil
}

// open opens the model and the scores: those of the model, and those of the model before its training.
func (o *Input) open() (p *cut.Source, initial []*scores.File, err error) {
	var all []*scores.File
	for _, file := range o.Scores {
		f, err := scores.Read(file)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, f)
	}
	if p, err = cut.OpenFor(o.Model, o.ModelOutput, all); err != nil {
		return nil, nil, err
	}
	var last []string
	o.files = nil
	for i, file := range o.Scores {
		f := all[i]
		if f.Spec.Estimator == estimator.Taylor && f.Spec.Model != p.Checkpoint.Digest() {
			initial, last = append(initial, f), append(last, file)
			err = p.CheckInitial(f, file)
		} else {
			o.files = append(o.files, file)
			err = p.Add(f, file)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	o.files = append(o.files, last...)
	return p, initial, nil
}

// calibrates reports whether validation rows exist that may calibrate, because no part of ck was scored on them and they do not
// judge.
func (o *Input) calibrates(ck *checkpoint.Checkpoint, d *dataset.Dataset) bool {
	return len(ck.Tasks) < 2 && o.Split != dataset.Val && d.Rows(dataset.Val) > 0 && ck.Apart(d.Digest(), dataset.Val, checkpoint.Choose) == nil
}

// checkApart returns wrong usage if the rows that choose or calibrate were scored, or the rows that judge did any of this for ck.
func (o *Input) checkApart(ck *checkpoint.Checkpoint, d *dataset.Dataset) error {
	err := ck.Apart(d.Digest(), o.Split, checkpoint.Judge)
	if err == nil && (o.Calibrate || slices.Contains(o.Values, compact.Mixed)) {
		err = ck.Apart(d.Digest(), dataset.Val, checkpoint.Choose)
	}
	return err
}

// slicer assigns the rows of the split to slices. It returns nil if the dataset has no rows
// in which occurrences are counted.
func slicer(ctx context.Context, b *measure.Bench, m *model.Model, tasks []model.Task) (*sweep.Slicer, error) {
	var counts []int64
	var err error
	if b.Dataset.Rows(dataset.Train)+b.Dataset.Rows(dataset.Val) > 0 {
		if counts, err = b.Dataset.Occurrences(); err != nil {
			return nil, err
		}
	}
	return sweep.NewSlicer(&m.Architecture, b.Dataset.Fields(), counts, tasks).Of(ctx, b.Loss, b.Source(nil))
}

// validation opens the split for --calibrate. Without it, it returns an empty bench.
func (o *Input) validation(by []*scores.File, m *model.Model, k *model.Known) (*measure.Bench, error) {
	if !o.Calibrate {
		return &measure.Bench{}, nil
	}
	if o.Split == dataset.Val {
		return nil, fault.Usagef("--calibrate uses the split %s: --split %s would measure the rows that it uses", dataset.Val, o.Split)
	}
	return measure.Open(o.Folders, dataset.Val, lossName(by), m, k)
}

// lossName returns the name of the loss of the first scores. Without scores it returns "", which
// stands for that of the dataset's labels.
func lossName(all []*scores.File) string {
	if len(all) == 0 {
		return ""
	}
	return all[0].Spec.Loss.Name()
}

// compared returns the methods to compare. sources are the scores of the model and then those of
// SNIP, if there are any.
func (o *Input) compared(ctx context.Context, p *cut.Source, sources []*scores.File, b *measure.Bench) (all []sweep.Method, err error) {
	add := func(m sweep.Method, failed error) {
		if err == nil {
			all, err = append(all, m), failed
		}
	}
	for at, values := range o.Values {
		t := p.Unpruned(b.Dataset, o.Keep, values)
		if values == compact.Mixed {
			if t.Round, err = p.Round(ctx, o.Folders, b.Loss.Name(), o.Calibrate); err != nil {
				return nil, err
			}
		}
		for source, s := range p.Scores {
			aggregates := o.Aggregates
			if s.Ranks() && len(aggregates) > 0 {
				aggregates = s.Aggregates()
			}
			for _, aggregate := range aggregates {
				add(t.ByScores(s, source, aggregate, o.Rank))
			}
			if s.Ranks() && len(aggregates) > 0 && err == nil && at == 0 {
				err = o.warnDeep(all[len(all)-1], s, o.files[source])
			}
		}
		for source := len(p.Scores); source < len(sources); source++ {
			add(t.BySNIP(sources[source], source))
		}
		if slices.Contains(o.Rivals, sweep.SSEDS) {
			usable, failed := o.sourcesOfSSEDS(p.Scores)
			if failed != nil {
				return nil, failed
			}
			for _, source := range usable {
				add(t.BySSEDS(p.Scores[source], source))
			}
		}
		seen := map[string]bool{} // baselines
		rivals := func(baselineName string, baseline model.Baseline) {
			if at == 0 && !seen[baselineName] && len(all)+len(o.Rivals) > 0 {
				add(p.Unpruned(b.Dataset, keep.Rules{}, compact.Float32).Rival(sweep.Nothing, baselineName, baseline, 0))
			}
			for _, name := range o.Rivals {
				if ptq := strings.HasPrefix(name, "ptq"); name != sweep.SSEDS && !seen[baselineName] && !(ptq && (at > 0 || len(seen) > 0)) {
					add(t.Rival(name, baselineName, baseline, o.Seed))
				}
			}
			seen[baselineName] = true
		}
		for _, s := range p.Scores {
			rivals(s.Spec.Baseline, s.Baseline)
		}
		if len(p.Scores) == 0 {
			rivals(baseline.Zero, p.Checkpoint.Architecture.Zero())
		}
	}
	return all, err
}

// warnDeep warns if a budget drops more entries than the path s dropped in rounds. m is the
// method that ranks by s, and file the name of its file.
func (o *Input) warnDeep(m sweep.Method, s *scores.File, file string) error {
	for _, b := range o.Budgets {
		dropped, err := m.Dropped(b)
		if err != nil && o.Unnamed {
			continue
		}
		if err != nil {
			return err
		}
		if text := cut.Deep(s, dropped, file); text != "" {
			cli.Warn(text)
			return nil
		}
	}
	return nil
}

// sourcesOfSSEDS returns the indices of the scores, those of o.files, by which SSEDS can rank.
// It returns an error if SSEDS can rank by none of them.
func (o *Input) sourcesOfSSEDS(all []*scores.File) (sources []int, err error) {
	if len(all) == 0 {
		return nil, fault.Usagef("--methods %s needs --scores", sweep.SSEDS)
	}
	for source, s := range all {
		if failed := sweep.CheckSSEDS(&s.Spec.Options, s.Spec.Baseline); failed == nil {
			sources = append(sources, source)
		} else if err == nil {
			err = fmt.Errorf("%s: %w", o.files[source], failed)
		}
	}
	if len(sources) > 0 {
		err = nil
	}
	return sources, err
}

// CheckSplits returns the error with which Run would fail for the splits that it reads for the model
// m, which knows k.
func (o *Input) CheckSplits(m *model.Model, k *model.Known) error {
	b, err := measure.Open(o.Folders, o.Split, "", m, k)
	if err == nil {
		err = b.GroupBy(context.Background(), o.Group, 0)
	}
	if err != nil {
		return err
	}
	if o.Optional { // then Run does without rows that calibrate
		return nil
	}
	_, err = o.validation(nil, m, k)
	return err
}

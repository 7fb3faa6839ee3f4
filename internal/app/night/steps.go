package night

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/app/places"
	"shaver/internal/app/reporting"
	"shaver/internal/app/steps"
	"shaver/internal/app/sweeping"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/delta"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/nightly"
	"shaver/internal/prune/report"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// rows returns rowsOf without the scored splits that the days of a night lack, and the days.
func (s *running) rows(n *nightly.Night) (*nightly.Rows, *dataset.Dataset, error) {
	d, err := dataset.OpenAll(n.Days)
	if err != nil {
		return nil, nil, err
	}
	r := rowsOf(s.config)
	has := slices.DeleteFunc(slices.Clone(r.Scored), func(name string) bool { return d.Rows(name) == 0 })
	if len(has) > 0 { // otherwise the command refuses the days
		r.Scored = has
	}
	return r, d, nil
}

// running computes the steps of nights in this process.
type running struct {
	*Runner
	config *nightly.Config
	say    func(format string, args ...any)
}

func (s *running) Model(path string) (string, error) {
	ck, err := checkpoint.Read(path)
	if err != nil {
		return "", err
	}
	return ck.Digest(), nil
}

func (s *running) ModelFiles(path string) []string { return checkpoint.Files(path) }

func (s *running) Day(path string) (string, error) {
	d, err := dataset.Open(path)
	if err != nil {
		return "", err
	}
	return d.Digest(), nil
}

// checkDays returns rows, or bad input if the days have no rows by which to choose or judge, or lack a field that prune is to protect.
// The other steps would find that only after the scores are computed.
func (s *running) checkDays(n *nightly.Night) (*nightly.Rows, error) {
	r, d, err := s.rows(n)
	if err != nil {
		return nil, err
	}
	for _, split := range []string{cmp.Or(r.Chose, r.Judged), r.Judged} {
		if d.Rows(split) == 0 {
			return nil, fault.Inputf("%s: the days have no rows of the split %s, and their splits are %v: import days with rows to calibrate by and others to judge by, or set calibrate and check.split", s.config.Path, split, d.SplitNames())
		}
	}
	for _, setting := range s.config.Prune {
		if setting.Name != "protect" {
			continue
		}
		for _, name := range strings.Split(setting.Value, ",") {
			if !slices.Contains(d.Fields(), name) {
				return nil, s.config.Errorf("prune", setting, fmt.Errorf("no field %q; the fields are %s", name, strings.Join(d.Fields(), ", ")))
			}
		}
	}
	check, err := checking(s.config)
	if err == nil && check.Group != "" {
		if _, err = d.Column(check.Group); err != nil {
			err = fmt.Errorf("%s: check.group: %w", s.config.Path, err)
		}
	}
	return r, err
}

// checkCalibration returns bad input if the night has to calibrate an .onnx file and cannot. The step
// prune would find that only after the scores are computed.
func (s *running) checkCalibration(n *nightly.Night) error {
	if s.config.ONNX == "" || !s.config.Calibrate {
		return nil
	}
	ck, err := checkpoint.Read(n.Model)
	if err != nil {
		return err
	}
	if err := ck.CheckCalibration(); err != nil {
		return fmt.Errorf("%w (calibrate: false publishes it as it is)", err)
	}
	return nil
}

func (s *running) Score(ctx context.Context, n *nightly.Night) (*nightly.Scored, error) {
	rows, err := s.checkDays(n)
	if err != nil {
		return nil, err
	}
	if err := s.checkCalibration(n); err != nil {
		return nil, err
	}
	o, err := scoring(s.config)
	if err != nil {
		return nil, err
	}
	o.Model, o.Dataset, o.Job.Out, o.Job.Outputs.Force = n.Model, n.Days, filepath.Join(n.Folder, nightly.ScoresFile), true
	if o.Job.Log, o.Job.LogProgress = s.Log, s.JSON; s.Quiet {
		o.Job.Log = s.Log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	}
	if !o.Given.Has("splits") { // the step would take the splits of its state
		o.Job.Splits, o.Given = rows.Scored, has(s.config.Score, "splits")
	}
	if !paths(s.config) {
		if ctx, o.State, err = places.State(ctx, s.config.State); err != nil {
			return nil, err
		}
	}
	found, err := o.Run(ctx)
	if commit := places.Committed(ctx); found != nil && commit != nil {
		if failed := commit(); failed != nil {
			return nil, failed
		}
	}
	if err != nil {
		return nil, keyed(s.config, "score", err)
	}
	if p := found.Path; p != nil { // a full job, which has no errors because it has no values
		scored := &nightly.Scored{Rows: found.DatasetRows, CoreSeconds: found.CPUSeconds, Noise: found.Note}
		for _, round := range p.Rounds {
			scored.Evaluations += round.Rows
		}
		scored.FullEvaluations = scored.Evaluations
		return scored, nil
	}
	scored := &nightly.Scored{Rows: found.DatasetRows, Evaluations: found.Evaluations, FullEvaluations: found.DatasetRows, RelativeError: new(float64), CoreSeconds: found.CPUSeconds, Note: found.Note}
	if l := found.Lineage; l != nil {
		scored.Generation, scored.RelativeError = l.Generation, &l.Error
		if l.Reduction > 0 {
			scored.Reduction = &l.Reduction
		}
	}
	return scored, nil
}

// paths reports whether the scores of the nights are orders of paths.
func paths(c *nightly.Config) bool {
	return (&estimator.Options{Estimator: c.Score.Get("estimator")}).Traits().Ranks
}

func (s *running) Prune(ctx context.Context, n *nightly.Night) (*nightly.Pruned, error) {
	return s.prune(ctx, n, n.Folder)
}

// prune writes what Prune writes to a folder. With n.Kept it needs no scores, and writes no .onnx file and no delta to
// another folder than that of the night.
func (s *running) prune(ctx context.Context, n *nightly.Night, folder string) (*nightly.Pruned, error) {
	settings := s.config.Prune
	switch {
	case n.Kept: // the choice is made
		settings = slices.DeleteFunc(slices.Clone(settings), func(g nightly.Setting) bool { return g.Name != "values" })
	case n.Previous == "":
		settings = without(settings, "hysteresis")
	}
	var found *mask.Budget
	if !n.Kept {
		var err error
		if found, err = s.found(ctx, n); err != nil {
			return nil, err
		}
	}
	run := func(settings nightly.Settings, out string, change func(o *steps.Prune)) (*steps.Pruning, error) {
		o, err := pruning(s.config, settings)
		if err != nil {
			return nil, err
		}
		o.Budget = found
		o.Model, o.Previous, o.Out, o.Calibrate, o.Outputs.Force = n.Model, n.Previous, out, s.config.Calibrate, true
		if !n.Kept {
			o.Scores = filepath.Join(n.Folder, nightly.ScoresFile)
		}
		if o.Calibrate || n.Kept {
			o.Dataset = n.Days
		}
		change(o.Prune)
		r, err := o.Run(ctx)
		return r, keyed(s.config, "prune", err)
	}
	made, err := run(settings, filepath.Join(folder, nightly.PrunedFile), func(*steps.Prune) {})
	if err != nil {
		return nil, err
	}
	if s.config.ONNX != "" && folder == n.Folder {
		drop := []string{"within", mask.Sparsity, mask.Kept, mask.Bytes}
		if s.config.ONNX == nightly.DenseONNX {
			drop = append(drop, "values")
		}
		_, err := run(without(settings, drop...), filepath.Join(n.Folder, nightly.ONNXFile), func(o *steps.Prune) {
			o.Form.CompactONNX = s.config.ONNX == nightly.CompactONNX
			if !n.Kept {
				o.Budget = &mask.Budget{Unit: mask.Kept, Amount: float64(made.Parameters)} // that of the compact file
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if s.config.Delta && folder == n.Folder {
		if err := writeDelta(n); err != nil {
			return nil, err
		}
	}
	p := &nightly.Pruned{Sparsity: made.Sparsity, Bytes: made.Bytes, DenseBytes: made.DenseBytes}
	if stable := made.Previous; stable != nil {
		p.Churn, p.PlainChurn = &stable.Churn.Portion, &stable.Plain.Portion
	}
	for _, t := range made.Tables() {
		p.Tables = append(p.Tables, nightly.Table(t))
	}
	text, err := cli.Document(ctx, made)
	if err != nil {
		return nil, err
	}
	return p, atomicfile.Write(filepath.Join(folder, nightly.PruneFile), func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
}

// without returns settings without those of some names.
func without(settings nightly.Settings, names ...string) nightly.Settings {
	return slices.DeleteFunc(slices.Clone(settings), func(g nightly.Setting) bool { return slices.Contains(names, g.Name) })
}

// writeDelta writes the delta from the pruned model of the night that is published to that of n. It is whole
// if none is published.
func writeDelta(n *nightly.Night) error {
	o := delta.Options{From: n.Previous, Generation: int64(n.Number), FromGeneration: int64(n.PreviousNumber), Whole: true, Replace: true}
	_, err := delta.Write(filepath.Join(n.Folder, nightly.PrunedFile), o, filepath.Join(n.Folder, nightly.DeltaFolder))
	return err
}

func (s *running) Check(ctx context.Context, n *nightly.Night) (*nightly.Checked, error) {
	file := nightly.PrunedFile
	if s.config.ONNX != "" { // the file that is served
		file = nightly.ONNXFile
	}
	rows, _, err := s.rows(n)
	if err != nil {
		return nil, err
	}
	found, err := s.compare(ctx, n, filepath.Join(n.Folder, file), filepath.Join(n.Folder, nightly.CheckFile))
	if err != nil {
		return nil, err
	}
	c := &nightly.Checked{Passed: found.Passed, Reasons: []string{}, Rows: rows}
	if m := found.RMSE; m != nil {
		c.RMSE, c.PrunedRMSE, c.RMSERise = &m.Model, &m.Pruned, increase(m)
	} else {
		auc, logLoss := cmp.Or(found.GAUC, found.AUC), found.LogLoss
		c.AUC, c.PrunedAUC, c.AUCDrop = &auc.Model, &auc.Pruned, decrease(auc)
		c.LogLoss, c.PrunedLogLoss, c.LogLossRise = &logLoss.Model, &logLoss.Pruned, increase(logLoss)
	}
	c.Answer = found.Answer.Text
	if !found.Passed {
		c.Reasons = append(c.Reasons, found.Failure())
	}
	if found.Passed || n.Kept {
		return c, nil
	}
	d, err := s.sweep(ctx, n)
	if err == nil {
		c.Answer = d.Answer.Text
	}
	return c, err
}

// exists reports whether there is a file at path.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// found returns the budget of the smallest table that is certain to be within the bound of the configuration, or nil if that has a
// budget. If no table is, all entries stay.
func (s *running) found(ctx context.Context, n *nightly.Night) (*mask.Budget, error) {
	o, err := pruning(s.config, s.config.Prune)
	if err != nil || o.Within == 0 {
		return nil, err
	}
	d, err := s.sweep(ctx, n)
	if err != nil {
		return nil, err
	}
	b := &mask.Budget{Unit: mask.Sparsity}
	if p := d.Decide(sweep.Bound(o.Within)); p != nil {
		b.Amount = p.Sparsity
	}
	return b, nil
}

// sweep finds the smallest tables of the scores of a night, as its section prune drops entries and stores the others, and writes
// the result to the night's folder.
func (s *running) sweep(ctx context.Context, n *nightly.Night) (*sweep.Document, error) {
	o, err := pruning(s.config, s.config.Prune)
	if err != nil {
		return nil, err
	}
	rows, _, err := s.rows(n)
	if err != nil {
		return nil, err
	}
	check, err := checking(s.config)
	if err != nil {
		return nil, err
	}
	input := sweeping.Finding(n.Model, "", filepath.Join(n.Folder, nightly.ScoresFile), n.Days)
	input.Split, input.Rank, input.Keep, input.Values, input.Calibrate, input.Group = rows.Judged, o.Rank, o.Keep, []compact.Encoding{compact.Encoding(o.Values)}, s.config.Calibrate, check.Group
	if input.Given = o.Aggregate != ""; input.Given {
		input.Aggregates = []string{o.Aggregate}
	}
	if o.Within > 0 {
		input.Within = append(input.Within, o.Within)
	}
	d, err := input.Run(ctx)
	if err != nil {
		return nil, err
	}
	return d, atomicfile.Write(filepath.Join(n.Folder, nightly.SweepFile), func(w io.Writer) error { return cli.WriteJSON(w, d) })
}

// compare checks a pruned file of the night, and writes the result to out unless that is "".
func (s *running) compare(ctx context.Context, n *nightly.Night, pruned, out string) (*gate.Document, error) {
	o, err := checking(s.config)
	if err != nil {
		return nil, err
	}
	o.Pruned, o.Model, o.Folders, o.Out, o.Outputs.Force = pruned, n.Model, n.Days, out, true
	found, err := o.Run(ctx)
	return found, keyed(s.config, "check", err)
}

// increase returns the change of a metric.
func increase(m *gate.Metric) *nightly.Change {
	i := &m.Difference
	return &nightly.Change{Value: i.Value, Low: i.Low, High: i.High, Bound: &m.Bound}
}

// decrease returns the change in the other direction.
func decrease(m *gate.Metric) *nightly.Change {
	i, c := &m.Difference, &nightly.Change{Value: -m.Difference.Value, Bound: &m.Bound}
	if i.Low != nil && i.High != nil {
		low, high := -*i.High, -*i.Low
		c.Low, c.High = &low, &high
	}
	return c
}

func (s *running) Report(ctx context.Context, n *nightly.Night) error {
	o := reporting.New()
	o.Model, o.Scores, o.Folders = n.Model, filepath.Join(n.Folder, nightly.ScoresFile), n.Days
	if found := filepath.Join(n.Folder, nightly.SweepFile); exists(found) {
		o.Sweep = found
	}
	if n.Previous != "" {
		o.Pruned, o.Last = filepath.Join(n.Folder, nightly.PrunedFile), n.Previous
	}
	p, err := pruning(s.config, s.config.Prune)
	if err != nil {
		return err
	}
	o.Out, o.Outputs.Force, o.Aggregate = filepath.Join(n.Folder, nightly.ReportFile), true, p.Aggregate
	_, err = o.Run(ctx)
	return err
}

func (s *running) History(lines []nightly.Line, folders map[string]bool) ([]byte, error) {
	return report.History(lines, folders, cli.Program())
}

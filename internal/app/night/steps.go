package night

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/app/places"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/delta"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/nightly"
	"shaver/internal/prune/report"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// keys are the settings of the steps. Each is a flag of the step's command.
var keys = nightly.Keys{
	Score: append(estimatorKeys(),
		nightly.Key{Name: "baseline"}, nightly.Key{Name: "seed", Kind: nightly.Whole}, nightly.Key{Name: "splits", Kind: nightly.List},
		nightly.Key{Name: "fresh-days", Kind: nightly.Whole}, nightly.Key{Name: "fresh-weight", Kind: nightly.Whole},
		nightly.Key{Name: "sample", Kind: nightly.Number}, nightly.Key{Name: "full-every", Kind: nightly.Whole}, nightly.Key{Name: "max-inherited-error", Kind: nightly.Number},
		nightly.Key{Name: "kernel"}, nightly.Key{Name: "workers", Kind: nightly.Whole, Local: true}, nightly.Key{Name: "nats", Local: true},
		nightly.Key{Name: "creds", Kind: nightly.Path, Local: true}, nightly.Key{Name: "nkey", Kind: nightly.Path, Local: true}, nightly.Key{Name: "user-file", Kind: nightly.Path, Local: true},
		nightly.Key{Name: "tlsca", Kind: nightly.Path, Local: true}, nightly.Key{Name: "tlscert", Kind: nightly.Path, Local: true}, nightly.Key{Name: "tlskey", Kind: nightly.Path, Local: true},
		nightly.Key{Name: "wait", Local: true}, nightly.Key{Name: "lease", Local: true}, nightly.Key{Name: "replicas", Kind: nightly.Whole, Local: true},
		nightly.Key{Name: "checkpoint-every", Local: true}, nightly.Key{Name: "rows-per-shard", Kind: nightly.Whole, Local: true}, nightly.Key{Name: "store", Local: true},
	),
	Prune: []nightly.Key{
		{Name: "sparsity", Kind: nightly.Number}, {Name: "parameters", Kind: nightly.Whole}, {Name: "bytes", Kind: nightly.Whole},
		{Name: "aggregate"}, {Name: "rank"}, {Name: "values"}, {Name: "hysteresis", Kind: nightly.Number}, {Name: "protect", Kind: nightly.List}, {Name: "field-minimum", Kind: nightly.Number},
	},
	Check: []nightly.Key{
		{Name: "split"}, {Name: "max-auc-drop", Kind: nightly.Number}, {Name: "max-logloss-rise", Kind: nightly.Number}, {Name: "max-rmse-rise", Kind: nightly.Number}, {Name: "confident", Kind: nightly.Truth},
	},
}

// rowsOf returns the splits that nights score, choose or calibrate by ("" = none), and judge by.
func rowsOf(c *nightly.Config) *nightly.Rows {
	r := &nightly.Rows{Scored: []string{dataset.Train}, Judged: cmp.Or(c.Check.Get("split"), dataset.Test)}
	if given := c.Score.Get("splits"); given != "" {
		r.Scored = strings.Split(given, ",")
	} else if paths(c) {
		r.Scored = append(r.Scored, dataset.Fresh) // of which a state cannot keep sums
	}
	if c.Calibrate || c.Reuse != nil {
		r.Chose = dataset.Val
	}
	return r
}

// rows returns rowsOf without the scored splits that the days of a night lack, and the days.
func (s *steps) rows(n *nightly.Night) (*nightly.Rows, *dataset.Dataset, error) {
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

// scoreCommand is the name of the command of the step score.
var scoreCommand = []string{"nightly", "score"}

// estimatorKeys returns a key for each option of the estimators.
func estimatorKeys() (keys []nightly.Key) {
	for _, s := range new(estimator.Options).Settings() {
		key := nightly.Key{Name: s.Name}
		switch s.Target.(type) {
		case *int:
			key.Kind = nightly.Whole
		case *float64:
			key.Kind = nightly.Number
		}
		keys = append(keys, key)
	}
	return keys
}

// sectionCommand returns the name of the command whose flags a section of the configuration
// sets.
func sectionCommand(section string) []string {
	if section == "score" {
		return scoreCommand
	}
	return []string{section}
}

// check checks the settings of all steps before the first one runs. It sets the
// flags of each step's command and calls what the command calls before it reads a file.
func (r *Runner) check(c *nightly.Config) error {
	options := estimator.Options{Estimator: estimator.Permutation, Passes: 1}
	for section, settings := range map[string]nightly.Settings{"score": c.Score, "prune": c.Prune, "check": c.Check} {
		command, _, err := r.Root().Find(sectionCommand(section))
		if err != nil {
			return err
		}
		for _, s := range settings {
			if err := command.Flags().Set(s.Name, s.Value); err != nil {
				return c.Errorf(section, s, fmt.Errorf("not a value of --%s of %s", s.Name, command.CommandPath()))
			}
			if section == "score" {
				if err := setOption(&options, s); err != nil {
					return c.Errorf(section, s, err)
				}
			}
			if err := checkSetting(section, s); err != nil {
				return c.Errorf(section, s, err)
			}
		}
	}
	if err := checkApart(c); err != nil {
		return err
	}
	options.SetDefaults()
	err := options.Validate(1)
	if err == nil {
		err = connection(c.Score).Check()
	}
	if err != nil {
		return fault.Inputf("%s: score: %v", c.Path, err)
	}
	if options.Traits().Ranks {
		if err := checkPaths(c); err != nil {
			return err
		}
	}
	var budgets []string
	for _, name := range []string{"sparsity", "parameters", "bytes"} {
		if c.Prune.Get(name) != "" {
			budgets = append(budgets, name)
		}
	}
	if len(budgets) != 1 {
		return fault.Inputf("%s: prune has %d budgets: expected one of sparsity, parameters and bytes", c.Path, len(budgets))
	}
	if c.ONNX == "" {
		return nil
	}
	model := c.Model
	if places.IsURL(model) {
		model, _, _ = strings.Cut(model, "?")
	}
	if !checkpoint.NamedONNX(model) {
		return fault.Inputf("%s: onnx: the model %s is not an .onnx file: an .onnx file is written from an .onnx file only", c.Path, c.Model)
	}
	if v := c.Prune.Get("values"); v != "" && v != string(compact.Float32) {
		return fault.Inputf("%s: onnx: an .onnx file keeps the types of its tables, but prune.values is %s: expected %s or no such key", c.Path, v, compact.Float32)
	}
	return nil
}

// checkApart returns bad input unless rows are scored, choose or judge by different splits, as they do by default.
func checkApart(c *nightly.Config) error {
	r, problem := rowsOf(c), error(nil)
	section, name, settings := "score", "splits", c.Score
	if c.Score.Get(name) == "" || r.Judged == r.Chose {
		section, name, settings = "check", "split", c.Check
	}
	switch {
	case slices.Contains(r.Scored, r.Judged):
		problem = fmt.Errorf("the check would judge by the split %s, which is scored: expected different splits", r.Judged)
	case slices.Contains(r.Scored, r.Chose):
		problem = fmt.Errorf("nights calibrate and reuse choices by the split %s, which is scored: expected other splits, or calibrate: false and no reuse", r.Chose)
	case r.Judged == r.Chose:
		problem = fmt.Errorf("the check would judge by the split %s, by which nights calibrate and reuse choices: expected %s, or calibrate: false and no reuse", r.Judged, dataset.Test)
	default:
		return nil
	}
	return c.Errorf(section, settings[slices.IndexFunc(settings, func(s nightly.Setting) bool { return s.Name == name })], problem)
}

// checkPaths returns bad input if a setting needs values, and the scores of the nights are
// orders of paths.
func checkPaths(c *nightly.Config) error {
	for _, s := range c.Score {
		switch s.Name {
		case "sample", "full-every", "max-inherited-error":
			return c.Errorf("score", s, fmt.Errorf("with the estimator %s every night is a full job: expected no such key", estimator.Path))
		}
	}
	for _, s := range c.Prune {
		if s.Name == "aggregate" || s.Name == "rank" && s.Value != mask.Abs {
			return c.Errorf("prune", s, fmt.Errorf("the estimator %s gives an order and no values: expected no such key", estimator.Path))
		}
	}
	return nil
}

// connection returns the connection that the settings of score describe.
func connection(s nightly.Settings) *cli.Connection {
	c := &cli.Connection{NATS: cmp.Or(s.Get("nats"), os.Getenv("SHAVER_NATS"))}
	c.Access.Creds, c.Access.NKey, c.Access.UserFile = s.Get("creds"), s.Get("nkey"), s.Get("user-file")
	c.Access.TLSCA, c.Access.TLSCert, c.Access.TLSKey = s.Get("tlsca"), s.Get("tlscert"), s.Get("tlskey")
	return c
}

// setOption sets an option of the estimator, if the setting is one.
func setOption(o *estimator.Options, s nightly.Setting) (err error) {
	for _, option := range o.Settings() {
		if option.Name != s.Name {
			continue
		}
		switch to := option.Target.(type) {
		case *string:
			*to = s.Value
		case *int:
			*to, err = strconv.Atoi(s.Value)
		case *float64:
			*to = number(s.Value)
		}
	}
	return err
}

// checkSetting checks the range of a setting.
func checkSetting(section string, s nightly.Setting) error {
	between := func(low, high float64, text string) error {
		if v := number(s.Value); !(v >= low && v <= high) {
			return errors.New("expected " + text)
		}
		return nil
	}
	oneOf := func(known []string) error {
		for _, value := range strings.Split(s.Value, ",") {
			if !slices.Contains(known, value) {
				return errors.New("expected one of " + strings.Join(known, ", "))
			}
		}
		return nil
	}
	switch section + "." + s.Name {
	case "score.baseline":
		return oneOf(baseline.Names())
	case "score.splits", "check.split":
		return oneOf(dataset.SplitNames)
	case "score.sample":
		if number(s.Value) == 0 {
			return errors.New("expected a number above 0, at most 1")
		}
		return between(0, 1, "a number above 0, at most 1")
	case "score.full-every", "prune.parameters", "prune.bytes":
		return between(1, 1<<62, "a whole number, at least 1")
	case "score.replicas":
		return oneOf([]string{"1", "3"})
	case "score.max-inherited-error":
		if number(s.Value) <= 0 {
			return errors.New("expected a number above 0")
		}
	case "prune.sparsity", "prune.field-minimum", "check.max-auc-drop":
		return between(0, 1, "a number from 0 to 1")
	case "prune.aggregate":
		return oneOf(scores.Aggregates())
	case "prune.values":
		return oneOf(compact.EncodingNames())
	case "prune.hysteresis", "check.max-logloss-rise", "check.max-rmse-rise":
		return between(0, 1e300, "a number of at least 0")
	}
	return nil
}

// steps runs the commands of a night in this process.
type steps struct {
	*Runner
	config *nightly.Config
}

// command runs a command with the flag -o json, and reads what it prints into to. It runs
// the same functions as the process "shaver ARGS" would, with the same environment.
func (s *steps) command(ctx context.Context, to any, args ...string) ([]byte, error) {
	root := s.Root()
	cli.Setup(root)
	root.SetArgs(append(args, "--output=json"))
	var out bytes.Buffer
	root.SetOut(&out)
	err := root.ExecuteContext(ctx)
	if out.Len() > 0 {
		if decoding := json.Unmarshal(out.Bytes(), to); err == nil {
			err = decoding
		}
	}
	return out.Bytes(), err
}

func (s *steps) Model(path string) (string, error) {
	ck, err := checkpoint.Read(path)
	if err != nil {
		return "", err
	}
	return ck.Digest(), nil
}

func (s *steps) ModelFiles(path string) []string { return checkpoint.Files(path) }

func (s *steps) Day(path string) (string, error) {
	d, err := dataset.Open(path)
	if err != nil {
		return "", err
	}
	return d.Digest(), nil
}

// checkDays returns rows, or bad input if the days have no rows by which to choose or judge, or lack a field that prune is to protect.
// The other steps would find that only after the scores are computed.
func (s *steps) checkDays(n *nightly.Night) (*nightly.Rows, error) {
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
	return r, nil
}

// checkONNX returns bad input if the night has to calibrate an .onnx file and cannot. The step
// prune would find that only after the scores are computed.
func (s *steps) checkONNX(n *nightly.Night) error {
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

func (s *steps) Score(ctx context.Context, n *nightly.Night) (*nightly.Scored, error) {
	rows, err := s.checkDays(n)
	if err != nil {
		return nil, err
	}
	if err := s.checkONNX(n); err != nil {
		return nil, err
	}
	args := slices.Concat(scoreCommand, []string{"--model=" + n.Model, "--dataset=" + cli.List(n.Days), "--out=" + filepath.Join(n.Folder, nightly.ScoresFile), "--force", "--log=" + s.Log})
	if !paths(s.config) {
		args = append(args, "--state="+s.config.State)
	}
	if s.Quiet {
		args = append(args, "--quiet")
	}
	if s.config.Score.Get("splits") == "" { // the command would take the splits of its state
		args = append(args, "--splits="+cli.List(rows.Scored))
	}
	args = append(args, s.config.Score.Flags()...)
	var found launch.JobReport
	if _, err := s.command(ctx, &found, args...); err != nil {
		return nil, err
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

// pruned is what the command prune prints, as far as a night reads it.
type pruned struct {
	cut.Choice
	cut.Sizes
}

func (s *steps) Prune(ctx context.Context, n *nightly.Night) (*nightly.Pruned, error) {
	return s.prune(ctx, n, n.Folder)
}

// prune writes what Prune writes to a folder. With n.Kept it needs no scores, and writes no .onnx file and no delta to
// another folder than that of the night.
func (s *steps) prune(ctx context.Context, n *nightly.Night, folder string) (*nightly.Pruned, error) {
	args := []string{"prune", "--model=" + n.Model, "--force"}
	if !n.Kept {
		args = append(args, "--scores="+filepath.Join(n.Folder, nightly.ScoresFile))
	}
	var form []string // budget and values, which an .onnx file takes from the compact file
	for _, setting := range s.config.Prune {
		flags := nightly.Settings{setting}.Flags()
		if n.Kept && setting.Name != "values" {
			continue // the choice is made
		}
		switch setting.Name {
		case "sparsity", "parameters", "bytes", "values":
			form = append(form, flags...)
		case "hysteresis":
			if n.Previous != "" {
				args = append(args, flags...)
			}
		default:
			args = append(args, flags...)
		}
	}
	if n.Previous != "" {
		args = append(args, "--previous="+n.Previous)
	}
	if s.config.Calibrate {
		args = append(args, "--calibrate")
	}
	if s.config.Calibrate || n.Kept {
		args = append(args, "--dataset="+cli.List(n.Days))
	}
	var found pruned
	text, err := s.command(ctx, &found, slices.Concat(args, form, []string{"--out=" + filepath.Join(folder, nightly.PrunedFile)})...)
	if err != nil {
		return nil, err
	}
	if s.config.ONNX != "" && folder == n.Folder {
		if !n.Kept {
			args = append(args, "--parameters="+strconv.Itoa(found.Parameters))
		}
		args = append(args, "--out="+filepath.Join(n.Folder, nightly.ONNXFile))
		if s.config.ONNX == nightly.CompactONNX {
			args = append(args, "--compact-onnx")
		}
		if _, err := s.command(ctx, &pruned{}, args...); err != nil {
			return nil, err
		}
	}
	if s.config.Delta && folder == n.Folder {
		if err := writeDelta(n); err != nil {
			return nil, err
		}
	}
	p := &nightly.Pruned{Sparsity: found.Sparsity, Bytes: found.Bytes, DenseBytes: found.DenseBytes}
	if stable := found.Previous; stable != nil {
		p.Churn, p.PlainChurn = &stable.Churn.Portion, &stable.Plain.Portion
	}
	return p, atomicfile.Write(filepath.Join(folder, nightly.PruneFile), func(w io.Writer) error { _, err := w.Write(text); return err })
}

// writeDelta writes the delta from the pruned model of the night that is published to that of n. It is whole
// if none is published.
func writeDelta(n *nightly.Night) error {
	o := delta.Options{From: n.Previous, Generation: int64(n.Number), FromGeneration: int64(n.PreviousNumber), Whole: true, Replace: true}
	_, err := delta.Write(filepath.Join(n.Folder, nightly.PrunedFile), o, filepath.Join(n.Folder, nightly.DeltaFolder))
	return err
}

func (s *steps) Check(ctx context.Context, n *nightly.Night) (*nightly.Checked, error) {
	file := nightly.PrunedFile
	if s.config.ONNX != "" { // the file that is served
		file = nightly.ONNXFile
	}
	rows, _, err := s.rows(n)
	if err != nil {
		return nil, err
	}
	args := []string{"check", "--model=" + filepath.Join(n.Folder, file), "--against=" + n.Model, "--dataset=" + cli.List(n.Days), "--out=" + filepath.Join(n.Folder, nightly.CheckFile), "--force"}
	var found gate.Document
	_, err = s.command(ctx, &found, append(args, s.config.Check.Flags()...)...)
	if err != nil && !errors.Is(err, cli.ErrGate) {
		return nil, err
	}
	c := &nightly.Checked{Passed: found.Passed, Reasons: []string{}, Rows: rows}
	if m := found.RMSE; m != nil {
		c.RMSE, c.PrunedRMSE, c.RMSERise = &m.Model, &m.Pruned, increase(m)
	} else {
		auc, logLoss := found.AUC, found.LogLoss
		c.AUC, c.PrunedAUC, c.AUCDrop = &auc.Model, &auc.Pruned, decrease(auc)
		c.LogLoss, c.PrunedLogLoss, c.LogLossRise = &logLoss.Model, &logLoss.Pruned, increase(logLoss)
	}
	if !found.Passed {
		c.Reasons = append(c.Reasons, found.Failure())
	}
	return c, nil
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

func (s *steps) Report(ctx context.Context, n *nightly.Night) error {
	args := []string{"report", "--model=" + n.Model, "--scores=" + filepath.Join(n.Folder, nightly.ScoresFile), "--dataset=" + cli.List(n.Days), "--out=" + filepath.Join(n.Folder, nightly.ReportFile), "--force"}
	if aggregate := s.config.Prune.Get("aggregate"); aggregate != "" {
		args = append(args, "--aggregate="+aggregate)
	}
	var written struct{}
	_, err := s.command(ctx, &written, args...)
	return err
}

func (s *steps) History(lines []nightly.Line, folders map[string]bool) ([]byte, error) {
	return report.History(lines, folders, cli.Program())
}

package night

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/internal/app/cli"
	"shaver/internal/app/places"
	"shaver/internal/app/score"
	"shaver/internal/app/steps"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/nightly"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// setting is a key of a section of the configuration, and the option of the step that it sets.
type setting struct {
	nightly.Key
	to      any      // pointer to the option
	choices []string // its values; nil = any of its type
}

// key returns a setting whose kind is that of its option.
func key(name string, to any, choices ...string) setting {
	kind := nightly.Text
	switch to.(type) {
	case *int, *int64, *uint64:
		kind = nightly.Whole
	case *float64:
		kind = nightly.Number
	case *bool:
		kind = nightly.Truth
	case *[]string:
		kind = nightly.List
	}
	return setting{nightly.Key{Name: name, Kind: kind}, to, choices}
}

// scoreSettings returns the keys of the section score.
func scoreSettings(o *score.Options) (all []setting) {
	r, a := &o.Job.Request, &o.Job.Access
	for _, s := range r.Options.Settings() {
		if s.Target == &r.Options.Sparsity {
			s.Target = &o.Sparsity
		}
		all = append(all, key(s.Name, s.Target))
	}
	all = append(all, key("baseline", &r.Baseline, baseline.Names()...), key("seed", &r.Seed), key("splits", &r.Splits, dataset.SplitNames...),
		key("fresh-days", &r.FreshDays), key("fresh-weight", &r.FreshWeight), key("sample", &r.Sample),
		key("full-every", &o.Previous.FullEvery), key("max-inherited-error", &o.Previous.MaxInheritedError), key("kernel", o.Kernel))
	file := func(name string, to *string) setting {
		return setting{nightly.Key{Name: name, Kind: nightly.Path}, to, nil}
	}
	for _, local := range []setting{
		key("workers", &o.Job.Workers), key("verify", &o.Job.Verify), key("nats", &o.Job.NATS), file("creds", &a.Creds), file("nkey", &a.NKey), file("user-file", &a.UserFile),
		file("tlsca", &a.TLSCA), file("tlscert", &a.TLSCert), file("tlskey", &a.TLSKey), key("wait", &o.Job.Wait), key("lease", &o.Job.Queue.Lease),
		key("replicas", &o.Job.Queue.Replicas), key("checkpoint-every", &o.Job.SaveEvery), key("rows-per-shard", &r.RowsPerShard), key("store", &o.Job.Store),
	} {
		local.Local = true
		all = append(all, local)
	}
	return all
}

// prune are the options of the step prune, or the bound for which it finds the smallest table.
type prune struct {
	*steps.Prune
	Within float64 // 0 = the budget is in Prune
}

// pruneSettings returns the keys of the section prune.
func pruneSettings(o *prune) []setting {
	return []setting{
		key("within", &o.Within), key(mask.Sparsity, &o.Sparsity), key(mask.Kept, &o.Parameters), key(mask.Bytes, &o.Bytes), setting{nightly.Key{Name: "aggregate", Kind: nightly.Text}, &scores.Ranking{Name: &o.Aggregate, Rank: &o.Rank}, append(scores.Aggregates(), mask.Signed)},
		key("values", &o.Values, compact.EncodingNames()...), key("hysteresis", &o.Hysteresis), key("protect", &o.Keep.Fields), key("field-minimum", &o.Keep.Minimum),
		setting{nightly.Key{Name: "table-budget", Kind: nightly.List}, &o.Keep.Tables, nil},
	}
}

// checkSettings returns the keys of the section check.
func checkSettings(o *steps.Check) []setting {
	b := &o.Bounds
	return []setting{
		key("split", &o.Split, dataset.SplitNames...), key("group", &o.Group), key("max-auc-drop", &b.AUCDrop), key("max-logloss-rise", &b.LogLossRise), key("max-rmse-rise", &b.RMSERise), key("confident", &b.Confident),
	}
}

// keys are the keys of all sections.
var keys = nightly.Keys{
	Score: keysOf(scoreSettings(score.NewOptions(score.Nightly))), Prune: keysOf(pruneSettings(&prune{Prune: steps.NewPrune()})), Check: keysOf(checkSettings(steps.NewCheck())),
}

func keysOf(settings []setting) (keys []nightly.Key) {
	for _, s := range settings {
		keys = append(keys, s.Key)
	}
	return keys
}

// set sets the options of a step to the values that a section gives.
func set(c *nightly.Config, section string, settings []setting, given nightly.Settings) error {
	for _, g := range given {
		s := settings[slices.IndexFunc(settings, func(s setting) bool { return s.Name == g.Name })]
		for _, value := range strings.Split(g.Value, ",") {
			if s.choices != nil && !slices.Contains(s.choices, value) {
				return c.Errorf(section, g, errors.New("expected one of "+strings.Join(s.choices, ", ")))
			}
		}
		if err := parse(s.to, g.Value); err != nil {
			return c.Errorf(section, g, err)
		}
	}
	return nil
}

// parse sets an option to a text that has the kind of its setting.
func parse(option any, text string) (err error) {
	switch to := option.(type) {
	case *string:
		*to = text
	case *[]string:
		*to = strings.Split(text, ",")
	case *bool:
		*to = text == "true"
	case *int:
		*to, err = strconv.Atoi(text)
	case *int64:
		*to, err = strconv.ParseInt(text, 10, 64)
	case *uint64:
		*to, err = strconv.ParseUint(text, 10, 64)
	case *float64:
		*to, err = strconv.ParseFloat(text, 64)
	case *time.Duration:
		if *to, err = time.ParseDuration(text); err != nil {
			return errors.New("expected a duration such as 30s or 5m")
		}
	case interface{ Set(string) error }:
		return to.Set(text)
	}
	if err != nil {
		return errors.New("expected a smaller number")
	}
	return nil
}

// has returns what says whether a section or the night itself gives a setting.
func has(given nightly.Settings, more ...string) cli.Given {
	return func(name string) bool { return given.Get(name) != "" || slices.Contains(more, name) }
}

// scoring returns the options of the step score.
func scoring(c *nightly.Config) (*score.Options, error) {
	o := score.NewOptions(score.Nightly)
	o.Given, o.Job.NATS, o.Job.RunID = has(c.Score), os.Getenv("SHAVER_NATS"), os.Getenv("SHAVER_RUN")
	return o, set(c, "score", scoreSettings(o), c.Score)
}

// pruning returns the options of the step prune with some of the settings of its section.
func pruning(c *nightly.Config, given nightly.Settings) (*prune, error) {
	o := &prune{Prune: steps.NewPrune()}
	o.Given = has(given)
	return o, set(c, "prune", pruneSettings(o), given)
}

// checking returns the options of the step check.
func checking(c *nightly.Config) (*steps.Check, error) {
	o := steps.NewCheck()
	if within, err := strconv.ParseFloat(c.Prune.Get("within"), 64); err == nil {
		o.Bounds = gate.Bounds{AUCDrop: within, LogLossRise: within, RMSERise: within}
	}
	o.Given = has(c.Check)
	return o, set(c, "check", checkSettings(o), c.Check)
}

// keyed returns an error of a step with the keys of its section in the place of flags.
func keyed(c *nightly.Config, section string, err error) error {
	var refused *fault.Refused
	if errors.As(err, &refused) {
		for _, s := range map[string]nightly.Settings{"score": c.Score, "prune": c.Prune, "check": c.Check}[section] {
			if s.Name == refused.Setting {
				return c.Errorf(section, s, errors.New(refused.Why))
			}
		}
	}
	if !fault.IsUsage(err) {
		return err
	}
	names := slices.Clone(map[string][]nightly.Key{"score": keys.Score, "prune": keys.Prune, "check": keys.Check}[section])
	slices.SortFunc(names, func(a, b nightly.Key) int { return len(b.Name) - len(a.Name) }) // a name may begin with another
	var pairs []string
	for _, k := range names {
		pairs = append(pairs, "--"+k.Name, section+"."+k.Name)
	}
	return fault.Usagef("%s", strings.NewReplacer(pairs...).Replace(err.Error()))
}

// refused is keyed before a step runs, when the configuration itself is wrong.
func refused(c *nightly.Config, section string, err error) error {
	if err = keyed(c, section, err); fault.IsUsage(err) {
		return fault.Inputf("%s: %s: %v", c.Path, section, err)
	}
	return err
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

// check checks the settings of all steps before the first one runs.
func check(c *nightly.Config) error {
	o, err := scoring(c)
	if err != nil {
		return err
	}
	o.State = c.State
	if err := refused(c, "score", o.Check()); err != nil {
		return err
	}
	p, err := pruning(c, c.Prune)
	if err != nil {
		return err
	}
	p.Scores, p.Previous, p.Out, p.Dataset, p.Calibrate = nightly.ScoresFile, nightly.PrunedFile, nightly.PrunedFile, []string{c.Days}, c.Calibrate
	if p.Within > 0 {
		p.Budget = &mask.Budget{Unit: mask.Sparsity} // until a night finds it
	}
	wrong, budgets := p.Check(), 0
	for _, s := range c.Prune {
		if s.Name == "within" {
			if err := sweep.CheckBounds(p.Within); err != nil {
				return c.Errorf("prune", s, err)
			}
			budgets++
		}
		if s.Name == mask.Sparsity || s.Name == mask.Kept || s.Name == mask.Bytes {
			budgets++
		}
	}
	if budgets != 1 && !errors.As(wrong, new(*fault.Refused)) {
		wrong = fault.Inputf("%s: prune has %d budgets: expected one of within, sparsity, parameters and bytes", c.Path, budgets)
	}
	if err := refused(c, "prune", wrong); err != nil {
		return err
	}
	judge, err := checking(c)
	if err == nil {
		err = refused(c, "check", judge.Bounds.Check())
	}
	if err == nil {
		err = checkApart(c)
	}
	if err != nil {
		return err
	}
	options := o.Job.Options
	options.Sparsity = o.Sparsity
	options.SetDefaults()
	if err := options.Validate(1); err != nil {
		return fault.Inputf("%s: score: %v", c.Path, err)
	}
	for _, s := range c.Score {
		if s.Name == "baseline" && s.Value == baseline.Words && !options.Traits().Ranks {
			return c.Errorf("score", s, fmt.Errorf("nights have several words only with the estimator %s: expected %s", estimator.Path, baseline.Codebook))
		}
	}
	if options.Traits().Ranks {
		if err := checkPaths(c); err != nil {
			return err
		}
	}
	return checkONNX(c)
}

// checkONNX returns bad input if nights are to write .onnx files and cannot.
func checkONNX(c *nightly.Config) error {
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
	if v := c.Prune.Get("values"); c.ONNX == nightly.DenseONNX && v != "" && v != string(compact.Float32) {
		return fault.Inputf("%s: onnx: a dense .onnx file keeps the types of its tables, but prune.values is %s: expected onnx: %s, or %s or no such key", c.Path, v, nightly.CompactONNX, compact.Float32)
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
		if s.Name == "aggregate" {
			return c.Errorf("prune", s, fmt.Errorf("the estimator %s gives an order and no values: expected no such key", estimator.Path))
		}
	}
	return nil
}

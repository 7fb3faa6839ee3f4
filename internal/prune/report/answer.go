package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/prune/sweep"
)

// answerSection answers which file or budget to choose.
type answerSection struct {
	Heading  string // what to do
	Lead     string // why
	Verdict  []fact // what it costs, and how sure that is
	Command  string // arguments of "shaver prune" that make the table; "" = there is no answer, or its file is there
	Scores   string // job whose scores Command needs; "" = the sweep had only one scores file
	File     string // file of the model that the answer recommends; "" = it recommends another table
	Notes    []string
	Measured string // what was measured
	Loss     string // name of the loss that is compared
	Unit     string // what follows the name in a heading
	Shipped  bool   // the answer is about a file, and not about a table
	Ladder   []string
	Ranked   bool // several rankings, so that rows name the best one
	Rows     []answerRow
}

// answerRow is a sparsity with the best result there. The first row is the unpruned model.
type answerRow struct {
	Sparsity, Ranking, Parameters, Disk, Memory, Empty string
	AUC, LogLoss                                       string
	AUCChange, LossChange                              change
	Within                                             string // the smallest bound of the ladder within which the table is certain to be
	Chosen, Unpruned                                   bool
}

// change is a difference with its interval as the page shows it.
type change struct {
	Value, Interval string // Interval may be empty
	Differs         bool   // the interval does not contain 0, and Value is not 0 when rounded
}

func changeOf(i *sweep.Interval) change {
	if i == nil {
		return change{Value: "-"}
	}
	c := change{Value: signed(i.Value)}
	c.Differs = i.Differs() && c.Value != signed(0)
	if i.Low != nil && i.High != nil {
		c.Interval = signed(*i.Low) + " to " + signed(*i.High)
	}
	return c
}

// lossBase returns the name of the loss without calibration.
func (c *comparison) lossBase() string { return strings.TrimPrefix(c.LossName(), "calibrated ") }

// lossUnit returns what follows the name of the loss in a heading.
func (c *comparison) lossUnit() string {
	if c.Unpruned.RMSE != nil {
		return ""
	}
	return ", nat"
}

// answer returns the section. quality is about the recommended table.
func (c *comparison) answer(f *Facts, quality *qualitySection) *answerSection {
	s := &answerSection{Loss: c.LossName(), Unit: c.lossUnit(), Measured: c.measured(), Notes: c.caveats(), Ranked: c.rankings() > 1}
	s.Heading, s.Lead = c.sentence()
	if c.decided != nil {
		if p := c.ModelOf(c.decided.best.Point); p != nil {
			s.File = p.File
		}
	}
	if f.Shipped != nil {
		s.Heading, s.Lead = f.Shipped.sentence(c)
		s.Shipped = true
	} else if c.decided != nil {
		s.Command, s.Scores = c.command(c.decided), c.source(c.decided)
	}
	s.Verdict = c.verdict(f, quality)
	if len(c.budgets) > 0 {
		s.Ladder = c.ladder.Text
	}
	var certain []map[*sweep.Point]bool // by rung
	for _, r := range c.ladder.Rungs {
		certain = append(certain, c.Certain(sweep.Bound(r.Within).Holds))
	}
	unpruned := answerRow{
		Unpruned: true, Sparsity: "unpruned", Parameters: count(c.Entries), Disk: size(c.Unpruned.TableBytes), Memory: size(c.Unpruned.MemoryBytes),
		AUC: "-", LogLoss: decimal(c.loss(&c.Unpruned)),
	}
	if auc := c.Unpruned.JudgedAUC(); auc != nil {
		unpruned.AUC = decimal(*auc)
	}
	s.Rows = append(s.Rows, unpruned)
	for _, b := range c.budgets {
		if c.decided != nil && b.best.Sparsity == c.decided.best.Sparsity {
			b = *c.decided
		}
		p := b.best
		within := "-"
		if k := slices.IndexFunc(certain, func(tables map[*sweep.Point]bool) bool { return tables[p.Point] }); k >= 0 {
			within = number(c.ladder.Rungs[k].Within)
		}
		row := answerRow{
			Within: within, Sparsity: number(p.Sparsity), Ranking: b.by.Label, Parameters: count(p.Parameters), Disk: size(p.Point.TableBytes), Memory: size(p.Point.MemoryBytes),
			Empty: count(int(math.Round(p.EmptyFeatures))), AUC: decimal(p.AUC.Mean), LogLoss: decimal(c.logLossOf(p)),
			AUCChange: changeOf(c.auc(p)), LossChange: changeOf(c.logLoss(p)), Chosen: c.decided != nil && p.Point == c.decided.best.Point,
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

// loss returns the LogLoss of a measure that the page compares.
func (c *comparison) loss(m *sweep.Measure) float64 {
	if c.calibrated && m.CalibratedLoss() != nil {
		return *m.CalibratedLoss()
	}
	return m.Metrics.Loss()
}

func (c *comparison) logLossOf(p *sweep.Mean) float64 {
	if c.calibrated && !math.IsNaN(p.Calibrated.Mean) {
		return p.Calibrated.Mean
	}
	return p.Loss.Mean
}

// limits names the bound.
func (c *comparison) limits() string {
	text := number(float64(c.within)) + " " + c.LossName()
	if c.Unpruned.RMSE == nil {
		text = number(float64(c.within)) + " " + c.AUCName() + " and " + text
	}
	return text
}

// sentence returns the answer as a heading, and its reason.
func (c *comparison) sentence() (heading, reason string) {
	d := c.decided
	switch {
	case len(c.budgets) == 0:
		return "This sweep has no table with dropped entries", "Run shaver sweep with scores to measure some."
	case d == nil:
		reason = "No measured table is certain to be within " + c.limits() + " of the unpruned model."
		if r := c.Rung(c.within); r.Guess != nil {
			return "No smaller table is certain", reason + " The best guess keeps " + kept(r.Guess.Sparsity) + " of the entries, " + size(&r.Guess.TableBytes) + " on disk" + r.Would() + "."
		}
		return "No smaller table is certain", reason + " Measure larger tables, or allow more with --within."
	}
	p := d.best
	heading = "Keep " + kept(p.Sparsity) + " of the entries"
	if d.by.model {
		heading = "Take the table of " + c.ModelOf(p.Point).File + ", " + kept(p.Sparsity) + " of the unpruned one"
	}
	if p.Point.TableBytes != nil && c.Unpruned.TableBytes != nil {
		heading += ": " + size(p.Point.TableBytes) + " instead of " + size(c.Unpruned.TableBytes)
	}
	return heading, "This is the smallest measured table that is certain to be within " + c.limits() + " of the unpruned model."
}

// sentence returns the answer as a heading, and its reason.
func (s *Shipped) sentence(c *comparison) (heading, reason string) {
	heading = fmt.Sprintf("%s: %s instead of %s", oneLine(s.File), size(&s.Bytes), size(&s.Dense))
	reason = "It has the size or the sparsity that was asked for."
	if s.Within > 0 {
		heading = "Ship " + heading
		reason = fmt.Sprintf("It is the smallest file found that is certain to be within %s of the unpruned model, on %s rows of %s.", c.limits(), count(s.Check.Rows), s.Check.Split)
	}
	reason += fmt.Sprintf(" It keeps %s of %s entries", count(s.Kept), count(s.Entries))
	if s.of(c) {
		reason += ", those of the marked table"
	}
	if s.Rounded {
		reason += ", and rounds numbers"
	}
	return heading, reason + "."
}

// of reports whether the file has the entries of the recommended table, to which it may round.
func (s *Shipped) of(c *comparison) bool {
	return c.decided != nil && s.Check.Answer != nil && slices.ContainsFunc(s.Check.Answer.Rungs, func(r sweep.Rung) bool {
		return r.Certain != nil && r.Certain.Parameters == c.decided.best.Parameters
	})
}

// verdict says what the answer costs, and how sure that is. It is about the file, and otherwise about the recommended table.
func (c *comparison) verdict(f *Facts, quality *qualitySection) (all []fact) {
	metric := func(name string, i *sweep.Interval) {
		of := changeOf(i)
		if of.Interval != "" {
			of.Interval = "95%: " + of.Interval
		}
		if i != nil {
			all = append(all, fact{name, of.Value, of.Interval})
		}
	}
	s, before := f.Shipped, ""
	switch {
	case s != nil:
		all = append(all, fact{"file", size(&s.Bytes), "of " + size(&s.Dense)})
		if m := cmp.Or(s.Check.GAUC, s.Check.AUC); m != nil {
			metric(c.AUCName(), &m.Difference)
		}
		if m := cmp.Or(s.Check.RMSE, s.Check.LogLoss); m != nil {
			metric(c.lossBase()+" as served", &m.Difference)
		}
		before = ", before rounding"
	case c.decided != nil:
		if p := c.decided.best.Point; p.TableBytes != nil && c.Unpruned.TableBytes != nil {
			all = append(all, fact{"table", size(p.TableBytes), "of " + size(c.Unpruned.TableBytes)})
		}
		metric(c.AUCName(), c.auc(c.decided.best))
		metric(c.LossName(), c.logLoss(c.decided.best))
	default:
		return nil
	}
	measured := s == nil || s.of(c) // otherwise the sweep measured other tables
	if measured && quality != nil && quality.Slices != nil {
		all = append(all, fact{"slices that lose", fmt.Sprintf("%d of %d", quality.Slices.Lost, len(c.Slices)), "for certain" + before})
	}
	if measured && quality != nil && quality.Calibration != nil && quality.Calibration.judged {
		holds, note := "holds", "no rate is certain to be off"+before
		if quality.Calibration.off {
			holds, note = "is off", quality.Calibration.Heading
		}
		all = append(all, fact{"calibration", holds, note})
	}
	rows := fact{"rows judged", count(c.Rows), ""}
	switch r := c.Rung(c.within); {
	case !measured:
	case r.Rows > 0:
		rows.Note = "about " + sweep.Round(r.Rows) + " could prove a smaller table"
	case r.Guess == nil:
		rows.Note = "enough for this bound"
	}
	all = append(all, rows)
	if f.Gap != nil {
		all = append(all, fact{"new rows", percent(f.Gap.Total.Back()), "of what the fields are worth holds there"})
	}
	return all
}

// kept writes the portion of the entries that is kept at a sparsity.
func kept(sparsity float64) string { return number(100*(1-sparsity)) + "%" }

// command returns the arguments of "shaver prune" that make a table. It returns "" if no
// arguments do.
func (c *comparison) command(b *budget) string {
	p := b.best.Point
	aggregate := c.aggregate(p)
	if aggregate == "" && p.Method != sweep.Nothing {
		return ""
	}
	words := []string{"--parameters", strconv.Itoa(p.Parameters)}
	if text := sweep.SparsityText(p.Sparsity); text == strconv.FormatFloat(p.Sparsity, 'g', -1, 64) { // otherwise the sparsity is that of another budget
		words = []string{"--sparsity", text}
	}
	var flags []string // no order keeps nothing
	if aggregate != "" {
		flags = c.Flags(p, aggregate)
	}
	words = append(words, flags...)
	if c.calibrated {
		words = append(words, "--calibrate")
	}
	if c.calibrated || slices.Contains(flags, sweep.AutoValues) {
		words = append(words, "--dataset", "DIR")
	}
	return strings.Join(words, " ")
}

// source describes the job whose scores rank a table, if the sweep compared several jobs.
func (c *comparison) source(b *budget) string {
	p := b.best.Point
	if p.Source == nil || len(c.Sources) < 2 {
		return ""
	}
	s := c.Sources[*p.Source]
	return fmt.Sprintf("%s (%s, %s)", s.Job, s.Estimator, s.Baseline)
}

// measured says on which rows the sweep measured, and with which settings.
func (c *comparison) measured() string {
	text := fmt.Sprintf("Measured on the %s rows of the %s split. A difference is the value of the pruned model minus that of the unpruned model on the same rows. It is bold if its 95%% interval does not contain 0. A table is certain to be within a bound if the whole interval is, and those of all larger tables of its order are. Several orders have wider intervals.", count(c.Rows), c.Split)
	if s := settings(c.Settings); s != "" {
		text += " " + s
	}
	return text
}

// caveats returns notes on what the answer does not show.
func (c *comparison) caveats() []string {
	var notes []string
	if c.calibrated {
		notes = append(notes, c.lossBase()+" is compared after a calibration on the validation split. The calibration is a scale and an offset, which cost nothing when the model serves.")
	} else {
		notes = append(notes, c.lossBase()+" is compared without calibration. A calibration often repairs most of its increase; shaver sweep measures this if no row of val was scored.")
	}
	if rankings := c.rankings(); rankings > 1 {
		notes = append(notes, fmt.Sprintf("The best of %d rankings was chosen on the rows on which it is measured, so its numbers are slightly too good. The intervals of the answer account for this.", rankings))
	}
	if slices.ContainsFunc(c.methods, func(m *method) bool { return m.model }) {
		notes = append(notes, "The sweep also measured model files as they are, each with its own table and head.")
	}
	if c.Group != nil {
		notes = append(notes, c.Group.Text()+". Every AUC on this page is this GAUC.")
	}
	return notes
}

// rankings returns the number of methods that drop entries.
func (c *comparison) rankings() (n int) {
	for _, m := range c.methods {
		if !m.model && !m.rounded {
			n++
		}
	}
	return n
}

package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/prune/sweep"
)

// answerSection answers which budget to choose.
type answerSection struct {
	Lead, Rest string // the answer, whose first part stands out
	Command    string // arguments of "shaver prune" that make the table; "" = there is no answer
	Scores     string // job whose scores Command needs; "" = the sweep had only one scores file
	File       string // file of the model that the answer recommends; "" = it recommends another table
	Ladder     []string
	Shipped    string // Facts.Shipped
	Notes      []string
	Measured   string // what was measured
	Loss       string // name of the loss that is compared
	Unit       string // what follows the name in a heading
	Rows       []answerRow
}

// answerRow is a sparsity with the best result there. The first row is the unpruned model.
type answerRow struct {
	Sparsity, Ranking, Parameters, Disk, Memory, Empty string
	AUC, LogLoss                                       string
	AUCChange, LossChange                              change
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

// answer returns the section.
func (c *comparison) answer() *answerSection {
	s := &answerSection{Loss: c.LossName(), Unit: c.lossUnit(), Measured: c.measured()}
	s.Lead, s.Rest = c.sentence()
	if c.decided != nil {
		s.Command = c.command(c.decided)
		s.Scores = c.source(c.decided)
		if f := c.ModelOf(c.decided.best.Point); f != nil {
			s.File = f.File
		}
	}
	s.Notes = c.caveats()
	if len(c.budgets) > 0 {
		bounds := []float64{float64(c.within)}
		if a := c.Document.Answer; a != nil {
			for i := range a.Rungs {
				bounds = append(bounds, a.Rungs[i].Within)
			}
		}
		s.Ladder = c.Document.Ladder(bounds...).Text
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
		row := answerRow{
			Sparsity: number(p.Sparsity), Ranking: b.by.Label, Parameters: count(p.Parameters), Disk: size(p.Point.TableBytes), Memory: size(p.Point.MemoryBytes),
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

// sentence returns the answer in one or two sentences.
func (c *comparison) sentence() (lead, rest string) {
	limits := number(float64(c.within)) + " " + c.LossName()
	if c.Unpruned.RMSE == nil {
		limits = number(float64(c.within)) + " " + c.AUCName() + " and " + limits
	}
	d := c.decided
	switch {
	case len(c.budgets) == 0:
		return "This sweep has no table with dropped entries.", "Run shaver sweep with scores to measure some."
	case d == nil:
		lead = "No measured table is certain to be within " + limits + " of the unpruned model."
		if r := c.Rung(c.within); r.Guess != nil {
			return lead, "The best guess keeps " + kept(r.Guess.Sparsity) + " of the entries, " + size(&r.Guess.TableBytes) + " on disk" + r.Would() + "."
		}
		return lead, "Measure larger tables, or allow more with --within."
	}
	p := d.best
	rest = count(p.Parameters) + " parameters"
	if p.Point.TableBytes != nil && c.Unpruned.TableBytes != nil {
		rest += ", " + size(p.Point.TableBytes) + " on disk instead of " + size(c.Unpruned.TableBytes)
	}
	has := "keeps " + kept(p.Sparsity) + " of the entries"
	if d.by.model {
		has = "is that of " + c.ModelOf(p.Point).File + ", " + kept(p.Sparsity) + " of the unpruned one"
	}
	return fmt.Sprintf("The smallest table within %s %s:", limits, has), rest + "."
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
	rankings, models := 0, 0 // those that drop entries, and series of model files
	for _, m := range c.methods {
		switch {
		case m.model:
			models++
		case !m.rounded:
			rankings++
		}
	}
	if rankings > 1 {
		notes = append(notes, fmt.Sprintf("The best of %d rankings was chosen on the rows on which it is measured, so its numbers are slightly too good. The intervals of the answer account for this.", rankings))
	}
	if models > 0 {
		notes = append(notes, "The sweep also measured model files as they are, each with its own table and head.")
	}
	if c.Group != nil {
		notes = append(notes, c.Group.Text()+". Every AUC on this page is this GAUC.")
	}
	return notes
}

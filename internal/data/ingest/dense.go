package ingest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"shaver/internal/base/fault"
	"shaver/internal/data/dense"
)

// Dense chooses columns as dense inputs. These columns are not fields, unless
// Format.Columns names them too.
type Dense struct {
	Columns []DenseColumn
	Missing string // what replaces a missing number, unless its input says so: MissingMean or a number; "" means that the row is malformed
}

// DenseColumn chooses a column as a dense input. Input has the rule and the name of the
// dense input. An empty name stands for that of the column, and an empty rule for
// dense.None. The statistics are those of
// train, unless Input has them already, for example from an earlier dataset.
type DenseColumn struct {
	Name  string // name of the column
	Input dense.Input
}

// MissingMean is the value of Dense.Missing that stands for the mean of the rule or, if it has none yet, that of the numbers in train.
const MissingMean = "mean"

// densePlan holds the dense inputs of an import. It does not change while rows are
// parsed.
type densePlan struct {
	columns []string // names of the columns
	inputs  []dense.Input
	written int  // number of inputs, from the first, that the dataset gets; fields are computed from the others
	fill    bool // whether missing numbers become the mean of train if the input has no number for them
}

// plan checks d and returns the plan.
func (d *Dense) plan() (*densePlan, error) {
	p := &densePlan{fill: d.Missing == MissingMean, written: len(d.Columns)}
	fill := math.NaN()
	if d.Missing != "" && !p.fill {
		var err error
		if fill, err = strconv.ParseFloat(d.Missing, 64); err != nil || math.IsNaN(fill) || math.IsInf(fill, 0) {
			return nil, fault.Setting(fault.Usagef("the replacement of missing numbers is %q, expected a number or %s", d.Missing, MissingMean), DenseMissingSetting)
		}
	}
	if d.Missing != "" && len(d.Columns) == 0 {
		return nil, fault.Setting(fault.Usagef("no column becomes a dense input, so no number can be missing"), DenseSetting, DenseMissingSetting)
	}
	for _, c := range d.Columns {
		in := c.Input
		if in.Name == "" {
			in.Name = c.Name
		}
		if in.Missing == nil && !math.IsNaN(fill) {
			in.Missing = &fill
		}
		if in.Rule = cmp.Or(in.Rule, dense.None); p.fill && in.Missing == nil {
			in.Missing = in.Mean // that of the rule, if it is given
		}
		if !slices.Contains(dense.Rules, in.Rule) {
			return nil, fault.Setting(fault.Usagef("column %q has the rule %q, expected one of %q", c.Name, in.Rule, dense.Rules), DenseSetting)
		}
		check := in
		check.Filled, check.Values = 0, dense.Values{}
		if !in.Measured() {
			check.Rule, check.Mean, check.Deviation = dense.None, nil, nil // the rest is checked
		}
		if err := check.Validate(); err != nil {
			return nil, fault.Setting(fault.Usagef("column %q: %w", c.Name, err), DenseSetting, DenseMissingSetting)
		}
		p.columns, p.inputs = append(p.columns, c.Name), append(p.inputs, in)
	}
	return p, nil
}

// names returns the names of the inputs.
func (p *densePlan) names() []string {
	names := make([]string, len(p.inputs))
	for i, in := range p.inputs {
		names[i] = in.Name
	}
	return names
}

// trainStatistics says why an import with an unmeasured input needs rows of train.
const trainStatistics = "its rows give the means of dense inputs: it may be 0 if the means and deviations are numbers, and the replacement of missing numbers is a number or left out"

// unmeasured reports whether an input needs statistics of train.
func (p *densePlan) unmeasured() bool {
	return slices.ContainsFunc(p.inputs, func(in dense.Input) bool { return !in.Measured() || p.fill && in.Missing == nil })
}

// parse returns the number in the cell of input i, or NaN if it is missing and will be
// replaced. If the row is malformed, the error says why.
func (p *densePlan) parse(i int, cell []byte) (float64, error) {
	x, err := dense.Parse(cell)
	in := &p.inputs[i]
	switch {
	case dense.IsMissing(err) && in.Missing == nil && !p.fill:
		return 0, fault.Setting(fmt.Errorf("the number is missing: expected a number, or one that replaces missing numbers"), DenseMissingSetting)
	case dense.IsMissing(err):
		return math.NaN(), nil
	case err != nil:
		return 0, err
	}
	return x, in.Check(x)
}

// newMoments returns the moments of each input before the first row.
func (p *densePlan) newMoments() []dense.Moments { return make([]dense.Moments, len(p.inputs)) }

func addMoments(moments []dense.Moments, numbers []float64) {
	for i, x := range numbers {
		moments[i].Add(x)
	}
}

func mergeMoments(into, from []dense.Moments) {
	for i := range from {
		into[i].Merge(&from[i])
	}
}

// measure sets the statistics of the inputs that need them.
func (p *densePlan) measure(moments []dense.Moments) error {
	for i := range p.inputs {
		if err := p.inputs[i].Measure(&moments[i], p.fill); err != nil {
			return fault.Inputf("column %s: %w", p.columns[i], err)
		}
	}
	return nil
}

// denseWriter standardises the numbers of rows, and summarises them. It is not safe for
// concurrent use.
type denseWriter struct {
	*densePlan
	values    []float32 // result of standardise
	summaries []dense.Summary
}

// newWriter returns a writer. The plan must be measured.
func (p *densePlan) newWriter() *denseWriter {
	return &denseWriter{p, make([]float32, len(p.inputs)), make([]dense.Summary, len(p.inputs))}
}

// standardise stores the dense inputs of a row in w.values. A number that becomes too
// large makes the row malformed.
func (w *denseWriter) standardise(numbers []float64) error {
	for i, x := range numbers {
		in := &w.inputs[i]
		if math.IsNaN(x) {
			x = *in.Missing
		}
		var err error
		if w.values[i], err = in.Value(x); err != nil {
			return badRow{fmt.Errorf("column %s: %w", w.columns[i], err)}
		}
	}
	return nil
}

// add adds the numbers of a row, which standardise has accepted, to the summaries.
func (w *denseWriter) add(numbers []float64) {
	for i, x := range numbers {
		if math.IsNaN(x) {
			x = *w.inputs[i].Missing
			w.summaries[i].Filled++
		}
		w.summaries[i].Add(x)
	}
}

// merge adds the summaries of other.
func (w *denseWriter) merge(other *denseWriter) {
	for i := range w.summaries {
		w.summaries[i].Merge(&other.summaries[i])
	}
}

// described returns the inputs with their summaries. There must be at least one row.
func (w *denseWriter) described() []dense.Input {
	all := slices.Clone(w.inputs)
	for i := range all {
		all[i].Filled, all[i].Values = w.summaries[i].Filled, w.summaries[i].Values()
	}
	return all
}

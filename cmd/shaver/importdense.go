package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/ingest"
	"shaver/internal/prune/sweep"
)

// denseOptions say which columns become dense inputs.
type denseOptions struct {
	columns []string
	missing string
}

func (o *denseOptions) flags(c *cobra.Command) {
	c.Flags().StringSliceVar(&o.columns, "dense", nil, "`columns` of numbers that become dense inputs, each NAME, NAME=INPUT or either of these with :RULE, as described above (default those of the dataset in --vocabulary, or none)")
	o.missingFlag(c)
	missing := c.Flags().Lookup("dense-missing")
	missing.Usage = strings.Replace(missing.Usage, ", or mean", ", NAME=NUMBER for each column, or mean", 1)
	cli.Group(c, rowFlags, "dense", "dense-missing")
}

func (o *denseOptions) missingFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.missing, "dense-missing", "", "`number` that replaces a missing number before the rule, or mean for the mean of train (default none, so that the row is malformed)")
	cli.Group(c, rowFlags, "dense-missing")
}

// set parses the flags. A column without a rule gets the rule "", for which adopt puts
// that of an earlier dataset.
func (o *denseOptions) set() (d ingest.Dense, err error) {
	d.Missing = o.missing
	for _, text := range o.columns {
		column, rule, ruled := text, "", false
		if at := strings.LastIndexByte(text, ':'); at >= 0 {
			column, rule, ruled = text[:at], text[at+1:], true
		}
		c := ingest.DenseColumn{}
		c.Name, c.Input.Name, _ = strings.Cut(column, "=")
		name, statistics, given := strings.Cut(rule, "=")
		c.Input.Rule = name
		if ruled && !slices.Contains(dense.Rules, name) || given && name != dense.ZScore {
			return d, fault.Usagef("--dense %s: the rule is %q, expected %s or %s=MEAN/DEVIATION", text, rule, strings.Join(dense.Rules, ", "), dense.ZScore)
		}
		if given {
			mean, deviation, _ := strings.Cut(statistics, "/")
			a, err := strconv.ParseFloat(mean, 64)
			b, other := strconv.ParseFloat(deviation, 64)
			if err != nil || other != nil {
				return d, fault.Usagef("--dense %s: the statistics are %q, expected MEAN/DEVIATION, such as 3.5/1.25", text, statistics)
			}
			c.Input.Mean, c.Input.Deviation = &a, &b
		}
		d.Columns = append(d.Columns, c)
	}
	return d, o.setMissing(&d)
}

// setMissing sets the numbers that replace missing ones if each column has its own.
func (o *denseOptions) setMissing(d *ingest.Dense) error {
	if !strings.Contains(o.missing, "=") {
		return nil
	}
	d.Missing = ""
	for _, text := range strings.Split(o.missing, ",") {
		name, number, ok := cutLast(text)
		x, err := strconv.ParseFloat(number, 64)
		if !ok || err != nil {
			return fault.Usagef("--dense-missing %s: expected NAME=NUMBER; a single number, or mean, is for all dense inputs", text)
		}
		at := slices.IndexFunc(d.Columns, func(c ingest.DenseColumn) bool { return c.Name == name })
		if at < 0 {
			return fault.Usagef("--dense-missing %s: --dense does not name %s", text, name)
		}
		d.Columns[at].Input.Missing = &x
	}
	return nil
}

// earlierInputs are the dense inputs of an earlier dataset, or those that a model knows.
type earlierInputs struct {
	of     string // such as "the dataset of --vocabulary"
	inputs []model.Standard
}

// inputsOf returns those of the dataset d of --vocabulary.
func inputsOf(d *dataset.Dataset) *earlierInputs {
	e := &earlierInputs{of: "the dataset of --vocabulary"}
	for i := range d.Dense {
		e.inputs = append(e.inputs, d.Dense[i].Standard())
	}
	return e
}

// adopt completes the dense inputs of an import with earlier ones. Without any columns, it takes them all if all is true. A column has the
// rule and the statistics of the dense input that has the name of its own input, or else of that
// which has the name of the column. adopt returns wrong usage if the rules differ, if the column's
// dense input is unknown and there is an earlier one that no column takes, or if there is no
// mean for missing numbers.
func (e *earlierInputs) adopt(into *ingest.Dense, all bool) error {
	if len(into.Columns) == 0 && all {
		for _, in := range e.inputs {
			into.Columns = append(into.Columns, ingest.DenseColumn{Name: in.Name, Input: dense.Input{Name: in.Name, Rule: in.Rule}})
		}
	}
	from, left := make([]int, len(into.Columns)), make([]string, len(e.inputs)) // the earlier input of each column or -1, and those that no column takes
	for i := range e.inputs {
		left[i] = e.inputs[i].Name
	}
	for i, c := range into.Columns {
		named := func(name string) int {
			return slices.IndexFunc(e.inputs, func(in model.Standard) bool { return in.Name == name })
		}
		if from[i] = named(cmp.Or(c.Input.Name, c.Name)); from[i] < 0 {
			from[i] = named(c.Name)
		}
		if from[i] >= 0 {
			left[from[i]] = ""
		}
	}
	left = slices.DeleteFunc(left, func(name string) bool { return name == "" })
	for i := range into.Columns {
		c := &into.Columns[i]
		if from[i] >= 0 {
			if err := e.adoptInput(c, &e.inputs[from[i]], into.Missing); err != nil {
				return err
			}
		} else if len(left) > 0 && (c.Input.Rule == "" || !c.Input.Measured()) {
			return e.unknownInput(c, left)
		}
	}
	return nil
}

// unknownInput returns the error for a column of which it is unknown whether it is one of the earlier inputs that are left.
func (e *earlierInputs) unknownInput(c *ingest.DenseColumn, left []string) error {
	first := &e.inputs[slices.IndexFunc(e.inputs, func(in model.Standard) bool { return in.Name == left[0] })]
	column, rule := c.Name, first.Rule
	if c.Input.Name != "" {
		column += "=" + c.Input.Name
	}
	if first.Mean != nil && first.Deviation != nil {
		rule += fmt.Sprintf("=%v/%v", *first.Mean, *first.Deviation)
	}
	return fault.Usagef("--dense %s: %s has no dense input of these names, but %q: if the column is %q, write %s; if it is new, give its rule, as in %s",
		sweep.ShellWord(column), e.of, left, first.Name, sweep.ShellWord(column+":"+rule), sweep.ShellWord(column+":"+dense.None))
}

// adoptInput completes the dense input of a column with an earlier one. missing is what replaces
// missing numbers, as in ingest.Dense.
func (e *earlierInputs) adoptInput(c *ingest.DenseColumn, earlier *model.Standard, missing string) error {
	name := cmp.Or(c.Input.Name, c.Name)
	if c.Input.Rule = cmp.Or(c.Input.Rule, earlier.Rule); c.Input.Rule != earlier.Rule {
		return fault.Usagef("the dense input %q has the rule %s, but %q in %s has %s: give that rule, or leave the rule out", name, c.Input.Rule, earlier.Name, e.of, earlier.Rule)
	}
	if own := &c.Input; !own.Measured() {
		own.Mean, own.Deviation = earlier.Mean, earlier.Deviation
	} else if own.Rule == dense.ZScore && earlier.Mean != nil && earlier.Deviation != nil && (*own.Mean != *earlier.Mean || *own.Deviation != *earlier.Deviation) {
		return fault.Usagef("the dense input %q has the rule zscore=%v/%v, but %q in %s has zscore=%v/%v: leave the numbers out", name, *own.Mean, *own.Deviation, earlier.Name, e.of, *earlier.Mean, *earlier.Deviation)
	}
	switch {
	case c.Input.Missing != nil:
	case missing == "" || missing == ingest.MissingMean && earlier.Missing != nil:
		c.Input.Missing = earlier.Missing
	case missing == ingest.MissingMean && earlier.Mean != nil: // no number was missing, so it is that of all rows of train
		c.Input.Missing = earlier.Mean
	case missing == ingest.MissingMean:
		return fault.Usagef("--dense-missing %s: %s does not record the mean of %q: leave --dense-missing out if no number is missing, or give a number", missing, e.of, earlier.Name)
	}
	return nil
}

// adoptModel completes the dense inputs of an import with those that the model k knows. It returns an error if the model reads
// one that the import does not make.
func adoptModel(k *model.Known, numbers *ingest.Dense) error {
	if err := (&earlierInputs{k.File, k.Standards}).adopt(numbers, false); err != nil {
		return err
	}
	for _, name := range k.Dense {
		if i := slices.IndexFunc(numbers.Columns, func(c ingest.DenseColumn) bool { return c.Input.Name == name+"[0]" }); i >= 0 {
			return fault.Usagef("the model reads the dense input %q, which is one column, so it has no [0]: write %s (--dense)", name, sweep.ShellWord(numbers.Columns[i].Name+"="+name))
		}
		if !slices.ContainsFunc(numbers.Columns, func(c ingest.DenseColumn) bool { return cmp.Or(c.Input.Name, c.Name) == name }) {
			return fault.Usagef("the model reads the dense input %q: name its column, as in %s (--dense)", name, sweep.ShellWord("COLUMN="+name))
		}
	}
	return nil
}

// denseTable prints the dense inputs of a dataset.
func denseTable(w io.Writer, facts *dataset.Inspection) {
	if len(facts.Dense) == 0 {
		return
	}
	fmt.Fprintln(w, "\nDENSE\tRULE\tMIN\tMEAN\tMAX\tMISSING")
	for _, in := range facts.Dense {
		rule := in.Rule
		if in.Rule == dense.ZScore {
			rule = fmt.Sprintf("%s %.6g/%.6g", in.Rule, *in.Mean, *in.Deviation)
		}
		missing := "-"
		if in.Missing != nil {
			missing = fmt.Sprintf("%.2f%% as %.6g", 100*float64(in.Filled)/float64(facts.Rows), *in.Missing)
		}
		fmt.Fprintf(w, "%s\t%s\t%.6g\t%.6g\t%.6g\t%s\n", cli.Printable(in.Name), rule, in.Values.Min, in.Values.Mean, in.Values.Max, missing)
	}
	fmt.Fprintln(w, "\nMIN, MEAN and MAX are those of the numbers before the rule.")
}

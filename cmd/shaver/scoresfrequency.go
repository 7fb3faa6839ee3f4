package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/base/fault"
	"shaver/internal/num/layout"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/sweep"
	"shaver/internal/prune/worth"
	"shaver/internal/value/mask"
)

// frequencyView is what "scores frequency" prints.
type frequencyView struct {
	Aggregate string           `json:"aggregate"`
	Sparsity  float64          `json:"sparsity"`
	Rows      int64            `json:"rows"` // rows in which occurrences are counted
	Dim       int              `json:"dim"`  // entries of each feature; 0 if features differ
	All       []mask.Bin       `json:"all"`  // bins of the features of all fields together
	Fields    []fieldFrequency `json:"fields"`
}

// fieldFrequency has the facts about one field.
type fieldFrequency struct {
	Name   string          `json:"name"`
	Bins   []mask.Bin      `json:"bins"` // rarest features first
	Top    []worth.Feature `json:"top"`  // most valuable first
	Bottom []worth.Feature `json:"bottom"`
}

type frequencyOptions struct {
	model, scores, aggregate, rank string
	dataset                        []string
	sparsity                       float64
	bins, top                      int
	output                         cli.Output
}

func scoresFrequencyCommand() *cobra.Command {
	var o frequencyOptions
	c := &cobra.Command{
		Use:   "frequency FILE",
		Short: "Compare how much pruning keeps of frequent and rare features",
		Long:  help.Text("scores-frequency"),
		Example: `  shaver scores frequency scores.arrow --model model.pth --dataset data \
      --sparsity 0.9`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: cli.Run(func(c *cobra.Command, args []string) error {
			o.scores = args[0]
			v, err := o.view()
			if err != nil {
				return err
			}
			return o.output.Print(c.OutOrStdout(), v, v.table)
		}, o.output.Check),
	}
	f := c.Flags()
	flags.Model(c, &o.model, "checkpoint `file` that was scored")
	flags.Dataset(c, &o.dataset, "dataset `folder` that was scored, for the names of features")
	f.Float64Var(&o.sparsity, "sparsity", .5, "`portion` of the entries to drop")
	f.IntVar(&o.bins, "bins", 3, "`number` of bins for each field")
	f.IntVar(&o.top, "top", 3, "`number` of the most and of the least valuable features to print for each field")
	flags.Aggregate(c, &o.aggregate, &o.rank)
	o.output.Flag(c)
	cli.MarkRequired(c, "model")
	return c
}

func (o *frequencyOptions) view() (*frequencyView, error) {
	if o.bins < 1 || o.top < 0 {
		return nil, fault.Usagef("--bins %d, --top %d: expected at least 1 bin and 0 features", o.bins, o.top)
	}
	p, err := cut.Open(o.model, "", o.scores)
	if err != nil {
		return nil, err
	}
	if err := p.Scores[0].CheckValues(o.scores, "shaver scores frequency"); err != nil {
		return nil, err
	}
	a, s := &p.Checkpoint.Architecture, p.Scores[0]
	drop, err := layout.Dropped(a.Prunable(), o.sparsity)
	if err != nil {
		return nil, fault.Usagef("--sparsity: %w", err)
	}
	order, err := sweep.Order(s, o.aggregate, o.rank, p.Table)
	if err != nil {
		return nil, err
	}
	_, most := mask.PadsLast(&s.Layout, order)
	dropped := mask.Of(order, min(drop, most))
	values, err := s.Aggregate(o.aggregate)
	if err != nil {
		return nil, fault.Usagef("--aggregate: %w", err)
	}
	d, err := worth.OpenScored(p, o.dataset)
	if err != nil {
		return nil, err
	}
	name, err := worth.Names(d)
	if err != nil {
		return nil, err
	}
	ranked := worth.Ranked(p, values, name, dropped)
	v := &frequencyView{Aggregate: o.aggregate, Sparsity: o.sparsity, Rows: s.Rows}
	if entries := a.FeatureEntries(); slices.Min(entries) == slices.Max(entries) {
		v.Dim = entries[0]
	}
	v.All = mask.AllBins(a, s.Count, dropped, o.bins)
	for j, bins := range mask.Bins(a, s.Count, dropped, o.bins) {
		top, bottom := worth.Ends(ranked[j], o.top)
		v.Fields = append(v.Fields, fieldFrequency{s.Fields[j], bins, top, bottom})
	}
	return v, nil
}

func (v *frequencyView) table(w io.Writer) {
	kept := "KEPT"
	if v.Dim > 0 {
		kept = fmt.Sprintf("KEPT OF %d", v.Dim)
	}
	fmt.Fprintf(w, "FIELD\tFEATURES\tOCCURRENCES\t%s\n", kept)
	lines := func(name string, bins []mask.Bin) {
		for _, b := range bins {
			fmt.Fprintf(w, "%s\t%d\t%d to %d\t%.2f\n", name, b.Features, b.Least, b.Most, b.Mean)
		}
	}
	lines("(all)", v.All)
	for _, f := range v.Fields {
		lines(cli.Printable(f.Name), f.Bins)
	}
	if !slices.ContainsFunc(v.Fields, func(f fieldFrequency) bool { return len(f.Top) > 0 }) {
		return // --top 0
	}
	fmt.Fprintln(w, "\nFIELD\tFEATURE\tOCCURRENCES\tWORTH\tKEPT")
	for _, f := range v.Fields {
		for _, list := range [][]worth.Feature{f.Top, f.Bottom} {
			for _, x := range list {
				name := strconv.Itoa(x.ID)
				if x.Name != "" {
					name = strconv.Quote(x.Name)
				}
				fmt.Fprintf(w, "%s\t%s\t%d\t%+.3g\t%d\n", cli.Printable(f.Name), name, x.Count, x.Worth, x.Kept)
			}
		}
	}
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/sweep"
	"shaver/internal/sparsity"
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
	Name   string         `json:"name"`
	Bins   []mask.Bin     `json:"bins"` // rarest features first
	Top    []featureValue `json:"top"`  // most valuable first
	Bottom []featureValue `json:"bottom"`
}

// featureValue has the facts about a feature that occurs.
type featureValue struct {
	ID    int     `json:"id"`              // within its field
	Name  string  `json:"value,omitempty"` // from the vocabulary, if there is one
	Count int64   `json:"count"`           // number of rows
	Worth float64 `json:"worth"`           // sum of the aggregate over its entries, nat
	Kept  int     `json:"kept"`            // number of kept entries
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
		Long:  help("scores-frequency"),
		Example: `  shaver scores frequency scores.arrow --model model.pth --dataset data \
      --sparsity 0.9`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			o.scores = args[0]
			if err := cli.Required(c); err != nil {
				return err
			}
			if err := o.output.Check(); err != nil {
				return err
			}
			v, err := o.view()
			if err != nil {
				return err
			}
			return o.output.Print(c.OutOrStdout(), v, v.table)
		},
	}
	f := c.Flags()
	modelFlag(c, &o.model, "checkpoint `file` that was scored")
	datasetFlag(c, &o.dataset, "dataset `folder` that was scored, for the names of features")
	f.Float64Var(&o.sparsity, "sparsity", .5, "`portion` of the entries to drop")
	f.IntVar(&o.bins, "bins", 3, "`number` of bins for each field")
	f.IntVar(&o.top, "top", 3, "`number` of the most and of the least valuable features to print for each field")
	aggregateFlag(c, &o.aggregate)
	rankFlag(c, &o.rank)
	o.output.Flag(c)
	cli.MarkRequired(c, "model")
	return c
}

func (o *frequencyOptions) view() (*frequencyView, error) {
	if o.bins < 1 || o.top < 0 {
		return nil, fault.Usagef("--bins %d, --top %d: expected at least 1 bin and 0 features", o.bins, o.top)
	}
	p, err := openPruner(o.model, "", o.scores)
	if err != nil {
		return nil, err
	}
	if err := p.scores[0].CheckValues(o.scores, "shaver scores frequency"); err != nil {
		return nil, err
	}
	a, s := &p.checkpoint.Architecture, p.scores[0]
	drop, err := sparsity.Dropped(a.Parameters(), o.sparsity)
	if err != nil {
		return nil, fault.Usagef("--sparsity: %w", err)
	}
	order, err := sweep.Order(s, o.aggregate, o.rank, p.table)
	if err != nil {
		return nil, err
	}
	_, most := mask.PadsLast(&s.Layout, order)
	dropped := mask.Of(order, min(drop, most))
	ranked, err := p.ranked(o.aggregate, o.dataset, dropped)
	if err != nil {
		return nil, err
	}
	v := &frequencyView{Aggregate: o.aggregate, Sparsity: o.sparsity, Rows: s.Rows}
	if entries := a.FeatureEntries(); slices.Min(entries) == slices.Max(entries) {
		v.Dim = entries[0]
	}
	v.All = mask.AllBins(a, s.Count, dropped, o.bins)
	for j, bins := range mask.Bins(a, s.Count, dropped, o.bins) {
		top, bottom := ends(ranked[j], o.top)
		v.Fields = append(v.Fields, fieldFrequency{s.Fields[j], bins, top, bottom})
	}
	return v, nil
}

// ranked returns the features of each field that occur, most valuable first, by an
// aggregate of the first scores. Their names come from the vocabulary of the dataset in
// the folders; without folders they have no names. dropped says which entries are dropped.
func (p *pruner) ranked(aggregate string, folders []string, dropped []bool) ([][]featureValue, error) {
	a, s := &p.checkpoint.Architecture, p.scores[0]
	values, err := s.Aggregate(aggregate)
	if err != nil {
		return nil, fault.Usagef("--aggregate: %w", err)
	}
	name, err := p.names(folders)
	if err != nil {
		return nil, err
	}
	all := make([][]featureValue, len(a.FieldDims)) // by field and id
	for _, span := range a.Spans() {
		if all[span.Field] == nil {
			all[span.Field] = make([]featureValue, span.Rows)
		}
		for id := range span.Rows {
			f := &all[span.Field][id]
			f.ID, f.Count = id, s.Count[span.Row+id]
			from := span.Entry + id*span.Dim
			for i := from; i < from+span.Dim; i++ {
				f.Worth += values[i]
				if !dropped[i] {
					f.Kept++
				}
			}
		}
	}
	for j, features := range all {
		features = slices.DeleteFunc(features, func(f featureValue) bool { return f.Count == 0 })
		for i := range features {
			features[i].Name = name(j, features[i].ID)
		}
		slices.SortFunc(features, func(x, y featureValue) int { return cmp.Or(-cmp.Compare(x.Worth, y.Worth), cmp.Compare(x.ID, y.ID)) })
		all[j] = features
	}
	return all, nil
}

// ends returns at most n features from each end of the list. No feature is in both.
func ends(ranked []featureValue, n int) (top, bottom []featureValue) {
	n = min(n, len(ranked))
	return append([]featureValue{}, ranked[:n]...), append([]featureValue{}, ranked[max(n, len(ranked)-n):]...)
}

// openScored opens the dataset in the folders. A single folder is a window of one day if the
// scores are those of such a window.
func openScored(folders []string, s *scores.File) (*dataset.Dataset, error) {
	d, err := dataset.OpenAll(folders)
	if err != nil || len(folders) > 1 || d.Digest() == s.Spec.Dataset {
		return d, err
	}
	if window, err := dataset.OpenDays(folders); err == nil && window.Digest() == s.Spec.Dataset {
		return window, nil
	}
	return d, nil
}

// names returns a function that names the values of fields by the vocabulary of the
// dataset in the folders. It returns "" for a value without a name, and for every value
// if there are no folders.
func (p *pruner) names(folders []string) (func(field, id int) string, error) {
	if len(folders) == 0 {
		return func(int, int) string { return "" }, nil
	}
	d, err := openScored(folders, p.scores[0])
	if err != nil {
		return nil, err
	}
	if err := d.CheckModel(&p.checkpoint.Architecture); err != nil {
		return nil, err
	}
	if err := p.scores[0].CheckDataset(d.Digest()); err != nil {
		return nil, fmt.Errorf("%s: %w", joined(folders), err)
	}
	vocabulary := make([][]string, p.checkpoint.Architecture.Fields())
	for j := range vocabulary {
		if vocabulary[j], err = d.Vocabulary(j); err != nil {
			return nil, err
		}
	}
	return func(field, id int) string {
		switch words := vocabulary[field]; {
		case words == nil:
			return ""
		case id == d.Manifest.Fields[field].OOVID():
			return "(other)"
		case id < len(words):
			return words[id]
		}
		return ""
	}, nil
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
		for _, list := range [][]featureValue{f.Top, f.Bottom} {
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

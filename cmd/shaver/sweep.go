package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/cli"
	"shaver/internal/dataset"
	"shaver/internal/evaluate"
	"shaver/internal/fault"
	"shaver/internal/model"
	"shaver/internal/prune"
	"shaver/internal/scores"
)

// point is one line of a sweep: a method at a sparsity.
type point struct {
	Method     string   `json:"method"`
	Sparsity   float64  `json:"sparsity"`
	Parameters int      `json:"parameters"` // kept, and the codebook's if there is one
	AUC        *float64 `json:"auc"`        // null if all labels are the same
	LogLoss    float64  `json:"log_loss"`
	// ValidationAUC is what the method was chosen for, if it was.
	ValidationAUC *float64 `json:"validation_auc,omitempty"`
}

// The methods that a sweep compares.
const (
	shapleyMethod   = "shapley"   // by the scores; with the aggregate behind it, if that is not their sum
	magnitudeMethod = "magnitude" // by |weight| (MagPrune)
)

// candidate is a method, and the order in which it drops the entries.
type candidate struct {
	method string
	order  []int32
}

type sweepOptions struct {
	model, scores, dataset, split, rank string
	aggregates                          []string
	sparsities                          []float64
	choose                              bool
	output                              cli.Output
}

func sweepCommand() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use:   "sweep",
		Short: "Prune to several sparsities and measure each, beside pruning by magnitude",
		Long: `Prune to several sparsities, by several methods, and measure each on --split.

With --select the methods are measured on the validation split, and only the one
that has the highest AUC there is measured on --split, at each sparsity. (LogLoss
can be repaired by calibrating the logits again; AUC cannot.) Use scores of the
training split alone: those of validation rows know their labels.

` + cli.ExitHelp,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c, "model", "scores", "dataset"); err != nil {
				return err
			}
			if err := o.output.Check(); err != nil {
				return err
			}
			if !c.Flags().Changed("aggregate") && o.choose && o.rank == prune.Abs {
				o.aggregates = scores.Aggregates()
			}
			points, err := o.sweep(c.Context())
			if err != nil {
				return err
			}
			return o.output.Print(c.OutOrStdout(), points, func(w io.Writer) { sweepTable(w, points) })
		},
	}
	f := c.Flags()
	f.StringVar(&o.model, "model", "", "the checkpoint that was scored")
	f.StringVar(&o.scores, "scores", "", "its scores")
	f.StringVar(&o.dataset, "dataset", "", "dataset folder")
	f.StringVar(&o.split, "split", dataset.Test, "split to measure on")
	f.Float64SliceVar(&o.sparsities, "sparsities", []float64{0, .5, .8, .9, .95, .99}, "portions of the entries to drop")
	f.StringVar(&o.rank, "rank", prune.Abs, rankHelp())
	f.StringSliceVar(&o.aggregates, "aggregate", []string{scores.Sum}, "aggregates of the scores to compare: "+strings.Join(scores.Aggregates(), ", ")+"; with --select all, unless given")
	f.BoolVar(&o.choose, "select", false, "at each sparsity, measure only the method that is best on the validation split")
	o.output.Flag(c)
	return c
}

// sweep measures every method at every sparsity, or with choose the one that is
// best on the validation split.
func (o *sweepOptions) sweep(ctx context.Context) ([]point, error) {
	p, err := openPruner(o.model, o.scores)
	if err != nil {
		return nil, err
	}
	m, err := p.checkpoint.Model()
	if err != nil {
		return nil, err
	}
	b, err := openBench(o.dataset, o.split, m)
	if err != nil {
		return nil, err
	}
	candidates, err := o.candidates(p)
	if err != nil {
		return nil, err
	}
	work := b.rows * int64(len(candidates))
	var validation *bench
	if o.choose {
		if validation, err = o.validation(p, m); err != nil {
			return nil, err
		}
		work = b.rows + validation.rows*int64(len(candidates))
	}
	progress := cli.NewProgress("sweep", "rows", work*int64(len(o.sparsities)))
	defer progress.End()
	var points []point
	for _, sparsity := range o.sparsities {
		drop, err := prune.Dropped(m.Parameters(), sparsity)
		if err != nil {
			return nil, fault.Usagef("--sparsities: %w", err)
		}
		measure := func(on *bench, c candidate) (evaluate.Metrics, error) {
			table := prune.Table(&m.Architecture, p.table, prune.Mask(c.order, drop), p.scores.Baseline)
			return on.measure(ctx, m.WithEmbedding(table), progress)
		}
		measured := candidates
		var best *float64
		if o.choose {
			chosen, auc, err := choose(candidates, func(c candidate) (evaluate.Metrics, error) { return measure(validation, c) })
			if err != nil {
				return nil, err
			}
			measured, best = []candidate{chosen}, &auc
		}
		for _, c := range measured {
			metrics, err := measure(b, c)
			if err != nil {
				return nil, err
			}
			points = append(points, point{c.method, sparsity, prune.Parameters(&m.Architecture, drop, p.scores.Spec.Baseline), defined(metrics.AUC), metrics.LogLoss, best})
		}
	}
	return points, nil
}

// validation opens the split to choose on.
func (o *sweepOptions) validation(p *pruner, m *model.Model) (*bench, error) {
	if o.split == dataset.Val {
		return nil, fault.Usagef("--select chooses on the split %s: --split %s would measure what it was chosen for", dataset.Val, o.split)
	}
	if slices.Contains(p.scores.Spec.Splits, dataset.Val) {
		log, err := cli.Logger("text", false)
		if err != nil {
			return nil, err
		}
		log.Warn("the scores know the labels of the validation rows, which flatters the aggregate sum: to select, score with --splits train")
	}
	return openBench(o.dataset, dataset.Val, m)
}

// candidates returns the methods to compare.
func (o *sweepOptions) candidates(p *pruner) ([]candidate, error) {
	var all []candidate
	for _, aggregate := range o.aggregates {
		order, err := p.order(aggregate, o.rank)
		if err != nil {
			return nil, err
		}
		method := shapleyMethod
		if aggregate != scores.Sum {
			method += "-" + aggregate
		}
		all = append(all, candidate{method, order})
	}
	order, err := prune.Order(prune.Abs, prune.Magnitude(p.table), p.table)
	return append(all, candidate{magnitudeMethod, order}), err
}

// choose returns the candidate with the highest AUC, the first of several.
func choose(candidates []candidate, measure func(candidate) (evaluate.Metrics, error)) (best candidate, auc float64, err error) {
	auc = math.Inf(-1)
	for _, c := range candidates {
		metrics, err := measure(c)
		if err != nil {
			return best, 0, err
		}
		if math.IsNaN(metrics.AUC) {
			return best, 0, fault.Inputf("all labels of the split %s are the same: there is no AUC to choose by", dataset.Val)
		}
		if metrics.AUC > auc {
			best, auc = c, metrics.AUC
		}
	}
	return best, auc, nil
}

func sweepTable(w io.Writer, points []point) {
	header := "SPARSITY\tPARAMETERS\tMETHOD\tAUC\tLOGLOSS"
	if len(points) > 0 && points[0].ValidationAUC != nil {
		header += "\tVALIDATION AUC"
	}
	fmt.Fprintln(w, header)
	for _, p := range points {
		auc, chosen := "-", ""
		if p.AUC != nil {
			auc = fmt.Sprintf("%.4f", *p.AUC)
		}
		if p.ValidationAUC != nil {
			chosen = fmt.Sprintf("\t%.4f", *p.ValidationAUC)
		}
		fmt.Fprintf(w, "%g\t%d\t%s\t%s\t%.4f%s\n", p.Sparsity, p.Parameters, p.Method, auc, p.LogLoss, chosen)
	}
}

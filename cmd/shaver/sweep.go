package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/cli"
	"shaver/internal/dataset"
	"shaver/internal/fault"
	"shaver/internal/prune"
)

// point is one line of a sweep: a method at a sparsity.
type point struct {
	Method     string   `json:"method"`
	Sparsity   float64  `json:"sparsity"`
	Parameters int      `json:"parameters"` // kept, and the codebook's if there is one
	AUC        *float64 `json:"auc"`        // null if all labels are the same
	LogLoss    float64  `json:"log_loss"`
}

// The methods that a sweep compares.
const (
	shapleyMethod   = "shapley"   // by the scores
	magnitudeMethod = "magnitude" // by |weight| (MagPrune)
)

type sweepOptions struct {
	model, scores, dataset, split, rank string
	sparsities                          []float64
	output                              cli.Output
}

func sweepCommand() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use:   "sweep",
		Short: "Prune to several sparsities and measure each, beside pruning by magnitude",
		Args:  cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c, "model", "scores", "dataset"); err != nil {
				return err
			}
			if err := o.output.Check(); err != nil {
				return err
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
	f.StringVar(&o.rank, "rank", prune.Abs, "order of the scores: "+strings.Join(prune.Ranks(), " or "))
	o.output.Flag(c)
	return c
}

// sweep measures every method at every sparsity.
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
	orders := map[string][]int32{}
	if orders[shapleyMethod], err = prune.Order(o.rank, p.scores.Phi, p.table); err != nil {
		return nil, fault.Usagef("%w", err)
	}
	if orders[magnitudeMethod], err = prune.Order(prune.Abs, prune.Magnitude(p.table), p.table); err != nil {
		return nil, err
	}
	methods := []string{shapleyMethod, magnitudeMethod}
	progress := cli.NewProgress("sweep", "rows", b.rows*int64(len(o.sparsities)*len(methods)))
	defer progress.End()
	var points []point
	for _, sparsity := range o.sparsities {
		drop, err := prune.Dropped(m.Parameters(), sparsity)
		if err != nil {
			return nil, fault.Usagef("--sparsities: %w", err)
		}
		for _, method := range methods {
			table := prune.Table(&m.Architecture, p.table, prune.Mask(orders[method], drop), p.scores.Baseline)
			metrics, err := b.measure(ctx, m.WithEmbedding(table), progress)
			if err != nil {
				return nil, err
			}
			points = append(points, point{method, sparsity, prune.Parameters(&m.Architecture, drop, p.scores.Spec.Baseline), defined(metrics.AUC), metrics.LogLoss})
		}
	}
	return points, nil
}

func sweepTable(w io.Writer, points []point) {
	fmt.Fprintln(w, "SPARSITY\tPARAMETERS\tMETHOD\tAUC\tLOGLOSS")
	for _, p := range points {
		auc := "-"
		if p.AUC != nil {
			auc = fmt.Sprintf("%.4f", *p.AUC)
		}
		fmt.Fprintf(w, "%g\t%d\t%s\t%s\t%.4f\n", p.Sparsity, p.Parameters, p.Method, auc, p.LogLoss)
	}
}

package main

import (
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/fault"
	"shaver/internal/prune"
	"shaver/internal/scores"
)

type pruneOptions struct {
	model, scores, out, aggregate, rank string
	sparsity                            float64
	parameters                          int
	bytes                               int64
	form                                formOptions
	output                              cli.Output
}

// pruning is what "prune" prints.
type pruning struct {
	Out        string  `json:"out"`
	Baseline   string  `json:"baseline"`
	Aggregate  string  `json:"aggregate"`
	Rank       string  `json:"rank"`
	Sparsity   float64 `json:"sparsity"` // dropped / entries
	Entries    int     `json:"entries"`
	Dropped    int     `json:"dropped"`
	Kept       int     `json:"kept"`
	Parameters int     `json:"parameters"` // kept, and the codebook's if there is one
	Bytes      int64   `json:"bytes"`
	DenseBytes int64   `json:"dense_bytes"` // of the unpruned model as safetensors
}

func pruneCommand() *cobra.Command {
	var o pruneOptions
	c := &cobra.Command{
		Use:   "prune",
		Short: "Drop the least valuable entries of a model's embedding table, down to a budget",
		Long: `Drop the entries of --model whose --scores are least, down to one budget:
--sparsity (portion of entries to drop), --parameters (to keep, the codebook
counted) or --bytes (of the file). Dropped entries read what they read in the
scores' job: zero, or the field's codebook value.

The file is compact: what is kept, and where; --values says in how many bits.
With --dense it is an ordinary state dict under the original keys, which
load_state_dict takes.

` + cli.ExitHelp,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c, "model", "scores", "out"); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	f.StringVar(&o.model, "model", "", "the checkpoint that was scored")
	f.StringVar(&o.scores, "scores", "", "its scores")
	f.StringVar(&o.out, "out", "", "file to write, safetensors")
	f.Float64Var(&o.sparsity, "sparsity", 0, "budget: portion of the entries to drop")
	f.IntVar(&o.parameters, "parameters", 0, "budget: parameters to keep")
	f.Int64Var(&o.bytes, "bytes", 0, "budget: bytes of the compact file")
	f.StringVar(&o.aggregate, "aggregate", scores.Sum, "what of the scores to rank by: "+strings.Join(scores.Aggregates(), ", "))
	f.StringVar(&o.rank, "rank", prune.Abs, rankHelp())
	o.form.flags(c)
	o.output.Flag(c)
	return c
}

func (o *pruneOptions) run(c *cobra.Command) error {
	budgets := 0
	for _, name := range []string{"sparsity", "parameters", "bytes"} {
		if c.Flags().Changed(name) {
			budgets++
		}
	}
	if budgets != 1 {
		return fault.Usagef("shaver prune needs one of --sparsity, --parameters and --bytes")
	}
	if err := o.form.check(c); err != nil {
		return err
	}
	if o.form.dense && c.Flags().Changed("bytes") {
		return fault.Usagef("--bytes is a budget of the compact file: a dense one is as large as the model")
	}
	if err := o.output.Check(); err != nil {
		return err
	}
	p, err := openPruner(o.model, o.scores)
	if err != nil {
		return err
	}
	order, err := p.order(o.aggregate, o.rank)
	if err != nil {
		return err
	}
	drop, err := o.budget(c, p, order)
	if err != nil {
		return err
	}
	mask := prune.Mask(order, drop)
	a := &p.checkpoint.Architecture
	result := pruning{
		Out: o.out, Baseline: p.scores.Spec.Baseline, Aggregate: o.aggregate, Rank: o.rank, Sparsity: float64(drop) / float64(a.Parameters()),
		Entries: a.Parameters(), Dropped: drop, Kept: a.Parameters() - drop,
		Parameters: prune.Parameters(a, drop, p.scores.Spec.Baseline), DenseBytes: p.checkpoint.DenseSize(),
	}
	if o.form.dense {
		result.Bytes, err = checkpoint.WriteDense(o.out, p.checkpoint.WithEmbedding(prune.Table(a, p.table, mask, p.scores.Baseline)))
	} else {
		result.Bytes, err = checkpoint.WriteCompact(o.out, p.checkpoint, mask, p.scores.Baseline, o.form.stored())
	}
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), result, func(w io.Writer) {
		fmt.Fprintf(w, "pruned\t%s\n", result.Out)
		fmt.Fprintf(w, "dropped\t%d of %d\tentries read %s\n", result.Dropped, result.Entries, result.Baseline)
		fmt.Fprintf(w, "parameters\t%d\n", result.Parameters)
		fmt.Fprintf(w, "bytes\t%d\t%.1f%% of the dense model\n", result.Bytes, 100*float64(result.Bytes)/float64(result.DenseBytes))
	})
}

// budget returns how many entries to drop, the first ones of order.
func (o *pruneOptions) budget(c *cobra.Command, p *pruner, order []int32) (int, error) {
	a := &p.checkpoint.Architecture
	entries := a.Parameters()
	switch {
	case c.Flags().Changed("parameters"):
		least := prune.Parameters(a, entries, p.scores.Spec.Baseline)
		if o.parameters < least {
			return 0, fault.Usagef("--parameters %d: the codebook alone has %d", o.parameters, least)
		}
		return max(0, entries-(o.parameters-least)), nil
	case c.Flags().Changed("bytes"):
		size := func(drop int) int64 { return p.checkpoint.CompactSize(prune.Mask(order, drop), o.form.stored()) }
		if size(0) <= o.bytes { // a table that keeps everything may be smaller than one that drops little
			return 0, nil
		}
		drop := sort.Search(entries+1, func(drop int) bool { return size(drop) <= o.bytes })
		if drop > entries {
			return 0, fault.Usagef("--bytes %d: the model without any embedding entry takes %d", o.bytes, size(entries))
		}
		return drop, nil
	}
	drop, err := prune.Dropped(entries, o.sparsity)
	if err != nil {
		return 0, fault.Usagef("--sparsity: %w", err)
	}
	return drop, nil
}

// pruner is a model and the scores that were computed for it.
type pruner struct {
	checkpoint *checkpoint.Checkpoint
	scores     *scores.File
	table      []float32 // [n, d]
}

func rankHelp() string {
	return "order of the sums: " + strings.Join(prune.Ranks(), " or ") + ", by size or by value"
}

// order returns the entries, least worth first, by the aggregate of their scores.
func (p *pruner) order(aggregate, rank string) ([]int32, error) {
	if rank == prune.Signed && aggregate != scores.Sum {
		return nil, fault.Usagef("--rank %s is of --aggregate %s: %s has no signs", rank, scores.Sum, aggregate)
	}
	values, err := p.scores.Aggregate(aggregate)
	if err != nil {
		return nil, fault.Usagef("--aggregate: %w", err)
	}
	order, err := prune.Order(rank, values, p.table)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	return order, nil
}

// openPruner reads both and checks that they belong together.
func openPruner(modelFile, scoresFile string) (*pruner, error) {
	ck, err := checkpoint.Read(modelFile)
	if err != nil {
		return nil, err
	}
	s, err := scores.Read(scoresFile)
	if err != nil {
		return nil, err
	}
	if err := s.CheckModel(&ck.Architecture, ck.Digest()); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", scoresFile, modelFile, err)
	}
	table, err := ck.Embedding()
	if err != nil {
		return nil, err
	}
	return &pruner{ck, s, table}, nil
}

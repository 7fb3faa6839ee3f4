package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/dataset"
	"shaver/internal/evaluate"
	"shaver/internal/fault"
	"shaver/internal/model"
	"shaver/internal/scores"
)

// evaluation is what "evaluate" prints.
type evaluation struct {
	Split   string   `json:"split"`
	Rows    int64    `json:"rows"`
	AUC     *float64 `json:"auc"` // null if all labels are the same
	LogLoss float64  `json:"log_loss"`
}

func evaluateCommand() *cobra.Command {
	var modelFile, dir, split string
	var out cli.Output
	c := &cobra.Command{
		Use:   "evaluate",
		Short: "Measure the LogLoss and AUC of a model",
		Long: `Measure the LogLoss and the AUC of a model, pruned or not, on a split of a
dataset.`,
		Example: `  shaver evaluate --model model.pth --dataset data
  shaver evaluate --model pruned.safetensors --dataset data --split val`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			if err := out.Check(); err != nil {
				return err
			}
			_, m, err := readModel(modelFile)
			if err != nil {
				return err
			}
			bench, err := openBench(dir, split, m)
			if err != nil {
				return err
			}
			progress := cli.NewProgress("evaluate", "rows", bench.rows)
			predictions, err := bench.predict(c.Context(), m, progress)
			progress.End()
			if err != nil {
				return err
			}
			metrics := predictions.Metrics()
			e := evaluation{split, metrics.Rows, scores.Figure(metrics.AUC), metrics.LogLoss}
			return out.Print(c.OutOrStdout(), e, func(w io.Writer) {
				fmt.Fprintf(w, "%s\t%d rows\nAUC\t%.6f\nLogLoss\t%.6f\n", e.Split, e.Rows, metrics.AUC, e.LogLoss)
			})
		},
	}
	modelFlag(c, &modelFile, "checkpoint or pruned model `file`")
	datasetFlag(c, &dir, "dataset `folder`")
	splitFlag(c, &split)
	out.Flag(c)
	cli.MarkRequired(c, "model", "dataset")
	return c
}

// readModel reads a checkpoint and builds its model.
func readModel(path string) (*checkpoint.Checkpoint, *model.Model, error) {
	ck, err := checkpoint.Read(path)
	if err != nil {
		return nil, nil, err
	}
	m, err := ck.Model()
	return ck, m, err
}

// bench measures models on one split of a dataset.
type bench struct {
	dataset *dataset.Dataset
	split   string
	rows    int64
}

// openBench opens a split for measuring m and other models with the same fields.
func openBench(dir, split string, m *model.Model) (*bench, error) {
	d, err := dataset.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := d.CheckModel(&m.Architecture); err != nil {
		return nil, err
	}
	rows := d.Rows(split)
	if rows == 0 {
		return nil, fault.Inputf("dataset %s has no split %q: it has %v", dir, split, d.SplitNames())
	}
	return &bench{d, split, rows}, nil
}

// predict predicts the labels of the split on all cores and adds the rows to progress.
func (b *bench) predict(ctx context.Context, m *model.Model, progress *cli.Progress) (*evaluate.Predictions, error) {
	source := func(ctx context.Context, each func(*model.Rows) error) error {
		return b.dataset.Scan(ctx, []string{b.split}, 4096, func(rows *model.Rows) error {
			progress.Add(int64(rows.Len()))
			return each(rows)
		})
	}
	return evaluate.Predict(ctx, m, source, runtime.GOMAXPROCS(0))
}

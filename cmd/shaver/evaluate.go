package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/steps"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/sweep"
)

// evaluation is what "evaluate" prints.
type evaluation struct {
	Split string       `json:"split"`
	Rows  int64        `json:"rows"`
	Loss  loss.Kind    `json:"loss,omitempty"`  // squared; absent with the log loss
	Group *sweep.Group `json:"group,omitempty"` // absent without groups
	figures
	Against *rival `json:"against,omitempty"`
}

// figures are the metrics of a model.
type figures struct {
	sweep.Metrics
	R2 *float64 `json:"r2,omitempty"` // absent if all labels are the same, or with the log loss
	// Of groups; absent without any that has a row with label 1.
	NDCG   *float64 `json:"ndcg,omitempty"`
	Recall *float64 `json:"recall,omitempty"`
}

func figuresOf(of *evaluate.Ranking) figures {
	f := figures{Metrics: sweep.NewMetrics(of, nil)}
	if of.Loss == loss.Squared {
		f.R2 = scores.Figure(of.Metrics().R2)
	}
	if w := of.Within(); w != nil {
		f.NDCG, f.Recall = scores.Figure(w.NDCG), scores.Figure(w.Recall)
	}
	return f
}

// rival is another model with its metrics on the same rows. A difference is the value of
// the evaluated model minus that of the rival.
type rival struct {
	Model string `json:"model"` // path of its file
	figures
	AUCDifference     *sweep.Interval `json:"auc_difference"` // null if all labels are the same, or with the squared loss
	GAUCDifference    *sweep.Interval `json:"gauc_difference,omitempty"`
	NDCGDifference    *sweep.Interval `json:"ndcg_difference,omitempty"`
	RecallDifference  *sweep.Interval `json:"recall_difference,omitempty"`
	LogLossDifference *sweep.Interval `json:"log_loss_difference,omitempty"`
	RMSEDifference    *sweep.Interval `json:"rmse_difference,omitempty"`
}

type evaluateOptions struct {
	model, against, split, predictions string
	modelOutput, loss, group           string
	top                                int
	tasks, dataset                     []string
	outputs                            cli.Outputs
	output                             cli.Output
}

func evaluateCommand() *cobra.Command {
	var o evaluateOptions
	c := &cobra.Command{
		Use:   "evaluate",
		Short: "Measure the LogLoss and AUC, or the RMSE, of a model",
		Long:  help.Text("evaluate"),
		Example: `  shaver evaluate --model pruned.safetensors --against model.pth --dataset data
  shaver evaluate --model model.pth --dataset data --split val \
      --predictions predictions.parquet`,
		Args: cli.Args(cobra.NoArgs),
		RunE: cli.Run(o.run, o.output.Check),
	}
	flags.Model(c, &o.model, "checkpoint or pruned model `file`")
	flags.ModelOutput(c, &o.modelOutput)
	flags.Tasks(c, &o.tasks)
	flags.File(c, &o.against, "against", "model `file` to compare with (default none)", cli.Checkpoints...)
	flags.Dataset(c, &o.dataset, "dataset `folder`")
	flags.Split(c, &o.split)
	flags.Group(c, &o.group)
	c.Flags().IntVar(&o.top, "top", evaluate.DefaultTop, "`number` of rows at the top of a group by which its NDCG and recall are measured")
	flags.Loss(c, &o.loss)
	flags.File(c, &o.predictions, "predictions", "`file` for the predictions: "+strings.Join(measure.PredictionFormats, " or ")+" (default none)", "csv", "parquet")
	o.outputs.Flag(c, "a file at --predictions that shaver did not write")
	o.output.Flag(c)
	cli.MarkRequired(c, "model", "dataset")
	return c
}

func (o *evaluateOptions) run(c *cobra.Command, _ []string) error {
	switch {
	case o.top < 1:
		return fault.Refuse("top", o.top, "expected a whole number, at least 1")
	case o.group == "" && c.Flags().Changed("top"):
		return fault.Usagef("--top needs --group")
	}
	if c.Flags().Changed("predictions") {
		if !slices.Contains(measure.PredictionFormats, filepath.Ext(o.predictions)) {
			return fault.Usagef("%s: expected a file for predictions with extension %s", o.predictions, strings.Join(measure.PredictionFormats, " or "))
		}
		o.outputs.Inputs(checkpoint.Files(o.model)...)
		o.outputs.Inputs(dataset.Files(o.dataset...)...)
		if o.against != "" {
			o.outputs.Inputs(checkpoint.Files(o.against)...)
		}
		if err := o.outputs.Check("--predictions", o.predictions, cli.Unless(measure.IsPredictions, "a file of predictions")); err != nil {
			return err
		}
	}
	subjects, err := steps.OpenBoth(o.model, o.against, o.modelOutput, o.tasks, o.dataset, o.split, o.loss)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, s := range subjects {
		if err := s.Bench.GroupBy(c.Context(), o.group, o.top); err != nil {
			return err
		}
		total += s.Bench.Rows
	}
	progress := cli.NewProgress("evaluate", "rows", total)
	defer progress.End()
	var all []*evaluate.Predictions
	for _, s := range subjects {
		found, err := s.Bench.Predict(c.Context(), s.Model, func(rows int) { progress.Add(int64(rows)) })
		if err != nil {
			return err
		}
		all = append(all, found)
	}
	progress.End()
	for i, s := range subjects {
		cli.Note(s.Checkpoint.Known().Unknown())
		for _, text := range s.Doubts(all[i]) {
			cli.Warn([]string{o.model, o.against}[i] + text)
		}
	}
	if o.predictions != "" {
		d, err := dataset.OpenAll(o.dataset)
		if err != nil {
			return err
		}
		if rows := d.Rows(o.split); rows != subjects[0].Bench.Rows {
			return fault.Inputf("--predictions numbers the rows of the split, but %d of %d rows lack the label: import the rows that have it", rows-subjects[0].Bench.Rows, rows)
		}
		if err := measure.WritePredictions(o.predictions, all[0]); err != nil {
			return err
		}
	}
	own := evaluate.Rank(all[0])
	e := &evaluation{Split: o.split, Rows: subjects[0].Bench.Rows, Loss: own.Loss, Group: sweep.NewGroup(o.group, own), figures: figuresOf(own)}
	if o.against != "" {
		other := evaluate.Rank(all[1])
		d, within := sweep.DifferencesOf(other, own, nil), own.Minus(other)
		e.Against = &rival{Model: o.against, figures: figuresOf(other), AUCDifference: d.AUC, GAUCDifference: d.GAUC, LogLossDifference: d.LogLoss, RMSEDifference: d.RMSE}
		if e.Group != nil {
			e.Against.NDCGDifference, e.Against.RecallDifference = sweep.NewInterval(within.NDCG), sweep.NewInterval(within.Recall)
		}
	}
	return o.output.Print(c.OutOrStdout(), e, func(w io.Writer) { e.table(w, o.model, o.top) })
}

// table writes the metrics of the model in a file.
func (e *evaluation) table(w io.Writer, file string, top int) {
	fmt.Fprintf(w, "%s\t%d rows\n", e.Split, e.Rows)
	r := e.Against
	if r != nil {
		fmt.Fprintf(w, "\n\t%s\t%s\tDIFFERENCE\t95%% INTERVAL\n", file, r.Model)
	}
	line := func(name string, own *float64, other func(*rival) (*float64, *sweep.Interval)) {
		if r == nil {
			fmt.Fprintf(w, "%s\t%s\n", name, cli.Metric(own))
			return
		}
		value, difference := other(r)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, cli.Metric(own), cli.Metric(value), differenceText(difference))
	}
	if e.Loss == loss.Squared {
		line("RMSE", e.RMSE, func(r *rival) (*float64, *sweep.Interval) { return r.RMSE, r.RMSEDifference })
		line("MAE", e.MAE, func(r *rival) (*float64, *sweep.Interval) { return r.MAE, nil })
		line("R2", e.R2, func(r *rival) (*float64, *sweep.Interval) { return r.R2, nil })
		return
	}
	line("AUC", e.AUC, func(r *rival) (*float64, *sweep.Interval) { return r.AUC, r.AUCDifference })
	line("LogLoss", e.LogLoss, func(r *rival) (*float64, *sweep.Interval) { return r.LogLoss, r.LogLossDifference })
	if e.Group != nil {
		line("GAUC", e.GAUC, func(r *rival) (*float64, *sweep.Interval) { return r.GAUC, r.GAUCDifference })
		line(fmt.Sprintf("NDCG@%d", top), e.NDCG, func(r *rival) (*float64, *sweep.Interval) { return r.NDCG, r.NDCGDifference })
		line(fmt.Sprintf("recall@%d", top), e.Recall, func(r *rival) (*float64, *sweep.Interval) { return r.Recall, r.RecallDifference })
		fmt.Fprintf(w, "\n%s.\n", e.Group.Text())
	}
}

// differenceText returns a difference and its interval as two cells of a table.
func differenceText(d *sweep.Interval) string {
	switch {
	case d == nil:
		return "-\t-"
	case d.Low == nil || d.High == nil:
		return fmt.Sprintf("%+.6f\t-", d.Value)
	}
	text := fmt.Sprintf("%+.6f\t[%+.6f, %+.6f]", d.Value, *d.Low, *d.High)
	if !d.Differs() {
		text += ", may be chance"
	}
	return text
}

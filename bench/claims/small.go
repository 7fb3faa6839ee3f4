package main

import (
	"fmt"
	"os"
	"strconv"

	"shaver/bench/paired"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
)

// stored is what is measured of models in fewer bits and with fewer fields.
type stored struct {
	Int8, Auto   paired.Cell // the path at .95 with its values in these encodings, compared with float32
	Float32Bytes int64       // size of the file with float32
	Int8Bytes    int64
	AutoBytes    int64
	Fields       paired.Cell // the model with half of its fields, compared with the whole one
}

// store measures models in fewer bits and with fewer fields.
func (t *tool) store(r *repeat, to *stored) error {
	name, err := t.scores(r, "path", baseline.Codebook)
	if err != nil {
		return err
	}
	file := func(values string) string { return r.name + "-" + values + ".safetensors" }
	for _, values := range []string{"float32", "int8", "auto"} {
		out := t.work.Path(file(values))
		args := []string{"prune", "--model", r.model, "--scores", t.work.Path(name), "--sparsity", ".95", "--values", values, "--out", out}
		if values == "auto" {
			args = append(args, "--dataset", r.dataset)
		}
		if err := t.work.Make(file(values), args...); err != nil {
			return err
		}
	}
	for _, of := range []struct {
		values string
		cell   *paired.Cell
		bytes  *int64
	}{{"float32", nil, &to.Float32Bytes}, {"int8", &to.Int8, &to.Int8Bytes}, {"auto", &to.Auto, &to.AutoBytes}} {
		info, err := os.Stat(t.work.Path(file(of.values)))
		if err != nil {
			return err
		}
		*of.bytes = info.Size()
		if of.cell != nil {
			if *of.cell, err = t.evaluate(r, file(of.values), t.work.Path(file("float32"))); err != nil {
				return err
			}
		}
	}
	var about struct{ Fields int }
	if err := t.work.Print(r.name+"-inspect.json", &about, "model", "inspect", r.model); err != nil {
		return err
	}
	half := strconv.Itoa((about.Fields + 1) / 2)
	if err := t.work.Make(file("fields"), "prune", "--model", r.model, "--dataset", r.dataset, "--fields", half, "--out", t.work.Path(file("fields"))); err != nil {
		return err
	}
	to.Fields, err = t.evaluate(r, file("fields"), r.model)
	return err
}

// evaluate compares a model of the folder with another one on the test split.
func (t *tool) evaluate(r *repeat, name, to string) (c paired.Cell, err error) {
	var e struct {
		AUC     float64
		LogLoss float64 `json:"log_loss"`
		Against struct {
			AUC     sweep.Interval `json:"auc_difference"`
			LogLoss sweep.Interval `json:"log_loss_difference"`
		}
	}
	if err := t.work.Print(name+".json", &e, "evaluate", "--model", t.work.Path(name), "--against", to, "--dataset", r.dataset); err != nil {
		return c, err
	}
	c[paired.AUC].Value, c[paired.LogLoss].Value = e.AUC, e.LogLoss
	for i, d := range []sweep.Interval{paired.AUC: e.Against.AUC, paired.LogLoss: e.Against.LogLoss} {
		if d.Low == nil || d.High == nil {
			return c, fmt.Errorf("%s: the test rows do not determine the interval of a difference; expected more rows", name)
		}
		c[i].Difference, c[i].SE = d.Value, (*d.High-*d.Low)/2/1.959964
	}
	return c, nil
}

// tunings are the sparsities of the paper's RQ3.
var tunings = []float64{.5, .8, .95}

// tuned has the tuned models by sparsity, compared with the same models before tuning.
type tuned struct{ Codebook, Zero []paired.Cell }

// tune prunes by the reference and trains what is left. As in the paper, it stops after one epoch
// that is not better.
func (t *tool) tune(r *repeat, to *tuned) error {
	for _, of := range []struct {
		baseline string
		cells    *[]paired.Cell
	}{{baseline.Codebook, &to.Codebook}, {baseline.Zero, &to.Zero}} {
		name, err := t.scores(r, "multilinear", of.baseline)
		if err != nil {
			return err
		}
		for _, at := range tunings {
			cut := fmt.Sprintf("%s-%s-%g.safetensors", r.name, of.baseline, at)
			if err := t.work.Make(cut, "prune", "--model", r.model, "--scores", t.work.Path(name), "--aggregate", scores.Sum, "--sparsity", fmt.Sprint(at), "--out", t.work.Path(cut)); err != nil {
				return err
			}
			if err := t.work.Train("tuned-"+cut, "tune", "--model", t.work.Path(cut), "--dataset", r.dataset, "--patience", "1", "--seed", strconv.Itoa(r.seed)); err != nil {
				return err
			}
			cell, err := t.evaluate(r, "tuned-"+cut, t.work.Path(cut))
			if err != nil {
				return err
			}
			*of.cells = append(*of.cells, cell)
		}
	}
	return nil
}

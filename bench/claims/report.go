package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"shaver/bench/paired"
)

// outcome has what was measured of a subject, by repeat.
type outcome struct {
	*subject
	pruned []pruned
	stored []stored
	tuned  []tuned
}

// collect returns a cell of each repeat.
func collect[T any](repeats []T, cell func(*T) paired.Cell) (cells []paired.Cell) {
	for i := range repeats {
		cells = append(cells, cell(&repeats[i]))
	}
	return cells
}

// difference returns the mean difference over repeats, and half of its interval. Repeats of real data
// have the same test rows.
func (o *outcome) difference(cells []paired.Cell, metric int) (mean, half float64) {
	return paired.Difference(cells, metric, o.shape == "")
}

func (o *outcome) spread(cells []paired.Cell, metric int) string {
	if len(cells) == 0 {
		return ""
	}
	return paired.Spread(o.difference(cells, metric))
}

// table prints the head of a table.
func table(w io.Writer, columns ...string) {
	fmt.Fprintf(w, "\n| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

// row prints a row of a table.
func row(w io.Writer, columns ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(columns, " | ")) }

// number formats the AUC or LogLoss of a model.
func number(v float64) string { return paired.Number("%.4f", v) }

// at returns the heads of columns for sparsities.
func at(sparsities []float64) (columns []string) {
	for _, s := range sparsities {
		columns = append(columns, paired.Number("%g", s))
	}
	columns[0] = "t = " + columns[0]
	return columns
}

// report prints the tables. Differences have half of their 95% interval.
func report(w io.Writer, all []outcome) {
	table(w, "unpruned model", "repeats", "test rows", "features", "AUC", "LogLoss")
	for i := range all {
		o := &all[i]
		whole := collect(o.pruned, func(p *pruned) paired.Cell { return p.Whole })
		row(w, o.title, fmt.Sprint(len(o.pruned)), fmt.Sprint(o.pruned[0].Rows), fmt.Sprint(o.pruned[0].Features), number(paired.Value(whole, paired.AUC)), number(paired.Value(whole, paired.LogLoss)))
	}
	unpruned, first := func(a *against) *paired.Cell { return &a.Unpruned }, func(a *against) *paired.Cell { return &a.Reference }
	bySparsity(w, all, "RQ1: test AUC minus that of the unpruned model", unpruned, reference, "shapley, zero", "path")
	bySparsity(w, all, "RQ2: test AUC minus that of "+reference, first, "taylor", "magnitude", "frequency", "shapley-rms", "taylor-rms", "path")
	table(w, "RQ2: compared with "+reference, "cells", "higher AUC", "beyond the interval", "lower beyond it", "from", "to", "lower LogLoss", "beyond", "higher beyond")
	for _, name := range []string{"taylor", "magnitude", "frequency", "shapley-rms", "taylor-rms", "path", "shapley, zero"} {
		tally(w, all, name)
	}
	quantized(w, all)
	bySparsity(w, all, "RQ3: test AUC minus that of "+reference, first, "shapley, zero")
	gains(w, all)
	bySparsity(w, all, "RQ4: test AUC minus that of "+reference+" with all rows", first, "shapley, .1 of the rows", "shapley, .01 of the rows")
	bins(w, all)
	sizes(w, all)
}

// bySparsity prints the differences in AUC of some lines.
func bySparsity(w io.Writer, all []outcome, title string, of func(*against) *paired.Cell, lines ...string) {
	table(w, append([]string{title}, at(sparsities)...)...)
	for i := range all {
		for _, name := range lines {
			all[i].line(w, name, paired.AUC, of)
		}
	}
}

// line prints the differences of a line by sparsity.
func (o *outcome) line(w io.Writer, name string, metric int, of func(*against) *paired.Cell) {
	columns := []string{o.title + ": " + name}
	for i := range sparsities {
		columns = append(columns, o.spread(collect(o.pruned, func(p *pruned) paired.Cell { return *of(&p.Lines[name][i]) }), metric))
	}
	row(w, columns...)
}

// tally prints how often a line is better and worse than the reference, on synthetic and on real data.
func tally(w io.Writer, all []outcome, name string) {
	for _, real := range []bool{false, true} {
		var better, sure, worse [2]int // by metric
		cells, low, high := 0, math.Inf(1), math.Inf(-1)
		for i := range all {
			o := &all[i]
			if (o.shape == "") != real {
				continue
			}
			cells += len(sparsities)
			for k := range sparsities {
				list := collect(o.pruned, func(p *pruned) paired.Cell { return p.Lines[name][k].Reference })
				for metric := range better {
					gain, half := o.difference(list, metric)
					if metric == paired.AUC {
						low, high = min(low, gain), max(high, gain)
					} else {
						gain = -gain
					}
					for n, holds := range map[*int]bool{&better[metric]: gain > 0, &sure[metric]: gain > half, &worse[metric]: gain < -half} {
						if holds {
							*n++
						}
					}
				}
			}
		}
		if cells > 0 {
			columns := []string{name + map[bool]string{true: ", real", false: ", synthetic"}[real], fmt.Sprint(cells)}
			for metric := range better {
				columns = append(columns, fmt.Sprint(better[metric]), fmt.Sprint(sure[metric]), fmt.Sprint(worse[metric]))
				if metric == paired.AUC {
					columns = append(columns, paired.Number("%+.4f", low), paired.Number("%+.4f", high))
				}
			}
			row(w, columns...)
		}
	}
}

// quantized prints what PTQ costs.
func quantized(w io.Writer, all []outcome) {
	table(w, "RQ2: test AUC of PTQ minus that of the unpruned model", "4 bits", "8 bits", "16 bits", "4 bits, minus that of "+reference+" at .875", "8 bits, at .75", "16 bits, at .5")
	for i := range all {
		o := &all[i]
		columns := []string{o.title}
		for _, of := range []func(*against) paired.Cell{func(a *against) paired.Cell { return a.Unpruned }, func(a *against) paired.Cell { return a.Reference }} {
			for k := range quantizers {
				columns = append(columns, o.spread(collect(o.pruned, func(p *pruned) paired.Cell { return of(&p.PTQ[k]) }), paired.AUC))
			}
		}
		row(w, columns...)
	}
}

// gains prints what tuning gains.
func gains(w io.Writer, all []outcome) {
	table(w, append(append([]string{"RQ3: test AUC after tuning minus that before", "repeats"}, at(tunings)...), "zero, t = .5", ".8", ".95")...)
	for i := range all {
		o := &all[i]
		if len(o.tuned) == 0 {
			continue
		}
		columns := []string{o.title, fmt.Sprint(len(o.tuned))}
		for _, of := range []func(*tuned) []paired.Cell{func(t *tuned) []paired.Cell { return t.Codebook }, func(t *tuned) []paired.Cell { return t.Zero }} {
			for k := range tunings {
				columns = append(columns, o.spread(collect(o.tuned, func(t *tuned) paired.Cell { return of(t)[k] }), paired.AUC))
			}
		}
		row(w, columns...)
	}
}

// bins prints what is kept of rare and frequent features.
func bins(w io.Writer, all []outcome) {
	table(w, "RQ5: entries kept of a feature at .5", "rare features", "middle", "frequent features")
	for i := range all {
		columns := []string{all[i].title}
		for b := range all[i].pruned[0].Bins {
			mean := 0.0
			for _, p := range all[i].pruned {
				mean += p.Bins[b] / float64(len(all[i].pruned))
			}
			columns = append(columns, fmt.Sprintf("%.2f", mean))
		}
		row(w, columns...)
	}
}

// sizes prints what fewer bits and fewer fields cost.
func sizes(w io.Writer, all []outcome) {
	table(w, "path at .95 in fewer bits, and half of the fields: test AUC", "repeats", "int8 minus float32", "bytes", "auto minus float32", "bytes", "half of the fields minus all")
	for i := range all {
		o := &all[i]
		if len(o.stored) == 0 {
			continue
		}
		ratio := func(bytes func(*stored) int64) string {
			sum := 0.0
			for k := range o.stored {
				sum += float64(bytes(&o.stored[k])) / float64(o.stored[k].Float32Bytes) / float64(len(o.stored))
			}
			return paired.Number("%.2f", sum)
		}
		row(w, o.title, fmt.Sprint(len(o.stored)),
			o.spread(collect(o.stored, func(s *stored) paired.Cell { return s.Int8 }), paired.AUC), ratio(func(s *stored) int64 { return s.Int8Bytes }),
			o.spread(collect(o.stored, func(s *stored) paired.Cell { return s.Auto }), paired.AUC), ratio(func(s *stored) int64 { return s.AutoBytes }),
			o.spread(collect(o.stored, func(s *stored) paired.Cell { return s.Fields }), paired.AUC))
	}
}

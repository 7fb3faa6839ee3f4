package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/value/mask"
)

// stableOptions say how much a mask may differ from a previous one.
type stableOptions struct {
	previous   string
	hysteresis float64
}

// defaultHysteresis is the default of --hysteresis, in standard errors or rounds of a path.
const defaultHysteresis = 1

func (o *stableOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.previous, "previous", "", "compact `file` of the previous night, whose choice of entries stays unless the evidence exceeds --hysteresis (default none)")
	cli.Files(c, "previous", "safetensors")
	f.Float64Var(&o.hysteresis, "hysteresis", defaultHysteresis, "standard `errors`, or rounds of a path, that the evidence against a choice of --previous must exceed; 0 ignores the choices")
}

func (o *stableOptions) check(c *cobra.Command) error {
	switch {
	case c.Flags().Changed("previous") && o.previous == "":
		return fault.Usagef(`--previous "": expected the name of a file`)
	case o.previous == "" && c.Flags().Changed("hysteresis"):
		return fault.Usagef("--hysteresis has no effect without --previous")
	case !(o.hysteresis >= 0) || math.IsInf(o.hysteresis, 0):
		return fault.Usagef("--hysteresis %v: expected a finite number of at least 0", o.hysteresis)
	}
	return nil
}

// choices returns the choices of the previous file for the entries of p, or nil without
// one.
func (o *stableOptions) choices(p *pruner) ([]mask.Choice, error) {
	if o.previous == "" {
		return nil, nil
	}
	before, err := checkpoint.Read(o.previous)
	if err != nil {
		return nil, err
	}
	return choicesOf(p.checkpoint, before, o.previous)
}

// choicesOf returns the choices of the compact file before for the entries of ck. name is
// the name of the file.
func choicesOf(ck, before *checkpoint.Checkpoint, name string) ([]mask.Choice, error) {
	if before.Compact == nil {
		return nil, fault.Inputf("%s is dense, so it does not say which entries were dropped: expected a compact file of shaver prune", name)
	}
	if ck.Fields != nil && before.Fields != nil && !slices.Equal(ck.Fields, before.Fields) {
		return nil, fault.Inputf("%s has the fields %q, expected %q as in the model", name, before.Fields, ck.Fields)
	}
	dropped, _, err := before.Pruned()
	if err != nil {
		return nil, err
	}
	choices, err := mask.Previous(&ck.Architecture, &before.Architecture, dropped)
	if err != nil {
		return nil, fault.Inputf("%s does not fit the model: %w", name, err)
	}
	return choices, nil
}

// stability says how a mask differs from a previous one.
type stability struct {
	File       string       `json:"file"`
	Hysteresis float64      `json:"hysteresis"` // in standard errors, or in rounds of a path
	Churn      churn        `json:"churn"`
	Plain      churn        `json:"plain_churn"` // churn of the mask without hysteresis
	Fields     []fieldChurn `json:"fields"`
	unit       string       // of Hysteresis
}

// fieldChurn is the churn of a field.
type fieldChurn struct {
	Field string `json:"field"`
	Churn churn  `json:"churn"`
	Plain churn  `json:"plain_churn"`
}

// churn is prune.Churn with its portion.
type churn struct {
	mask.Churn
	Portion float64 `json:"portion"` // see prune.Churn.Portion
}

func newChurn(c mask.Churn) churn { return churn{c, c.Portion()} }

// compare compares a mask, and the mask that the scores alone would give, with the choices
// of a previous mask.
func (o *stableOptions) compare(p *pruner, choices []mask.Choice, dropped, plain []bool) *stability {
	a := &p.checkpoint.Architecture
	all, fields := mask.ChurnOf(a, choices, dropped)
	allPlain, fieldsPlain := mask.ChurnOf(a, choices, plain)
	s := &stability{File: o.previous, Hysteresis: o.hysteresis, Churn: newChurn(all), Plain: newChurn(allPlain), unit: "standard errors"}
	if p.scores[0].Ranks() {
		s.unit = "rounds of a path"
	}
	for j, name := range p.scores[0].Fields {
		s.Fields = append(s.Fields, fieldChurn{name, newChurn(fields[j]), newChurn(fieldsPlain[j])})
	}
	return s
}

func (s *stability) table(w io.Writer) {
	c, percent := &s.Churn, func(c *churn) string { return fmt.Sprintf("%.2f%%", 100*c.Portion) }
	fmt.Fprintf(w, "previous\t%s\thysteresis of %v %s\n", s.File, s.Hysteresis, s.unit)
	fmt.Fprintf(w, "churn\t%s\t%d entries added, %d removed, %d kept by both\n", percent(c), c.Added, c.Removed, c.KeptBefore-c.Removed)
	if c.Absent > 0 {
		fmt.Fprintf(w, "new\t%d\tkept entries of features that the previous model lacks\n", c.Absent)
	}
	fmt.Fprintf(w, "without\t%s\tchurn if the scores alone decided: %d added, %d removed\n", percent(&s.Plain), s.Plain.Added, s.Plain.Removed)
	fmt.Fprintln(w, "\nFIELD\tKEPT BEFORE\tKEPT\tADDED\tREMOVED\tCHURN\tWITHOUT")
	for _, f := range s.Fields {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\n", cli.Printable(f.Field), f.Churn.KeptBefore, f.Churn.Kept, f.Churn.Added, f.Churn.Removed, percent(&f.Churn), percent(&f.Plain))
	}
}

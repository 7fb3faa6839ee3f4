package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/steps"
	"shaver/internal/prune/cut"
)

// previousFlags adds the flags that say how much a mask may differ from a previous one.
func previousFlags(c *cobra.Command, o *cut.Options) {
	f := c.Flags()
	f.StringVar(&o.Previous, "previous", "", "compact `file` of the previous night, whose choice of entries stays unless the evidence exceeds --hysteresis (default none)")
	cli.Files(c, "previous", "safetensors")
	f.Float64Var(&o.Hysteresis, "hysteresis", o.Hysteresis, "standard `errors`, or rounds of a path, that the evidence against a choice of --previous must exceed; 0 ignores the choices")
}

// previousTable writes how the mask differs from the previous one.
func previousTable(w io.Writer, r *steps.Pruning) {
	s, unit := r.Previous, "standard errors"
	if r.Method == cut.ByPrevious {
		fmt.Fprintf(w, "previous\t%s\tall of its choices are kept\n", s.File)
		return
	}
	if r.ByPath {
		unit = "rounds of a path"
	}
	c, percent := &s.Churn, func(c *cut.Churn) string { return fmt.Sprintf("%.2f%%", 100*c.Portion) }
	fmt.Fprintf(w, "previous\t%s\thysteresis of %v %s\n", s.File, s.Hysteresis, unit)
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

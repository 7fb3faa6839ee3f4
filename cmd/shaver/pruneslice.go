package main

import (
	"fmt"
	"io"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/app/steps"
	"shaver/internal/prune/slice"
)

// stageTable writes what each stage saved. If calibrated, entries and bits were compared after a calibration of both models.
func stageTable(w io.Writer, stages []slice.Stage, calibrated bool) {
	fmt.Fprintf(w, "\nWITHOUT\tLOOK-UPS\tPRODUCTS\tENTRIES\tFILE\tBATCH\tRISE OF THE LOSS\t95%% INTERVAL\n")
	for i := range stages {
		s := &stages[i]
		without, time := s.Without, "-"
		if without == "" {
			without = "-"
		}
		if calibrated && (s.Without == steps.EntriesStage || s.Without == steps.BitsStage) {
			without += ", both calibrated"
		}
		if s.Batch > 0 {
			time = fmt.Sprintf("%.3g ms", 1000*s.Batch)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\n", without, s.LookUps, s.Multiplications, s.Entries, cli.Size(s.Bytes), time, differenceText(s.Rise))
	}
}

// sliceTable writes what was removed and what it costs, and then the path.
func sliceTable(w io.Writer, r *slice.Result) {
	fmt.Fprintf(w, "sliced\t%s\n", r.Out)
	if len(r.Removed) > 0 {
		fmt.Fprintf(w, "removed\t%s\n", strings.Join(r.Removed, ", "))
	}
	numbers := func(what string, before, after int) { fmt.Fprintf(w, "%s\t%d -> %d\n", what, before, after) }
	numbers("fields", r.Before.Fields, r.After.Fields)
	if r.Before.Columns > 0 || r.After.Columns > 0 {
		fmt.Fprintf(w, "columns\t%s -> %s\n", r.Before.ColumnsText(), r.After.ColumnsText())
	}
	numbers("look-ups", r.Before.LookUps, r.After.LookUps)
	numbers("entries", r.Before.Entries, r.After.Entries)
	numbers("products", r.Before.Multiplications, r.After.Multiplications)
	fmt.Fprintf(w, "file\t%s\n", cli.Change(r.Before.Bytes, r.After.Bytes))
	if r.Loss == nil {
		return
	}
	fmt.Fprintf(w, "\nloss %s on %d rows\n", cli.Metric(r.Loss), r.Rows)
	removalTable(w, r.Path, r.Beyond)
	stageTable(w, r.Stages, false)
}

// removalTable writes the steps of a path, and those that the bound did not allow.
func removalTable(w io.Writer, steps, beyond []slice.Step) {
	fmt.Fprintf(w, "\nWITHOUT\tFIELDS\tCOLUMNS\tPRODUCTS\tAUC\tRISE OF THE LOSS\t95%% INTERVAL\n")
	line := func(s *slice.Step, mark string) {
		fmt.Fprintf(w, "%s%s\t%d\t%s\t%d\t%s\t%s\n", s.Text(), mark, s.Fields, s.ColumnsText(), s.Multiplications, cli.Metric(s.AUC), differenceText(s.Rise))
	}
	for i := range steps {
		line(&steps[i], "")
	}
	for i := range beyond {
		line(&beyond[i], " (stays)")
	}
}

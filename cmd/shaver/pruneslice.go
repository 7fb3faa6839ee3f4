package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/slice"
	"shaver/internal/value/mask"
)

// entryFlags are the flags of prune that choose entries or store those that are kept.
var entryFlags = []string{
	"scores", "from", "previous", mask.Sparsity, mask.Kept, mask.Bytes, "aggregate", "rank", "protect", "field-minimum",
	"hysteresis", "values", "rounding", "dense", "compact-onnx", "calibrate", "tune",
}

// slice runs "prune --drop-fields".
func (o *pruneOptions) slice(c *cobra.Command) error {
	for _, name := range entryFlags {
		if c.Flags().Changed(name) {
			return fault.Usagef("--%s has no effect with --drop-fields, which removes whole fields: prune the entries of what is left in a second step", name)
		}
	}
	if checkpoint.NamedONNX(o.Out) {
		return fault.Usagef("--drop-fields writes a safetensors file: expected --out with another extension than .onnx")
	}
	if err := o.output.Check(); err != nil {
		return err
	}
	o.outputs.Inputs(checkpoint.Files(o.Model)...)
	o.outputs.Inputs(dataset.Files(o.Dataset...)...)
	if err := checkModelOutput(&o.outputs, "--out", o.Out, o.Model); err != nil {
		return err
	}
	s := slice.Options{Model: o.Model, ModelOutput: o.ModelOutput, Dataset: o.Dataset, Fields: o.fields, Out: o.Out}
	r, err := s.Write()
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), r, func(w io.Writer) {
		fmt.Fprintf(w, "sliced\t%s\n", r.Out)
		fmt.Fprintf(w, "removed\t%s\n", strings.Join(r.Removed, ", "))
		numbers := func(what string, before, after int) {
			fmt.Fprintf(w, "%s\t%s -> %s\n", what, strconv.Itoa(before), strconv.Itoa(after))
		}
		numbers("fields", r.Before.Fields, r.After.Fields)
		numbers("look-ups", r.Before.LookUps, r.After.LookUps)
		numbers("entries", r.Before.Entries, r.After.Entries)
		numbers("products", r.Before.Multiplications, r.After.Multiplications)
		fmt.Fprintf(w, "file\t%s\n", cli.Change(r.Before.Bytes, r.After.Bytes))
	})
}

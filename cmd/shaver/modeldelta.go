package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/arrowio"
)

// delta is what "model delta" prints.
type delta struct {
	Out    string `json:"out"`
	Tables int    `json:"tables"`
	Rows   int    `json:"rows"` // of all tables
	arrowio.DeltaCount
	Bytes int64 `json:"bytes"` // of the three files
}

func modelDeltaCommand() *cobra.Command {
	var out string
	var output cli.Output
	var part checkpoint.Options
	c := &cobra.Command{
		Use:   "delta FILE",
		Short: "Export a pruned model as changes for an embedding store",
		Long:  help("model-delta"),
		Example: `  shaver model delta pruned.safetensors --out delta
  shaver model delta pruned.onnx --out delta`,
		ValidArgsFunction: cli.FileArgs(cli.Checkpoints...),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			if err := output.Check(); err != nil {
				return err
			}
			result, err := writeDelta(args[0], part, out)
			if err != nil {
				return err
			}
			return output.Print(c.OutOrStdout(), result, func(w io.Writer) {
				fmt.Fprintf(w, "delta\t%s\t%s\n", result.Out, cli.Size(result.Bytes))
				fmt.Fprintf(w, "kept\t%d of %d ids\t%d entries\n", result.Kept, result.Rows, result.Entries)
				fmt.Fprintf(w, "dropped\t%d of %d ids\n", result.Dropped, result.Rows)
			})
		},
	}
	c.Flags().StringVar(&out, "out", "", "new `folder` to write")
	cli.Folder(c, "out")
	partFlags(c, &part)
	output.Flag(c)
	cli.MarkRequired(c, "out")
	return c
}

// writeDelta writes the delta of the model in the file in to the folder out.
func writeDelta(in string, part checkpoint.Options, out string) (*delta, error) {
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return nil, fault.Usagef("%s already exists and is not empty: name a new folder", out)
	} else if err != nil && !os.IsNotExist(err) {
		return nil, fault.Usagef("%s already exists and is not a folder", out)
	}
	ck, err := checkpoint.ReadPart(in, part)
	if err != nil {
		return nil, err
	}
	if _, err := ck.Model(); err != nil { // which checks that every tensor is present, fits and is finite
		return nil, err
	}
	parts, err := deltaParts(ck)
	if err != nil {
		return nil, err
	}
	d := &arrowio.Delta{Model: ck.Digest(), Parts: parts}
	result := &delta{Out: out}
	names := map[string]bool{}
	for _, p := range parts {
		names[p.Table] = true
	}
	result.Tables = len(names)
	out = filepath.Clean(out) // "x/" has no base name
	folder, err := os.MkdirTemp(filepath.Dir(out), "."+filepath.Base(out)+".tmp-*")
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", out, err)
	}
	temporary := atomicfile.Track(folder)
	defer temporary.Remove()                        // does nothing after the rename
	if err := os.Chmod(folder, 0o755); err != nil { // MkdirTemp gives access only to the owner
		return nil, err
	}
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{arrowio.DeltaKept, func(w io.Writer) error { return d.WriteKept(w, &result.DeltaCount) }},
		{arrowio.DeltaDropped, func(w io.Writer) error { return d.WriteDropped(w, &result.DeltaCount) }},
		{arrowio.DeltaBaseline, d.WriteBaseline},
	} {
		path := filepath.Join(folder, file.name)
		if err := atomicfile.Write(path, file.write); err != nil {
			return nil, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		result.Bytes += info.Size()
	}
	result.Rows = result.Kept + result.Dropped
	if err := os.Remove(out); err != nil && !os.IsNotExist(err) { // removes an empty folder only
		return nil, fault.Usagef("%s already exists: %w", out, err)
	}
	if err := temporary.Rename(out); err != nil {
		return nil, err
	}
	return result, atomicfile.SyncFolder(filepath.Dir(out))
}

// deltaParts returns the rows of all tables, by table and then by row.
func deltaParts(ck *checkpoint.Checkpoint) ([]arrowio.DeltaPart, error) {
	table, err := ck.Embedding()
	if err != nil {
		return nil, err
	}
	_, baseline, err := ck.Pruned()
	if err != nil {
		return nil, err
	}
	var parts []arrowio.DeltaPart
	order := map[string]int{} // of the tables
	for _, p := range ck.Parts() {
		field := strconv.Itoa(p.Field)
		if ck.Fields != nil {
			field = ck.Fields[p.Field]
		}
		from, to := p.Entries()
		values, dropped := table[from:to], baseline[p.Baseline:p.Baseline+p.Dim]
		if towers := ck.Towers(p.Field); towers != nil { // each has half of the columns, and its first row is 0
			for k, name := range towers {
				first, half := k*p.Dim/2, p.Dim/2
				var columns []float32
				for row := range slices.Chunk(values, p.Dim) {
					columns = append(columns, row[first:first+half]...)
				}
				order[name] = len(order)
				parts = append(parts, arrowio.DeltaPart{Table: name, Field: field, Baseline: dropped[first : first+half], Values: columns})
			}
			continue
		}
		if _, ok := order[p.Name]; !ok {
			order[p.Name] = len(order)
		}
		parts = append(parts, arrowio.DeltaPart{Table: p.Name, Field: field, First: p.From, Baseline: dropped, Values: values})
	}
	slices.SortStableFunc(parts, func(a, b arrowio.DeltaPart) int {
		return cmp.Or(cmp.Compare(order[a.Table], order[b.Table]), cmp.Compare(a.First, b.First))
	})
	return parts, nil
}

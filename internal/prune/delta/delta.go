// Package delta exports a pruned model as changes for an embedding store: the rows to keep, those to
// delete, and the baseline.
package delta

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/arrowio"
)

// Result says what Write wrote.
type Result struct {
	Out    string `json:"out"`
	Tables int    `json:"tables"`
	Rows   int    `json:"rows"` // of all tables
	arrowio.DeltaCount
	Bytes int64 `json:"bytes"` // of the three files

	// Guessed is whether the file does not say which entries were dropped, so that entries that
	// equal the baseline of their field count as dropped. Only a file in compact form says it.
	Guessed bool `json:"-"`
}

// Write writes the delta of the model in the file in to the folder out.
func Write(in string, part checkpoint.Options, out string) (*Result, error) {
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
	all, err := parts(ck)
	if err != nil {
		return nil, err
	}
	d := &arrowio.Delta{Model: ck.Digest(), Parts: all}
	result := &Result{Out: out, Guessed: ck.Compact == nil}
	names := map[string]bool{}
	for _, p := range all {
		names[p.Table] = true
	}
	result.Tables = len(names)
	out = filepath.Clean(out) // "x/" has no base name
	folder, temporary, err := atomicfile.Folder(out)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", out, err)
	}
	defer temporary.Remove() // does nothing after the rename
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

// parts returns the rows of all tables, by table and then by row.
func parts(ck *checkpoint.Checkpoint) ([]arrowio.DeltaPart, error) {
	table, err := ck.Embedding()
	if err != nil {
		return nil, err
	}
	_, baseline, err := ck.Pruned()
	if err != nil {
		return nil, err
	}
	var all []arrowio.DeltaPart
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
				all = append(all, arrowio.DeltaPart{Table: name, Field: field, Baseline: dropped[first : first+half], Values: columns})
			}
			continue
		}
		if _, ok := order[p.Name]; !ok {
			order[p.Name] = len(order)
		}
		all = append(all, arrowio.DeltaPart{Table: p.Name, Field: field, First: p.From, Baseline: dropped, Values: values})
	}
	slices.SortStableFunc(all, func(a, b arrowio.DeltaPart) int {
		return cmp.Or(cmp.Compare(order[a.Table], order[b.Table]), cmp.Compare(a.First, b.First))
	})
	return all, nil
}

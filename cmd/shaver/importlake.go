package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shaver/internal/app/cli"
	"shaver/internal/app/night"
	"shaver/internal/app/tables"
	"shaver/internal/base/fault"
	"shaver/internal/data/ingest"
	"shaver/internal/data/lake"
	"shaver/internal/prune/nightly"
)

// tableOptions say which rows of Parquet and Arrow files and of tables with a log are imported.
type tableOptions struct {
	at, catalog string
	where       []string
}

func (o *tableOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&o.where, "where", nil, "`condition` for rows, such as day=2024-05-31; all others are left out; may be repeated")
	f.StringVar(&o.at, "at", "", "`version`, id or time of the snapshot of a Delta or Iceberg table (default the newest one)")
	f.StringVar(&o.catalog, "catalog", "", "`URL` of an Iceberg REST catalogue, in which each FILE is then a table, as NAMESPACE.TABLE")
	cli.Group(c, rowFlags, "where", "at", "catalog")
}

// apply replaces the tables among the files of an import by the files of their snapshots.
func (o *tableOptions) apply(ctx context.Context, c *ingest.RawConfig) error {
	for _, text := range o.where {
		condition, err := lake.ParseCondition(text)
		if err != nil {
			return fault.Usagef("--where: %w", err)
		}
		c.Where = append(c.Where, condition)
	}
	var columns []lake.Column
	for _, files := range []*[]string{&c.Files, &c.Val, &c.Test, &c.Fresh} {
		var all []string
		for _, path := range *files {
			t, err := tables.Open(ctx, path, o.catalog)
			if err != nil {
				return err
			}
			if t == nil {
				all = append(all, path)
				continue
			}
			s, err := t.Read(ctx, lake.Request{At: o.at, Where: c.Where})
			if err != nil {
				return err
			}
			parts, table, err := t.Input(ctx, s, c.Where)
			if err != nil {
				return err
			}
			if columns == nil {
				columns = s.Columns
			}
			all, c.Tables = append(all, parts...), append(c.Tables, *table)
		}
		*files = all
	}
	if o.at != "" && len(c.Tables) == 0 {
		return fault.Usagef("--at: expected a folder or a URL of a Delta or Iceberg table")
	}
	if c.Format.Columns == nil { // all, in the order of the table
		for _, column := range columns {
			dense := slices.ContainsFunc(c.Format.Dense.Columns, func(d ingest.DenseColumn) bool { return d.Name == column.Name })
			if !slices.Contains(c.Format.Taken(), column.Name) && !dense {
				c.Format.Columns = append(c.Format.Columns, ingest.Column{Name: column.Name})
			}
		}
	}
	return nil
}

// nightImporter returns what imports the days of nights, by the command that imports tables.
func nightImporter(messages io.Writer) night.Importer {
	i := night.Importer{Run: func(ctx context.Context, table string, settings nightly.Settings, out string) error {
		args := []string{table, "--out", out}
		for _, s := range settings {
			args = append(args, "--"+s.Name+"="+s.Value)
		}
		c := importTableCommand()
		c.SetArgs(args)
		c.SetOut(io.Discard)
		c.SetErr(messages)
		c.SilenceErrors, c.SilenceUsage = true, true
		return c.ExecuteContext(ctx)
	}}
	importTableCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains([]string{"out", "json", "where", "at", "catalog", "val", "test", "fresh", "grow"}, f.Name) {
			return
		}
		k := nightly.Key{Name: f.Name}
		switch t := f.Value.Type(); {
		case f.Name == "vocabulary" || f.Name == "model":
			k.Kind = nightly.Path
		case strings.HasSuffix(t, "Slice"):
			k.Kind = nightly.List
		}
		i.Keys = append(i.Keys, k)
	})
	return i
}

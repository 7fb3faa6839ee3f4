package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/dataset"
	"shaver/internal/fault"
	"shaver/internal/ingest"
)

func importCommands() []*cobra.Command {
	return []*cobra.Command{importCSVCommand(), importCriteoCommand(), importAvazuCommand(), importKDDCommand(), importTableCommand()}
}

// importRun is what all imports share: the draw, the policy, the result.
type importRun struct {
	split         string
	seed          uint64
	onBadRow, out string
	output        cli.Output
}

func (o *importRun) flags(c *cobra.Command, split string) {
	f := c.Flags()
	f.StringVar(&o.split, "split", split, "draw rows into train:val:test")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the draw")
	f.StringVar(&o.onBadRow, "on-bad-row", ingest.Fail, "what a row that is none does: fail, or skip it and count")
	f.StringVar(&o.out, "out", "", "folder to make")
	o.output.Flag(c)
}

func (o *importRun) check(c *cobra.Command) error {
	if err := cli.Required(c, "out"); err != nil {
		return err
	}
	if o.onBadRow != ingest.Fail && o.onBadRow != ingest.Skip {
		return fault.Usagef("--on-bad-row %s: %s or %s", o.onBadRow, ingest.Fail, ingest.Skip)
	}
	return o.output.Check()
}

// run imports with progress, and says what became of it.
func (o *importRun) run(c *cobra.Command, do func(show ingest.Progress) (*ingest.Summary, error)) error {
	const mega = 1_000_000
	progress := cli.NewProgress("import", "MB", 1)
	start := time.Now()
	summary, err := do(func(rows, read, total int64) {
		progress.Note(fmt.Sprintf("%.0f rows/s", float64(rows)/time.Since(start).Seconds()))
		progress.SetOf(read/mega, max(total/mega, 1))
	})
	progress.End()
	if kept := ingest.KeptCounts(o.out); err != nil && !fault.IsUsage(err) && kept != "" { // an import that was refused kept nothing
		fmt.Fprintf(c.ErrOrStderr(), "what was counted of whole files is kept in %s: the same command goes on from there\n", kept)
	}
	if err != nil {
		return err
	}
	for _, message := range summary.Bad {
		fmt.Fprintln(c.ErrOrStderr(), "skipped:", message)
	}
	if summary.Skipped > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "skipped %d bad rows in all\n", summary.Skipped)
	}
	for j, n := range summary.Unseen {
		if n > 0 {
			fmt.Fprintf(c.ErrOrStderr(), "field %s: rows whose value is not in the vocabulary: %d\n", summary.Fields[j].Name, n)
		}
	}
	for j, n := range summary.Reserved {
		if n > 0 {
			fmt.Fprintf(c.ErrOrStderr(), "field %s: ids that the vocabulary has for no value: %d of %d\n", summary.Fields[j].Name, n, summary.Fields[j].Size)
		}
	}
	for i, scan := range summary.Scans {
		seconds := scan.Time.Seconds()
		if scan.Bytes < mega { // a rate says nothing
			continue
		}
		fmt.Fprintf(c.ErrOrStderr(), "scan %d: %d MB in %.1f s, %.0f MB/s\n", i+1, scan.Bytes/mega, seconds, float64(scan.Bytes)/mega/seconds)
	}
	facts, err := dataset.Inspect(o.out, 0)
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), facts, func(w io.Writer) { datasetTable(w, facts) })
}

// rawOptions are those of imports of raw values.
type rawOptions struct {
	minCount   int64
	counted    string
	vocabulary string
	oov        string
	model      string
	memory     byteSize
}

func (o *rawOptions) flags(c *cobra.Command, minCount int64, counted string) {
	o.memory = ingest.DefaultMemory
	f := c.Flags()
	f.Int64Var(&o.minCount, "min-count", minCount, "rows that a value needs to get an id of its own")
	f.StringVar(&o.counted, "counted", counted, "rows that --min-count is about: train, or all")
	f.StringVar(&o.vocabulary, "vocabulary", "", "ids to use instead of making them: a dataset's folder, or a .csv, .json, .parquet or .arrow file of field, value, id")
	f.StringVar(&o.oov, "oov", "", "with --vocabulary FILE, the id in each field of values that are not in it: last, the one after the largest; id=N, which no value has; value=TEXT, that of this value, as value=<unk>; or none: such a row is a bad one (default last)")
	f.Var(&o.memory, "memory", "memory to stay under")
}

// config checks the flags and reads what they name.
func (o *rawOptions) config(c *cobra.Command, run *importRun, format ingest.Format, files []string, show ingest.Progress) (config ingest.RawConfig, err error) {
	switch {
	case o.minCount < 1:
		return config, fault.Usagef("--min-count %d: at least 1", o.minCount)
	case o.counted != ingest.CountTrain && o.counted != ingest.CountAll:
		return config, fault.Usagef("--counted %s: %s or %s", o.counted, ingest.CountTrain, ingest.CountAll)
	case o.memory < 128<<20:
		return config, fault.Usagef("--memory %v: at least 128MiB", &o.memory)
	}
	if o.oov != "" && o.vocabulary == "" {
		return config, fault.Usagef("--oov says which id of --vocabulary is that of unseen values: there is no --vocabulary")
	}
	for _, name := range []string{"min-count", "counted"} {
		if o.vocabulary != "" && c.Flags().Changed(name) {
			return config, fault.Usagef("--%s is for a vocabulary that is made, not for --vocabulary", name)
		}
	}
	config = ingest.RawConfig{
		Format: format, Files: files, Stdin: c.InOrStdin(), MinCount: o.minCount, Counted: o.counted, Split: run.split, Seed: run.seed,
		OnBadRow: run.onBadRow, Memory: int64(o.memory), Out: run.out, Progress: show,
	}
	if o.vocabulary != "" {
		if config.Vocabulary, err = ingest.ReadVocabulary(o.vocabulary, int64(o.memory), o.oov); err != nil {
			return config, err
		}
		if info, err := os.Stat(o.vocabulary); err == nil && info.IsDir() && c.Flags().Lookup("columns") != nil && format.Columns == nil {
			// Another night's log, whose columns may stand in another order: the fields
			// are the earlier dataset's.
			for _, name := range config.Vocabulary.Names {
				config.Format.Columns = append(config.Format.Columns, ingest.Column{Name: name})
			}
		}
	}
	if o.model != "" {
		ck, err := checkpoint.Read(o.model)
		if err != nil {
			return config, err
		}
		config.Sizes = ck.Architecture.FieldDims
	}
	return config, nil
}

// importRaw is the body of an import command of raw files.
func (o *rawOptions) importRaw(c *cobra.Command, run *importRun, format ingest.Format, files []string) error {
	if err := run.check(c); err != nil {
		return err
	}
	// The collector must not let garbage grow to what is in use.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(o.memory) / 10 * 9))
	return run.run(c, func(show ingest.Progress) (*ingest.Summary, error) {
		config, err := o.config(c, run, format, files, show)
		if err != nil {
			return nil, withFlags(err, "--model")
		}
		summary, err := ingest.ImportRaw(c.Context(), config)
		return summary, withFlags(err, "--model")
	})
}

// withFlags adds to an error about settings the flags that set them. sizes are the
// command's flags for the sizes of the fields.
func withFlags(err error, sizes string) error {
	var flags []string
	for _, name := range fault.Settings(err) {
		flags = append(flags, map[string]string{
			ingest.IDsSetting: "--ids", ingest.SizesSetting: sizes, ingest.SplitSetting: "--split", ingest.MemorySetting: "--memory",
			ingest.MinCountSetting: "--min-count", ingest.NumbersSetting: "--numbers", ingest.UnseenSetting: "--oov",
		}[name])
	}
	if len(flags) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(flags, ", "))
}

const rawHelp = `Ids are made in two scans of the files: values with at least --min-count rows get ids in
byte order, the last id of a field stands for all others. Ids, and what split a
row is drawn into, do not depend on how the rows are cut into files, on --memory
or on the number of cores. With --vocabulary the ids are those of an earlier
dataset or of the model's own mapper, in one scan; values that are not in it get
the id that --oov says and are counted. With --model, fields of other sizes than
the checkpoint's are refused; a mapper may then have ids that no value has, as 0
for padding, which never occur.

`

// rawCommand is an import command of files in one format.
func rawCommand(use, short, long string, minCount int64, counted string, more func(c *cobra.Command), format func() (ingest.Format, error)) *cobra.Command {
	var run importRun
	var raw rawOptions
	c := &cobra.Command{
		Use: use + " FILE...", Short: short, Long: long + rawHelp + cli.ExitHelp, Args: cli.Args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, files []string) error {
			f, err := format()
			if err != nil {
				return withFlags(err, "--model")
			}
			return raw.importRaw(c, &run, f, files)
		},
	}
	run.flags(c, "8:1:1")
	raw.flags(c, minCount, counted)
	c.Flags().StringVar(&raw.model, "model", "", "checkpoint whose field sizes the vocabulary must fit")
	if more != nil {
		more(c)
	}
	return c
}

func importCriteoCommand() *cobra.Command {
	var rule string
	return rawCommand("criteo", "Make a dataset from Criteo's display advertising logs",
		`Make a dataset from tab-separated lines without header: label, 13 integers, 26
strings. .gz and .zst are accepted; the file - is standard input.

An empty integer has the value NULL, one of at most 2 the value x-2, a larger one
by --numbers: ln-squared, floor(ln(x)^2), as the paper's code does, or log2,
ceil(log2 x), as the paper says.

`, 10, ingest.CountAll, func(c *cobra.Command) {
			c.Flags().StringVar(&rule, "numbers", ingest.LnSquared, "rule of the integers: ln-squared or log2")
		}, func() (ingest.Format, error) { return ingest.Criteo(rule) })
}

func importAvazuCommand() *cobra.Command {
	return rawCommand("avazu", "Make a dataset from Avazu's click logs",
		`Make a dataset from comma-separated lines with the header id, click, hour, C1,
..., C21; id is no field. .gz and .zst are accepted; the file - is standard input.

`, 2, ingest.CountAll, nil, func() (ingest.Format, error) { return ingest.Avazu(), nil })
}

func importKDDCommand() *cobra.Command {
	return rawCommand("kdd", "Make a dataset from the logs of KDD Cup 2012, track 2",
		`Make a dataset from tab-separated lines without header: clicks, impressions, and
10 more columns. The label is 1 if there was a click; the other columns are the
fields. .gz and .zst are accepted; the file - is standard input.

`, 10, ingest.CountAll, nil, func() (ingest.Format, error) { return ingest.KDD(), nil })
}

func importTableCommand() *cobra.Command {
	var columns columnOptions
	c := rawCommand("parquet", "Make a dataset from Parquet or Arrow IPC files",
		`Make a dataset from Parquet files, or Arrow IPC files or streams, of strings,
dictionaries, integers and truth values. A missing value is the empty one.

`, 2, ingest.CountTrain, columns.flags, func() (ingest.Format, error) {
			f := ingest.Tables()
			return f, columns.set(&f)
		})
	c.Aliases = []string{"arrow"}
	return c
}

// columnOptions say which columns are the label and the fields.
type columnOptions struct {
	label   string
	from    int64
	columns []string
}

func (o *columnOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.label, "label", "label", "name of the label column")
	f.Int64Var(&o.from, "label-from", 0, "label 1 is a count of at least this; 0: labels are 0 and 1")
	f.StringSliceVar(&o.columns, "columns", nil, "columns that are fields, in this order, each NAME or NAME=FIELD (default the fields of the dataset that --vocabulary names, or all but the label)")
}

func (o *columnOptions) set(f *ingest.Format) error {
	f.Label, f.From = o.label, o.from
	if o.from < 0 {
		return fault.Usagef("--label-from %d: not negative", o.from)
	}
	for _, text := range o.columns {
		name, as, _ := strings.Cut(text, "=")
		f.Columns = append(f.Columns, ingest.Column{Name: name, As: as})
	}
	return nil
}

// byteSize is a flag such as 4GiB.
type byteSize int64

var byteUnits = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}}

func (b *byteSize) Set(text string) error {
	for _, unit := range byteUnits {
		if digits, ok := strings.CutSuffix(text, unit.name); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err == nil && n > 0 && n < 1<<62/unit.size {
				*b = byteSize(n * unit.size)
				return nil
			}
		}
	}
	return fmt.Errorf("%q is no size, as 512MiB or 4GiB", text)
}

func (b *byteSize) String() string {
	for _, unit := range byteUnits {
		if n := int64(*b); n > 0 && n%unit.size == 0 {
			return strconv.FormatInt(n/unit.size, 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

func (b *byteSize) Type() string { return "SIZE" }

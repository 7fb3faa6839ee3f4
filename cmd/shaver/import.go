package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/ingest"
)

func importCommands() []*cobra.Command {
	return []*cobra.Command{importCSVCommand(), importCriteoCommand(), importAvazuCommand(), importKDDCommand(), importTableCommand()}
}

// importRun has what all imports share: the split, the policy for malformed rows and
// the result.
type importRun struct {
	split         string
	seed          uint64
	onBadRow, out string
	output        cli.Output
	lists         *listOptions // nil if no field can be a list
}

// Titles of the groups of an import's flags.
const (
	rowFlags = "Rows"
	idFlags  = "Ids"
)

func (o *importRun) flags(c *cobra.Command, split string) {
	f := c.Flags()
	f.StringVar(&o.split, "split", split, "`ratio` train:val:test or train:val:test:fresh in which rows are assigned to splits at random")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the draw for --split")
	flags.Choice(c, &o.onBadRow, "on-bad-row", ingest.Fail, "`action` for a malformed row: fail, or skip it and count it", ingest.Fail, ingest.Skip)
	flags.Folder(c, &o.out, "out", "new dataset `folder`")
	o.output.Flag(c)
	cli.Group(c, rowFlags, "on-bad-row", "split", "seed")
	cli.MarkRequired(c, "out")
}

func (o *importRun) check(c *cobra.Command) error {
	if err := cli.Required(c); err != nil {
		return err
	}
	if o.onBadRow != ingest.Fail && o.onBadRow != ingest.Skip {
		return fault.Usagef("--on-bad-row %s: expected %s or %s", o.onBadRow, ingest.Fail, ingest.Skip)
	}
	return o.output.Check()
}

// run imports with progress and prints the result.
func (o *importRun) run(c *cobra.Command, do func(show ingest.Progress) (*ingest.Summary, error)) error {
	const mega = 1_000_000
	progress := cli.NewProgress("import", "MB", 1)
	start := time.Now()
	summary, err := do(func(rows, read, total int64) {
		progress.Note(fmt.Sprintf("%.0f rows/s", float64(rows)/time.Since(start).Seconds()))
		progress.SetOf(read/mega, max(total/mega, 1))
	})
	progress.End()
	if kept := ingest.KeptCounts(o.out); err != nil && !fault.IsUsage(err) && kept != "" { // an import with wrong usage keeps nothing
		fmt.Fprintf(c.ErrOrStderr(), "the counts of complete files are kept in %s; the same command continues from there\n", kept)
	}
	if err != nil {
		return err
	}
	for _, message := range summary.Bad {
		fmt.Fprintln(c.ErrOrStderr(), "skipped:", cli.Printable(message))
	}
	if summary.Skipped > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "skipped %d malformed rows in total\n", summary.Skipped)
	}
	for j, n := range summary.Unseen {
		if n > 0 {
			fmt.Fprintln(c.ErrOrStderr(), cli.Printable(unseenText(summary, j)))
		}
	}
	for j, n := range summary.Cut {
		if n > 0 {
			fmt.Fprintf(c.ErrOrStderr(), "field %s: %d lists have more than %d values and lost the others\n", cli.Printable(summary.Fields[j].Name), n, summary.Fields[j].Length)
		}
	}
	for j, n := range summary.Reserved {
		if n > 0 {
			fmt.Fprintf(c.ErrOrStderr(), "field %s: %d of %d ids have no value in the vocabulary\n", cli.Printable(summary.Fields[j].Name), n, summary.Fields[j].Size)
		}
	}
	for _, text := range summary.Warnings {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", cli.Printable(text))
	}
	for i, scan := range summary.Scans {
		seconds := scan.Time.Seconds()
		if scan.Bytes < mega { // too little for a rate
			continue
		}
		fmt.Fprintf(c.ErrOrStderr(), "scan %d: %d MB in %.1f s, %.0f MB/s\n", i+1, scan.Bytes/mega, seconds, float64(scan.Bytes)/mega/seconds)
	}
	d, err := dataset.Open(o.out)
	if err != nil {
		return err
	}
	if o.lists != nil && o.lists.model != nil && slices.Max(summary.Padded) > 0 {
		if text := d.DoubtPads(o.lists.model, o.lists.side != "" || c.Flags().Changed("vocabulary")); text != "" {
			fmt.Fprintln(c.ErrOrStderr(), "warning:", cli.Printable(text))
		}
	}
	facts, err := d.Inspect(0)
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), facts, func(w io.Writer) { datasetTable(w, facts) })
}

// unseenText says how many rows have a value of the field j that is not in the vocabulary. It is a warning if more than
// half of the rows do, because these rows share one id. Rows of lists have many values, so one that is unseen is usual, but
// not in all rows.
func unseenText(s *ingest.Summary, j int) string {
	n, missing, rows := s.Unseen[j], s.Missing[j], int64(0)
	for _, split := range s.Splits {
		rows += int64(split.Rows)
	}
	most := n == rows || 2*n > rows && s.Fields[j].Length == 0
	text, some := "", fmt.Sprint(n, " rows")
	if most {
		text = "warning: "
	}
	if n == rows {
		some = "all " + some
	} else if most {
		some = fmt.Sprintf("%d of %d rows (%.1f%%)", n, rows, 100*float64(n)/float64(rows))
	}
	text += fmt.Sprintf("field %s: %s have a value that is not in the vocabulary", s.Fields[j].Name, some)
	if s.Examples[j] != "" {
		text += fmt.Sprintf(", such as %q", s.Examples[j])
	}
	if missing > 0 {
		text += fmt.Sprintf("; in %d of them it is missing, and the vocabulary lacks the empty value", missing)
	}
	return text
}

// rawOptions are the options of imports of raw values.
type rawOptions struct {
	val, test  []string // files of these splits
	fresh      []string // as val
	minCount   int64
	counted    string
	vocabulary string
	grow       bool
	oov        string
	model      string
	output     string // output of the model, if it is an .onnx file with several
	memory     flags.Bytes
	lists      *listOptions  // nil if no field can be a list
	tables     *tableOptions // nil if files are text
}

func (o *rawOptions) flags(c *cobra.Command, minCount int64, counted string) {
	o.memory = ingest.DefaultMemory
	f := c.Flags()
	f.Int64Var(&o.minCount, "min-count", minCount, "`number` of rows in which a value must occur to get an id of its own")
	flags.Choice(c, &o.counted, "counted", counted, "`rows` that count for --min-count: train or all", ingest.CountTrain, ingest.CountAll)
	flags.File(c, &o.vocabulary, "vocabulary", "dataset folder or `file` (.csv, .json, .parquet or .arrow, with field, value and id) whose ids to use (default new ids)")
	f.BoolVar(&o.grow, "grow", false, "with --vocabulary and a dataset folder: values that it lacks and that occur in at least --min-count rows get the next ids")
	flags.Choice(c, &o.oov, "oov", "", "for --vocabulary with a file: `id` of values that are not in the file, as described above (default last, or __OOV__ of FuxiCTR)", "last", "none", "id=", "value=")
	f.Var(&o.memory, "memory", "memory `limit`, such as 512MiB or 4GiB, at least 128MiB")
	cli.Group(c, idFlags, "min-count", "counted", "vocabulary", "grow", "oov")
}

// splitFlags adds flags for the files of val and test.
func (o *rawOptions) splitFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&o.val, "val", nil, "`files` of the val split, separated by commas")
	f.StringSliceVar(&o.test, "test", nil, "`files` of the test split, separated by commas")
	f.StringSliceVar(&o.fresh, "fresh", nil, "`files` of the fresh split, on which the model was not trained and which score counts more, separated by commas")
	cli.Group(c, rowFlags, "val", "test", "fresh")
	for _, split := range []string{"val", "test", "fresh"} {
		cli.Files(c, split)
	}
}

// config checks the flags and reads what they name.
func (o *rawOptions) config(c *cobra.Command, run *importRun, format ingest.Format, files []string, show ingest.Progress) (config ingest.RawConfig, err error) {
	switch {
	case o.minCount < 1:
		return config, fault.Usagef("--min-count %d: expected at least 1", o.minCount)
	case o.counted != ingest.CountTrain && o.counted != ingest.CountAll:
		return config, fault.Usagef("--counted %s: expected %s or %s", o.counted, ingest.CountTrain, ingest.CountAll)
	case o.memory < 128<<20:
		return config, fault.Usagef("--memory %v: expected at least 128MiB", &o.memory)
	}
	if o.oov != "" && o.vocabulary == "" {
		return config, fault.Usagef("--oov needs --vocabulary")
	}
	if o.grow && o.vocabulary == "" {
		return config, fault.Usagef("--grow needs --vocabulary")
	}
	for _, name := range []string{"min-count", "counted"} {
		if o.vocabulary != "" && !o.grow && c.Flags().Changed(name) {
			return config, fault.Usagef("--%s is for new ids: with --vocabulary it needs --grow", name)
		}
	}
	config = ingest.RawConfig{
		Format: format, Files: files, Val: o.val, Test: o.test, Fresh: o.fresh, Stdin: c.InOrStdin(), MinCount: o.minCount, Counted: o.counted, Split: run.split, Seed: run.seed,
		OnBadRow: run.onBadRow, Memory: int64(o.memory), Out: run.out, Progress: show, Grow: o.grow,
	}
	config.Format.Dense.Columns = slices.Clone(format.Dense.Columns)
	if o.lists != nil {
		if config.Lists, err = o.lists.set(); err != nil {
			return config, err
		}
		if config.Share, err = o.lists.sharing(); err != nil {
			return config, err
		}
	}
	var known []string // names of fields that stay
	if o.vocabulary != "" {
		if config.Vocabulary, err = ingest.ReadVocabulary(o.vocabulary, int64(o.memory), o.oov); err != nil {
			return config, err
		}
		known = slices.Clone(config.Vocabulary.Names)
	}
	var ck *checkpoint.Checkpoint
	if o.model != "" {
		if ck, err = checkpoint.ReadOutput(o.model, o.output); err != nil {
			return config, err
		}
		if k := ck.Known(); k.Fields != nil {
			known = append(known, k.FieldNames()...)
		}
	}
	config.Format.Columns = ownNames(&config.Format, known)
	if o.vocabulary != "" {
		info, err := os.Stat(o.vocabulary)
		if err == nil && !info.IsDir() && o.grow {
			return config, fault.Usagef("--grow: %s is a file, expected the folder of a dataset", o.vocabulary)
		}
		if err == nil && info.IsDir() {
			if c.Flags().Lookup("columns") != nil && format.Columns == nil {
				// Another log may have its columns in another order. The fields are those of
				// the earlier dataset, in its order.
				for _, name := range config.Vocabulary.Names {
					config.Format.Columns = append(config.Format.Columns, ingest.Column{Name: name})
				}
			}
			d, err := dataset.Open(o.vocabulary)
			if err != nil {
				return config, err
			}
			if err := inputsOf(d).adopt(&config.Format.Dense, c.Flags().Lookup("dense") != nil); err != nil {
				return config, err
			}
			if o.lists != nil {
				config.Lists.Adopt(d, config.Format.Columns)
			}
		}
	}
	if o.model != "" {
		config.Sizes = ck.Architecture.FieldDims
		given := config.Format.Columns
		if format.Columns != nil {
			given = format.Columns
		}
		if err := checkComputed(ck, given); err != nil {
			return config, err
		}
		if o.lists != nil {
			if err := o.lists.adopt(&config.Lists, ck); err != nil {
				return config, err
			}
			if len(config.Share) == 0 {
				config.Share = ingest.ModelSharing(&ck.Architecture, ck.Fields)
			}
		} else if len(ck.Architecture.Lists) > 0 {
			return config, fault.Inputf("%s has lists, which these files do not have", o.model)
		}
		if config.Format.Columns == nil && c.Flags().Lookup("columns") != nil {
			for _, name := range ck.Known().FieldNames() { // in the model's order
				config.Format.Columns = append(config.Format.Columns, ingest.Column{Name: name})
			}
			given = config.Format.Columns
		}
		if err := checkOrder(given, ck.Known()); err != nil {
			return config, err
		}
		return config, adoptModel(ck.Known(), &config.Format.Dense)
	}
	return config, nil
}

// place matches what names a place in an input of a graph, such as ids[0]. A graph has no better name for it.
var place = regexp.MustCompile(`\[\d+(:\d+)?\]`)

// ownNames returns the columns of f. The field of a column whose name is a place has the column's own name in all that
// follows, unless known has the place, or the dataset could not have the name.
func ownNames(f *ingest.Format, known []string) []ingest.Column {
	columns, names, inputs := slices.Clone(f.Columns), []string{}, []string{}
	for _, c := range columns {
		names = append(names, cmp.Or(c.As, c.Name))
	}
	for _, d := range f.Dense.Columns {
		inputs = append(inputs, cmp.Or(d.Input.Name, d.Name))
	}
	for i, c := range columns {
		if !place.MatchString(c.As) || slices.Contains(known, c.As) {
			continue
		}
		if names[i] = c.Name; (&arrowio.RowForm{Fields: names, Dense: inputs}).CheckColumns() == nil {
			columns[i].As = ""
		} else {
			names[i] = c.As
		}
	}
	return columns
}

// checkOrder returns bad input if the columns have the names of the model's fields in another order, or as many
// other names although the model says which fields it was trained with.
func checkOrder(columns []ingest.Column, k *model.Known) error {
	var fields []string
	names := k.FieldNames()
	for _, c := range columns {
		name := cmp.Or(c.As, c.Name)
		if place.MatchString(name) && !slices.Contains(names, name) {
			name = c.Name // which the model may know; see ownNames
		}
		fields = append(fields, name)
	}
	switch {
	case slices.Equal(fields, names):
		return nil
	case slices.Equal(slices.Sorted(slices.Values(fields)), slices.Sorted(slices.Values(names))):
	case k.Fields == nil || len(fields) != len(names):
		return nil
	default:
		for j, c := range columns {
			if fields[j] != names[j] && !slices.Contains(fields, names[j]) {
				return fault.Setting(fault.Inputf("field %d of the rows is %s, and that of %s is %s: if they are the same, name the column %s=%s", j, fields[j], k.File, names[j], c.Name, names[j]), ingest.ColumnsSetting)
			}
		}
	}
	return fault.Setting(fault.Inputf("the fields of the rows are %s, but those of %s are %s: expected the order of the model", strings.Join(fields, ", "), k.File, strings.Join(names, ", ")), ingest.ColumnsSetting)
}

// importRaw imports raw files, for several commands.
func (o *rawOptions) importRaw(c *cobra.Command, run *importRun, format ingest.Format, files []string) error {
	if err := run.check(c); err != nil {
		return err
	}
	// Without a limit, the garbage may grow as large as the memory in use.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(o.memory) / 10 * 9))
	return run.run(c, func(show ingest.Progress) (*ingest.Summary, error) {
		config, err := o.config(c, run, format, files, show)
		if err == nil && o.tables != nil {
			err = o.tables.apply(c.Context(), &config)
		}
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
		flag := map[string]string{
			ingest.IDsSetting: "--ids global", ingest.SizesSetting: sizes, ingest.SplitSetting: "--split", ingest.MemorySetting: "--memory",
			ingest.MinCountSetting: "--min-count", ingest.NumbersSetting: "--numbers", ingest.ColumnsSetting: "--columns", ingest.UnseenSetting: "--oov",
			ingest.DenseSetting: "--dense", ingest.DenseMissingSetting: "--dense-missing",
			ingest.ListSetting: "--list", ingest.ListSeparatorSetting: "--list-separator", ingest.PadSetting: "--pad", ingest.ShareSetting: "--share",
			ingest.LongSetting: "--long-lists", ingest.LabelSetting: "--label", ingest.WeightSetting: "--weight", ingest.NumberLabelsSetting: "--labels " + dataset.NumberLabels, ingest.PositiveSetting: "such as --positive yes", ingest.BadRowSetting: "--on-bad-row skip", ingest.VocabularySetting: "--vocabulary",
		}[name]
		if flag != "" { // else the setting is not one of an import
			flags = append(flags, flag)
		}
	}
	if len(flags) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(flags, ", "))
}

// rawCommand returns an import command for files in one format.
func rawCommand(use, short, long, example string, minCount int64, counted string, lists *listOptions, more func(c *cobra.Command, raw *rawOptions), format func() (ingest.Format, error)) *cobra.Command {
	run, raw := importRun{lists: lists}, rawOptions{lists: lists}
	c := &cobra.Command{
		Use: use + " FILE...", Short: short, Long: long + "\n\n" + help.Text("import-ids"), Example: example, Args: cli.Args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cli.FileArgs(),
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
	flags.Model(c, &raw.model, "checkpoint `file` whose field sizes the vocabulary must have (default any sizes)")
	flags.ModelOutput(c, &raw.output)
	cli.Group(c, idFlags, "model", "model-output")
	if lists != nil {
		lists.flags(c)
		lists.shareFlag(c)
	}
	if more != nil {
		more(c, &raw)
	}
	return c
}

func importCriteoCommand() *cobra.Command {
	var rule string
	var numbers denseOptions
	return rawCommand("criteo", "Import Criteo's display advertising logs",
		help.Text("dataset-import-criteo"), `  shaver dataset import criteo day_*.gz --memory 4GiB --out data
  shaver dataset import criteo log.tsv --numbers log2 --split 8:1:1 --out data`, 10, ingest.CountAll, nil, func(c *cobra.Command, _ *rawOptions) {
			flags.Choice(c, &rule, "numbers", ingest.LnSquared, "`rule` for integers: ln-squared, log2, none, log1p, log1p-clipped or zscore", append([]string{ingest.LnSquared, ingest.Log2}, dense.Rules...)...)
			cli.Group(c, rowFlags, "numbers")
			numbers.missingFlag(c)
		}, func() (ingest.Format, error) {
			f, err := ingest.Criteo(rule)
			f.Dense.Missing = numbers.missing
			return f, err
		})
}

func importAvazuCommand() *cobra.Command {
	return rawCommand("avazu", "Import Avazu's click logs",
		help.Text("dataset-import-avazu"), "  shaver dataset import avazu train.gz --out data", 2, ingest.CountAll, nil, nil, func() (ingest.Format, error) { return ingest.Avazu(), nil })
}

func importKDDCommand() *cobra.Command {
	return rawCommand("kdd", "Import the logs of KDD Cup 2012, track 2",
		help.Text("dataset-import-kdd"), "  shaver dataset import kdd training.txt --memory 4GiB --out data", 10, ingest.CountAll, nil, nil, func() (ingest.Format, error) { return ingest.KDD(), nil })
}

func importTableCommand() *cobra.Command {
	var columns columnOptions
	var numbers denseOptions
	var lists listOptions
	var tables tableOptions
	c := rawCommand("parquet", "Import Parquet or Arrow IPC files",
		help.Text("dataset-import-parquet", "import-dense", "import-lists"), help.Text("dataset-import-parquet.example"), 2, ingest.CountTrain, &lists, func(c *cobra.Command, raw *rawOptions) {
			columns.flags(c)
			numbers.flags(c)
			raw.splitFlags(c)
			tables.flags(c)
			raw.tables = &tables
			split := c.Flags().Lookup("split")
			split.DefValue = ""
			split.Usage += " (default 8:1:1 without --val, --test and --fresh)"
			split.Value.Set("")
		}, func() (f ingest.Format, err error) {
			f = ingest.Tables()
			if f.Dense, err = numbers.set(); err != nil {
				return f, err
			}
			return f, columns.set(&f)
		})
	c.Aliases = []string{"arrow"}
	cli.Needed(c, "label", "split", "min-count", "model")
	return c
}

// columnOptions say which column is the label and which are the fields.
type columnOptions struct {
	label   string // names of the labels' columns, separated by commas
	weight  string
	from    int64
	text    string // of the label 1
	columns []string
	labels  labelOptions
}

func (o *columnOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.label, "label", "label", "`name` of the label column, or several separated by commas, of which all but the first may be empty in a row")
	f.StringVar(&o.weight, "weight", "", "`name` of the column that says how much a row counts, above 0 (default all rows count once)")
	f.Int64Var(&o.from, "label-from", 0, "smallest `count` that makes the label 1; 0 if labels are 0 and 1")
	f.StringVar(&o.text, "positive", "", "`text` of the label that means 1, such as yes; all others mean 0")
	f.StringSliceVar(&o.columns, "columns", nil, "`columns` that are fields, in this order, each NAME or NAME=FIELD (default the fields of the dataset in --vocabulary or those that --model names, else all columns except those of --label, --weight and --dense)")
	o.labels.flag(c)
	cli.Group(c, rowFlags, "label", "label-from", "positive", "weight", "columns")
}

func (o *columnOptions) set(f *ingest.Format) error {
	labels := strings.Split(o.label, ",")
	f.Label, f.Others, f.Weight, f.From, f.Positive = labels[0], labels[1:], o.weight, o.from, o.text
	if o.from < 0 {
		return fault.Usagef("--label-from %d: expected 0 or more", o.from)
	}
	var err error
	if f.Numbers, err = o.labels.numbers(); err != nil {
		return err
	}
	switch {
	case f.Numbers && o.from > 0:
		return fault.Usagef("--label-from makes labels 0 and 1: leave it out, or --labels %s", dataset.NumberLabels)
	case o.text != "" && (f.Numbers || o.from > 0):
		return fault.Usagef("--positive is for labels of two texts: leave it out, or --labels %s and --label-from", dataset.NumberLabels)
	}
	for _, text := range o.columns {
		name, as, _ := strings.Cut(text, "=")
		f.Columns = append(f.Columns, ingest.Column{Name: name, As: as})
	}
	return nil
}

// binaryLabels is the value of --labels if labels are 0 and 1.
const binaryLabels = "binary"

// labelOptions say what labels are.
type labelOptions struct{ labels string }

func (o *labelOptions) flag(c *cobra.Command) {
	flags.Choice(c, &o.labels, "labels", binaryLabels, "`form` of the labels: binary (0 or 1), or numbers such as ratings", binaryLabels, dataset.NumberLabels)
	cli.Group(c, rowFlags, "labels")
}

// numbers reports whether labels are numbers.
func (o *labelOptions) numbers() (bool, error) {
	if o.labels != binaryLabels && o.labels != dataset.NumberLabels {
		return false, fault.Usagef("--labels %s: expected %s or %s", o.labels, binaryLabels, dataset.NumberLabels)
	}
	return o.labels == dataset.NumberLabels, nil
}

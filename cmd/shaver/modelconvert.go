package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/steps"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/onnx/dissect"
	"shaver/internal/prune/cut"
)

// partFlags adds the flags that choose one of the models in a file.
func partFlags(c *cobra.Command, part *checkpoint.Options) {
	onnxFlags(c, &part.ONNX)
	c.Flags().StringVar(&part.StateDict, "state-dict", "", "`key` of the state dict in a .pth file that has several, for example ema (default the only one)")
}

// formFlags adds the flags of a form. values is the text of its encoding, which may also be one of
// the others.
func formFlags(c *cobra.Command, f *cut.Form, values *string, others ...string) {
	encodings := append(compact.EncodingNames(), others...)
	c.Flags().BoolVar(&f.Dense, "dense", false, "write every entry, also the dropped ones, which is the default of .onnx files; with --dense=false, store a table of one by its kept entries if that is smaller")
	c.Flags().StringVar(values, "values", string(compact.Float32), "`encoding` of the kept entries in the compact file: "+strings.Join(encodings, ", "))
	cli.Choices(c, "values", encodings...)
	cli.Renamed(c, "compact-onnx", "--dense=false")
}

// compactLine writes how many tables of an .onnx file are compact.
func compactLine(w io.Writer, t *cut.ONNXTables) {
	if t.Compact > 0 {
		fmt.Fprintf(w, "compact\t%d of %d tables\tstored by their kept entries\n", t.Compact, t.Tables)
	}
}

func modelConvertCommand() *cobra.Command {
	var form cut.Form
	var values string
	var outputs cli.Outputs
	var out cli.Output
	var part checkpoint.Options
	var pads, folders []string
	c := &cobra.Command{
		Use:               "convert IN OUT",
		Short:             "Convert a checkpoint to the compact or the dense form",
		Long:              help.Text("model-convert"),
		Example:           help.Text("model-convert.example"),
		ValidArgsFunction: cli.FileArgs(cli.Checkpoints...),
		Args:              cli.Args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if err := steps.CheckForm(c.Flags().Changed, &form, values, args[1]); err != nil {
				return err
			}
			if err := checkRows(c.Flags().Changed, &form, args[1]); err != nil {
				return err
			}
			if len(pads) > 0 && checkpoint.NamedONNX(args[1]) {
				return fault.Usagef("--pad is for safetensors files, because an .onnx file does not say which id fills a list, and %s is one", args[1])
			}
			var err error
			if part.Pads, err = parsePads(pads); err != nil {
				return err
			}
			outputs.Inputs(checkpoint.Files(args[0])...)
			outputs.Inputs(dataset.Files(folders...)...)
			outputs.Inputs(form.From)
			if form.Rows != "" {
				err = outputs.Check("OUT", args[1], cli.Unless(checkpoint.RowsWritten, "a file of rows"))
			} else if modelfile.Named(args[1]) {
				err = outputs.Check("OUT", args[1], cli.Unless(modelfile.Written, "a model"), modelfile.Extension)
			} else {
				err = steps.CheckModelOutput(&outputs, "OUT", args[1], args[0])
			}
			if err != nil {
				return err
			}
			result, err := form.Convert(args[0], part, args[1], folders...)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), result, func(w io.Writer) {
				if form.Rows != "" {
					fmt.Fprintf(w, "table\t%s\n", cli.Change(result.DenseTableBytes, result.TableBytes))
					fmt.Fprintf(w, "file\t%s\n", cli.Size(result.Bytes))
				} else {
					sizes(w, form.Full(args[1]), result.DenseTableBytes, result.TableBytes, result.DenseBytes, result.Bytes)
				}
				compactLine(w, &result.ONNXTables)
				fmt.Fprintf(w, "converted\t%s\n", result.Out)
				fmt.Fprintf(w, "kept\t%d of %d entries\n", result.Kept, result.Entries)
				if result.Renamed {
					fmt.Fprintln(w, "tensors\tnamed by shaver, so load_state_dict does not take them\tshaver prune --out pruned.onnx writes the graph, and shaver.prune in Python fills the module")
				}
			})
		},
	}
	formFlags(c, &form, &values)
	c.Flags().StringVar(&form.Rows, "rows", "", "write the tables only, as rows of FBGEMM and TorchRec of this `type`: "+strings.Join(checkpoint.RowTypes(), ", "))
	cli.Choices(c, "rows", checkpoint.RowTypes()...)
	c.Flags().StringVar(&form.From, "from", "", "with --rows, write only the rows that differ from those in this `file` of all rows of an earlier model (default all)")
	cli.Files(c, "from", "safetensors")
	partFlags(c, &part)
	c.Flags().StringArrayVar(&pads, "pad", nil, "`FIELD=ID` for the id of a list's positions without a value, or FIELD=none; repeat it for each list")
	flags.Dataset(c, &folders, "dataset `folder` of the training; the new file says that the model has its fields, vocabularies and rules of dense inputs (default what IN says)")
	outputs.Flag(c, "a file OUT that is not a model written by shaver, or any .onnx file")
	out.Flag(c)
	return c
}

// checkRows returns an error if the type of rows is unknown, or does not go with the other flags and the name of OUT.
func checkRows(given cli.Given, f *cut.Form, path string) error {
	if !given.Has("rows") {
		if given.Has("from") {
			return fault.Usagef("--from needs --rows: only rows are compared with those of another file")
		}
		return nil
	}
	if given.Has("from") && f.From == "" {
		return fault.Usagef(`--from "": expected the name of a file`)
	}
	if !slices.Contains(checkpoint.RowTypes(), f.Rows) {
		return fault.Refuse("rows", f.Rows, "expected one of "+strings.Join(checkpoint.RowTypes(), ", "))
	}
	for _, name := range []string{"dense", "values", "dataset"} {
		if given.Has(name) {
			return fault.Usagef("--%s is for a model; --rows writes the tables only", name)
		}
	}
	if !strings.HasSuffix(path, ".safetensors") {
		return fault.Usagef("OUT is %s: --rows writes a safetensors file; expected the extension .safetensors", path)
	}
	return nil
}

// parsePads returns the pads of fields from texts such as hist=0 and tags=none.
func parsePads(texts []string) (map[string]int, error) {
	var pads map[string]int
	for _, text := range texts {
		at := strings.LastIndexByte(text, '=')
		if at < 1 {
			return nil, fault.Usagef("--pad %q: expected FIELD=ID or FIELD=none", text)
		}
		field, id := text[:at], -1
		if value := text[at+1:]; value != "none" {
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				return nil, fault.Usagef("--pad %q: expected an id of at least 0 after =, or none", text)
			}
			id = int(n)
		}
		if _, ok := pads[field]; ok {
			return nil, fault.Usagef("--pad %q: the pad of %s is set twice", text, field)
		}
		if pads == nil {
			pads = map[string]int{}
		}
		pads[field] = id
	}
	return pads, nil
}

// onnxFlags adds the flags that say how the output of an .onnx file is understood.
func onnxFlags(c *cobra.Command, o *dissect.Options) {
	c.Flags().StringVar(&o.Output, "model-output", "", "`name` of the output of an .onnx file, or NAME[I] for one of its numbers (default the only one)")
	c.Flags().BoolVar(&o.Logit, "logit", false, "take the output of an .onnx file as the logit, whatever computes it")
}

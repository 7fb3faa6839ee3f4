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
	"shaver/internal/click/compact"
)

// formOptions say in which form a model is written.
type formOptions struct {
	dense       bool
	values      string
	compactONNX bool
}

// partFlags adds the flags that choose one of the models in a file.
func partFlags(c *cobra.Command, part *checkpoint.Options) {
	onnxFlags(c, &part.ONNX)
	c.Flags().StringVar(&part.StateDict, "state-dict", "", "`key` of the state dict in a .pth file that has several, for example ema (default the only one)")
}

func (o *formOptions) flags(c *cobra.Command) {
	c.Flags().BoolVar(&o.dense, "dense", false, "write a safetensors file with every entry, also the dropped ones")
	c.Flags().StringVar(&o.values, "values", string(compact.Float32), "`encoding` of the kept entries in the compact file: "+strings.Join(valueNames(), ", "))
	cli.Choices(c, "values", valueNames()...)
	c.Flags().BoolVar(&o.compactONNX, "compact-onnx", false, "store a table of an .onnx file by its distinct rows if that is smaller")
}

// valueNames returns the values of --values.
func valueNames() []string {
	var names []string
	for _, v := range compact.Encodings() {
		names = append(names, string(v))
	}
	return names
}

// check checks the flags for a model that is written to path.
func (o *formOptions) check(c *cobra.Command, path string) error {
	switch {
	case isONNX(path) && o.dense:
		return fault.Usagef("--dense is for safetensors files; an .onnx file is dense without --compact-onnx")
	case isONNX(path) && c.Flags().Changed("values"):
		return fault.Usagef("--values is for the compact safetensors file; an .onnx file keeps the types of its tables")
	case !isONNX(path) && o.compactONNX:
		return fault.Usagef("--compact-onnx is for .onnx files, and %s is not one", path)
	}
	if o.stored().Size() == 0 {
		return fault.Usagef("--values %q: expected one of %s", o.values, strings.Join(valueNames(), ", "))
	}
	if o.dense && c.Flags().Changed("values") {
		return fault.Usagef("--values is for the compact file; a dense file has float32")
	}
	return nil
}

// full reports whether the file at path stores every entry, also the dropped ones.
func (o *formOptions) full(path string) bool { return o.dense || isONNX(path) && !o.compactONNX }

func (t *onnxTables) table(w io.Writer) {
	if t.Compact > 0 {
		fmt.Fprintf(w, "compact\t%d of %d tables\tstored by their distinct rows\n", t.Compact, t.Tables)
	}
}

func (o *formOptions) stored() compact.Encoding { return compact.Encoding(o.values) }

// conversion is what "model convert" prints.
type conversion struct {
	Out             string `json:"out"`
	Entries         int    `json:"entries"`
	Kept            int    `json:"kept"`
	TableBytes      int64  `json:"table_bytes"`
	DenseTableBytes int64  `json:"dense_table_bytes"`
	Bytes           int64  `json:"bytes"`
	DenseBytes      int64  `json:"dense_bytes"` // size of the same model as a dense file; of the .onnx file IN if OUT is one
	onnxTables
}

// onnxTables says how the tables of an .onnx file are stored. It is empty for other files.
type onnxTables struct {
	Tables  int `json:"onnx_tables,omitempty"`
	Compact int `json:"compact_tables,omitempty"` // stored by their distinct rows
}

func modelConvertCommand() *cobra.Command {
	var form formOptions
	var outputs cli.Outputs
	var out cli.Output
	var part checkpoint.Options
	var pads []string
	c := &cobra.Command{
		Use:               "convert IN OUT",
		Short:             "Convert a checkpoint to the compact or the dense form",
		Long:              help("model-convert"),
		Example:           help("model-convert.example"),
		ValidArgsFunction: cli.FileArgs(cli.Checkpoints...),
		Args:              cli.Args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if err := form.check(c, args[1]); err != nil {
				return err
			}
			if len(pads) > 0 && isONNX(args[1]) {
				return fault.Usagef("--pad is for safetensors files, because an .onnx file does not say which id fills a list, and %s is one", args[1])
			}
			var err error
			if part.Pads, err = parsePads(pads); err != nil {
				return err
			}
			outputs.Inputs(checkpoint.Files(args[0])...)
			if err := checkModelOutput(&outputs, "OUT", args[1], args[0]); err != nil {
				return err
			}
			result, err := form.convert(args[0], part, args[1])
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), result, func(w io.Writer) {
				sizes(w, form.full(args[1]), result.DenseTableBytes, result.TableBytes, result.DenseBytes, result.Bytes)
				result.onnxTables.table(w)
				fmt.Fprintf(w, "converted\t%s\n", result.Out)
				fmt.Fprintf(w, "kept\t%d of %d entries\n", result.Kept, result.Entries)
			})
		},
	}
	form.flags(c)
	partFlags(c, &part)
	c.Flags().StringArrayVar(&pads, "pad", nil, "`FIELD=ID` for the id of a list's positions without a value, or FIELD=none; repeat it for each list")
	outputs.Flag(c, "a file OUT that is not a model written by shaver, or any .onnx file")
	out.Flag(c)
	return c
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

func (o *formOptions) convert(in string, part checkpoint.Options, out string) (*conversion, error) {
	ck, err := checkpoint.ReadPart(in, part)
	if err != nil {
		return nil, err
	}
	if _, err := ck.Model(); err != nil { // which checks that every tensor is present, fits and is finite
		return nil, err
	}
	dropped, baseline, err := ck.Pruned()
	if err != nil {
		return nil, err
	}
	result := &conversion{Out: out, Entries: len(dropped), TableBytes: ck.Footprint().Table, DenseTableBytes: ck.Footprint().Table, DenseBytes: ck.Size()}
	for _, gone := range dropped {
		if !gone {
			result.Kept++
		}
	}
	switch {
	case isONNX(out):
		var size *checkpoint.ONNXSize
		if size, err = checkpoint.WriteONNX(out, ck, checkpoint.ONNXOptions{Compact: o.compactONNX}); err == nil {
			result.TableBytes, result.Bytes, result.DenseBytes, result.onnxTables = size.TableBytes, size.Bytes, size.Before, onnxTables{size.Tables, size.Compact}
		}
	case o.dense:
		result.Bytes, err = checkpoint.WriteDense(out, ck)
	default:
		result.TableBytes = ck.CompactFootprint(dropped, o.stored()).Table
		result.Bytes, err = checkpoint.WriteCompact(out, ck, dropped, baseline, o.stored())
	}
	return result, err
}

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/composed"
	"shaver/internal/click/inspect"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/onnx/dissect"
)

// storageTable prints the storage. names are the names of the fields, or nil.
func storageTable(w io.Writer, s *inspect.Storage, names []string) {
	if t := s.Table; t != nil {
		fmt.Fprintf(w, "table\t%s\t%d parameters, %s\n", t.Scheme, *s.Kept, composedText(t))
		return
	}
	if s.Kept == nil {
		return
	}
	fmt.Fprintf(w, "pruned\t%d kept\t%s values\n", *s.Kept, s.Values)
	for _, q := range s.Palette {
		fmt.Fprintf(w, "quantizer\t%d bits\t%s%d rows, %d kept\n", q.Bits, quantizerText(&q), q.Rows, q.Kept)
	}
	for _, f := range s.Stored {
		name := cli.Printable(inspect.FieldName(names, f.Span.Field))
		if f.Table != "" {
			name += " in " + cli.Printable(f.Table)
		}
		words := ""
		if f.Words > 0 {
			words = fmt.Sprintf(", %d words", f.Words)
		}
		fmt.Fprintf(w, "field %s\t%d of %d kept\t%s, %d rows, %d bytes%s\n", name, f.Kept, f.Span.Rows*f.Span.Dim, f.Form, f.Rows, f.Bytes, words)
	}
}

// quantizerText describes the values of a quantizer, unless they are float16 or float32 numbers.
func quantizerText(q *inspect.StoredQuantizer) string {
	if q.Bits > 8 {
		return ""
	}
	return fmt.Sprintf("%.4g to %.4g, ", q.Origin, q.Origin+q.Step*float32(uint32(1)<<q.Bits-1))
}

// composedText describes the tensors of a composed table.
func composedText(s *composed.Shape) string {
	switch s.Scheme {
	case composed.QR:
		return fmt.Sprintf("divider %d", s.Divider)
	case composed.CERP:
		return fmt.Sprintf("2 tables of %d rows", s.Buckets)
	}
	text := fmt.Sprintf("%d cores with rows %v, columns %v and ranks %v", len(s.Rows), s.Rows, s.Columns, s.Ranks)
	if s.Cached > 0 {
		text += fmt.Sprintf(", %d cached features", s.Cached)
	}
	return text
}

func modelInspectCommand() *cobra.Command {
	var folders []string
	var part checkpoint.Options
	var out cli.Output
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Print a checkpoint's architecture, sizes and digest",
		Long:  help.Text("model-inspect"),
		Example: `  shaver model inspect model.pth
  shaver model inspect pruned.safetensors --dataset data
  shaver model inspect model.onnx`,
		ValidArgsFunction: cli.FileArgs(append([]string{"onnx"}, cli.Checkpoints...)...),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: cli.Run(func(c *cobra.Command, args []string) error {
			if checkpoint.NamedONNX(args[0]) {
				if len(folders) > 0 || part.StateDict != "" {
					return fault.Usagef("--dataset and --state-dict are for state dicts, but %s is an .onnx file", args[0])
				}
				facts, err := inspect.ONNX(args[0], part.ONNX)
				if facts != nil {
					if err := out.Print(c.OutOrStdout(), facts, func(w io.Writer) { onnxTable(w, facts) }); err != nil {
						return err
					}
				}
				return withOnnxFlags(err)
			}
			if part.ONNX != (dissect.Options{}) {
				return fault.Usagef("--model-output and --logit are for .onnx files, but %s is another file", args[0])
			}
			ck, err := checkpoint.ReadPart(args[0], part)
			if err != nil {
				return err
			}
			m, err := ck.Model() // which checks that every tensor is present, fits and is finite
			if err != nil {
				return err
			}
			var names []string // of the dataset
			if len(folders) > 0 {
				d, err := dataset.OpenAll(folders)
				if err != nil {
					return err
				}
				if d, err = d.For(&ck.Architecture, ck.Known()); err != nil {
					return err
				}
				names = d.Fields()
			}
			if ck.Architecture.Kind == model.Graph {
				if names == nil {
					names = ck.Known().FieldNames()
				}
				facts := inspect.Graph(ck, m, names)
				return out.Print(c.OutOrStdout(), facts, func(w io.Writer) { onnxTable(w, facts) })
			}
			facts := inspect.Model(ck)
			if names != nil {
				facts.FieldNames = names
			}
			return out.Print(c.OutOrStdout(), facts, func(w io.Writer) { modelTable(w, facts) })
		}, out.Check),
	}
	partFlags(c, &part)
	flags.Dataset(c, &folders, "dataset `folder`, for the names of the fields (default no names)")
	out.Flag(c)
	return c
}

func modelTable(w io.Writer, f *inspect.Facts) {
	fmt.Fprintf(w, "architecture\t%s\n", strings.TrimSpace(fmt.Sprint(f.Architecture, " ", f.Structure)))
	if f.Framework != "" {
		fmt.Fprintf(w, "framework\t%s\n", f.Framework)
	}
	for _, assumed := range f.Assumed {
		fmt.Fprintf(w, "assumed\t%s\n", assumed)
	}
	fmt.Fprintf(w, "fields\t%d\tfeatures: %s\n", f.Fields, sizesText(f))
	fmt.Fprintf(w, "vocabulary\t%s\n", vocabularyText(f.Vocabulary))
	fmt.Fprintf(w, "embedding\t%d x %d\t%d parameters\n", f.Features, f.Dim, f.Parameters)
	fmt.Fprintf(w, "players per row\t%d\t%d fields x %d columns\n", f.Players, f.Fields, f.Dim)
	storageTable(w, &f.Storage, f.FieldNames)
	if len(f.Hidden) > 0 {
		fmt.Fprintf(w, "hidden layers\t%v\n", f.Hidden)
	}
	if f.CrossLayers > 0 {
		fmt.Fprintf(w, "cross layers\t%d\n", f.CrossLayers)
	}
	if f.Experts > 0 {
		fmt.Fprintf(w, "experts\t%d of rank %d\n", f.Experts, f.Rank)
	}
	fmt.Fprintf(w, "tensors\t%d\tembedding in %s\n", f.Tensors, cli.Printable(f.EmbeddingKey))
	fmt.Fprintf(w, "digest\t%s\n", f.Digest)
}

// vocabularyText returns the beginning of the digest of each field's vocabulary.
func vocabularyText(known []model.Identity) string {
	if known == nil {
		return "unknown\tshaver model convert --dataset writes a file that says it"
	}
	var all []string
	for _, f := range known {
		all = append(all, fmt.Sprintf("%s %.12s", cli.Printable(f.Name), f.Vocabulary))
	}
	return strings.Join(all, ", ")
}

// sizesText returns the sizes of the fields, after their names if these are known.
func sizesText(f *inspect.Facts) string {
	var all []string
	for j, size := range f.FieldDims {
		text := strconv.Itoa(size)
		if f.FieldNames != nil {
			text = cli.Printable(f.FieldNames[j]) + " " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

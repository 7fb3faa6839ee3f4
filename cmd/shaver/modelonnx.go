package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/inspect"
	"shaver/internal/onnx/dissect"
)

// withOnnxFlags adds to an error of package dissect the flags that may avoid it.
func withOnnxFlags(err error) error {
	flags := map[string]string{dissect.OutputSetting: "--model-output", dissect.LogitSetting: "--logit"}
	var names []string
	for _, name := range fault.Settings(err) {
		if flags[name] != "" {
			names = append(names, flags[name])
		}
	}
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(names, ", "))
}

// fewNames joins the first names.
func fewNames(names []string) string {
	const most = 3
	if len(names) > most {
		names = append(slices.Clone(names[:most]), "...")
	}
	return strings.Join(names, ", ")
}

// padText describes a list.
func padText(p *inspect.Pad, length int) string {
	if p.Source == checkpoint.PadBelow {
		return fmt.Sprintf("a list of %d, pad below 0", length)
	}
	if p.ID < 0 {
		return fmt.Sprintf("a list of %d, no pad (%s)", length, p.Source)
	}
	return fmt.Sprintf("a list of %d, pad %d (%s)", length, p.ID, p.Source)
}

// onnxTable prints the facts about an .onnx file, or about a graph in a file of our own.
func onnxTable(w io.Writer, f *inspect.ONNXFacts) {
	what := f.Architecture
	if f.FastPath {
		what = strings.TrimSpace(f.Architecture+" "+f.Structure) + " (recognized in an ONNX graph; fast path)"
	}
	form := "a file of shaver's own"
	if f.IR > 0 {
		form = fmt.Sprintf("ONNX, operator set %d, format %d", f.Opset, f.IR)
	}
	fmt.Fprintf(w, "architecture\t%s\t%s\n", what, form)
	if f.Producer != "" {
		fmt.Fprintf(w, "producer\t%s\n", cli.Printable(f.Producer))
	}
	if f.NotUnderstood == "" || len(f.Fields) > 0 {
		understoodTable(w, f)
	}
	if f.Digest != "" {
		fmt.Fprintf(w, "vocabulary\t%s\n", vocabularyText(f.Vocabulary))
	}
	if len(f.Hidden) > 0 {
		fmt.Fprintf(w, "hidden layers\t%v\n", f.Hidden)
	}
	if f.CrossLayers > 0 {
		fmt.Fprintf(w, "cross layers\t%d\n", f.CrossLayers)
	}
	total := 0
	var names []string
	for _, o := range f.Operators {
		total += o.Count
		names = append(names, cli.Printable(fmt.Sprint(o.Name, " ", o.Count)))
	}
	what = "head"
	if len(f.Fields) == 0 {
		what = "graph"
	}
	fmt.Fprintf(w, "%s\t%d operators\t%s\n", what, total, strings.Join(names, ", "))
	if f.Generic != "" {
		fmt.Fprintf(w, "fast path\tno\t%s\n", cli.Printable(f.Generic))
	}
	for _, note := range f.Notes {
		fmt.Fprintf(w, "note\t%s\n", cli.Printable(note))
	}
	if f.NotUnderstood != "" {
		fmt.Fprintf(w, "not understood\t%s\n", cli.Printable(f.NotUnderstood))
	}
	if f.Tensors > 0 {
		fmt.Fprintf(w, "tensors\t%d\n", f.Tensors)
	}
	if f.Digest != "" {
		fmt.Fprintf(w, "digest\t%s\n", f.Digest)
	}
}

// understoodTable prints what is known only about a model that is understood.
func understoodTable(w io.Writer, f *inspect.ONNXFacts) {
	switch {
	case f.Output != "":
		fmt.Fprintf(w, "output\t%s\tlogit: %s\n", cli.Printable(f.Output), cli.Printable(f.Logit))
	case f.Logit != "":
		fmt.Fprintf(w, "logit\t%s\n", cli.Printable(f.Logit))
	}
	fmt.Fprintf(w, "fields\t%d\n", len(f.Fields))
	for _, field := range f.Fields {
		var tables []string
		for _, t := range field.Tables {
			text := fmt.Sprintf("%s %d x %d", cli.Printable(t.Name), t.Rows, t.Dim)
			if t.Offset > 0 {
				text += fmt.Sprintf(" from row %d", t.Offset)
			}
			if !t.Player {
				text += " (first order)"
			}
			if len(t.SharedWith) > 0 {
				text += " (shared with " + cli.Printable(fewNames(t.SharedWith)) + ")"
			}
			tables = append(tables, text)
		}
		ids := "ids"
		if field.Float {
			ids = "float32 ids"
		}
		if field.Pad != nil {
			ids += ", " + padText(field.Pad, field.Length)
		}
		if len(field.Computed) > 0 {
			ids += ", computed from " + cli.Printable(fewNames(field.Computed))
		}
		fmt.Fprintf(w, "field %s\t%d %s\t%s\n", cli.Printable(field.Name), field.Rows, ids, strings.Join(tables, ", "))
	}
	fmt.Fprintf(w, "embedding\t%d parameters\n", f.Parameters)
	players := strconv.Itoa(f.Players)
	if slices.ContainsFunc(f.Fields, func(field inspect.ONNXField) bool { return field.Pad != nil }) {
		players = "at most " + players
	}
	fmt.Fprintf(w, "players per row\t%s\n", players)
	var names, dense []string
	for _, field := range f.Fields {
		names = append(names, field.Name)
	}
	storageTable(w, &f.Storage, names)
	for _, d := range f.Dense {
		text := cli.Printable(d.Name)
		if d.Standard != nil {
			text += " " + d.Standard.String()
		}
		dense = append(dense, text)
	}
	if len(dense) > 0 {
		fmt.Fprintf(w, "dense inputs\t%d\t%s\n", len(dense), strings.Join(dense, ", "))
	}
	for _, name := range f.Offsets {
		fmt.Fprintf(w, "bags\toffsets: %s\n", cli.Printable(name))
	}
}

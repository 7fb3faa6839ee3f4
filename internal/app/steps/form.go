package steps

import (
	"fmt"
	"slices"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/prune/cut"
)

// CheckForm checks the settings of a model that is written to path, and sets the encoding of f. values may also be one of
// the others, for which the caller sets the encoding.
func CheckForm(given cli.Given, f *cut.Form, values, path string, others ...string) error {
	onnx := checkpoint.NamedONNX(path)
	switch {
	case onnx && f.Dense:
		return fault.Usagef("--dense is for safetensors files; an .onnx file is dense without --compact-onnx")
	case onnx && given.Has("values"):
		return fault.Usagef("--values is for the compact safetensors file; an .onnx file keeps the types of its tables")
	case !onnx && f.CompactONNX:
		return fault.Usagef("--compact-onnx is for .onnx files, and %s is not one", path)
	}
	if f.Values = compact.Encoding(values); f.Values.Size() == 0 && !slices.Contains(others, values) {
		return fault.Refuse("values", values, "expected one of "+strings.Join(append(compact.EncodingNames(), others...), ", "))
	}
	if f.Dense && given.Has("values") {
		return fault.Usagef("--values is for the compact file; a dense file has float32")
	}
	return nil
}

// CheckModelOutput checks that the command may write the model of the file in, perhaps with
// pruned tables, to path, which the user gave as flag. An .onnx file need not say that shaver
// wrote it, so only --force replaces one.
func CheckModelOutput(outputs *cli.Outputs, flag, path, in string) error {
	if !checkpoint.NamedONNX(path) {
		return outputs.Check(flag, path, cli.Unless(checkpoint.Written, "a model"), ".safetensors")
	}
	if !checkpoint.IsONNX(in) {
		advice := ""
		if _, pruned := checkpoint.OriginsOf(in); pruned {
			advice = fmt.Sprintf(", or if it was pruned from one, shaver prune --out %s of that file", path)
		}
		return fault.Usagef("%s is %s, but %s is not an .onnx file: an .onnx file is written from an .onnx file only; expected another extension%s", flag, path, in, advice)
	}
	files, err := checkpoint.ONNXFiles(path, in)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := outputs.Check(flag, file, cli.Any); err != nil {
			return err
		}
	}
	return nil
}

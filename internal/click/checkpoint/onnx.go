package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// NamedONNX reports whether the name of a file says that it is an .onnx file.
func NamedONNX(path string) bool { return strings.EqualFold(filepath.Ext(path), ".onnx") }

// IsONNX reports whether the file at path is a graph of ONNX, or would be if it existed.
func IsONNX(path string) bool {
	return isONNX(path, files.Beginning(path, 8))
}

// isONNX reports whether a file is a graph of ONNX, from its path and its first bytes.
// Such a file begins with the version of the format, which is a small number, and
// continues with a field of another number. The length of a safetensors header, which is
// less than 2^32, has zeros in its upper half.
func isONNX(path string, head []byte) bool {
	if strings.EqualFold(filepath.Ext(path), ".onnx") {
		return true
	}
	return len(head) == 8 && head[0] == 8 && head[1] > 0 && head[1] < 128 && head[4]|head[5]|head[6]|head[7] != 0
}

// readONNX reads the graph at path as a model of another kind if it is one, else of Kind
// Graph.
func readONNX(path string, o Options) (*Checkpoint, error) {
	return readChanged(path, o, func(*wire.Model) error { return nil })
}

// readChanged is readONNX after change.
func readChanged(path string, o Options, change func(*wire.Model) error) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	file, err := wire.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := change(file); err != nil {
		return nil, err
	}
	n, err := dissect.Dissect(file, o.ONNX)
	if err != nil {
		return nil, withSettings(err)
	}
	c := &Checkpoint{Tensors: map[string]Tensor{}, name: path, Ignored: n.Ignored, logit: n.Logit, origin: &origin{info: info, options: o.ONNX, external: len(file.External()) > 0}}
	if !o.Generic {
		if found, dims, err := findKind(n); err == nil {
			if err := c.takeKnown(n, found, dims); err != nil {
				return nil, err
			}
			return c, c.takeMore(n, file.Metadata)
		}
	}
	c.EmbeddingKey, c.signature = graphEmbedding, newSignature(file, n)
	if err := c.takeNetwork(n); err != nil {
		return nil, err
	}
	return c, c.takeMore(n, file.Metadata)
}

// takeMore sets what the metadata of an .onnx file say, and the guards of the ids of n.
func (c *Checkpoint) takeMore(n *dissect.Network, metadata map[string]string) error {
	err := c.takeProperties(metadata)
	if err == nil {
		c.guards, err = c.describeComputed(n, func(f *dissect.Field) *dissect.Computed { return f.Guard })
	}
	return err
}

// withSettings adds to an error of package dissect the flags that may avoid it.
func withSettings(err error) error {
	ways := map[string]string{dissect.OutputSetting: "--model-output, which shaver model convert has too", dissect.LogitSetting: "shaver model convert with --logit"}
	var found []string
	for _, name := range fault.Settings(err) {
		found = append(found, ways[name])
	}
	if len(found) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(found, ", or "))
}

// takeNetwork makes c the model of n.
func (c *Checkpoint) takeNetwork(n *dissect.Network) error {
	text, weights := graph.Encode(n.Head)
	c.graph = &graphForm{Head: json.RawMessage(text), Output: n.Logit, Tasks: n.Tasks}
	c.Architecture = model.Architecture{Kind: model.Graph}
	for j, f := range n.Fields {
		c.Architecture.FieldDims = append(c.Architecture.FieldDims, f.Rows)
		c.graph.Fields = append(c.graph.Fields, f.Name)
		if f.Length > 1 {
			c.Architecture.Lists = append(c.Architecture.Lists, model.List{Field: j, Length: f.Length, Pad: f.Pad})
			c.graph.Pads = append(c.graph.Pads, SourceOfPad(&f))
		}
	}
	c.Fields = c.graph.Fields
	var err error
	if c.graph.Computed, err = c.describeComputed(n, func(f *dissect.Field) *dissect.Computed { return f.Computed }); err != nil {
		return err
	}
	for k, d := range n.Dense {
		c.Architecture.Dense = append(c.Architecture.Dense, d.Name)
		c.graph.Dense = append(c.graph.Dense, len(n.LookUps)+k)
	}
	for k, d := range n.IDs {
		c.graph.IDs = append(c.graph.IDs, graphIDs{Field: d.Field, Input: len(n.LookUps) + len(n.Dense) + k})
	}
	var order []int // numbers of the look-ups with players, by their fields
	constants := make([]bool, len(n.Tables))
	for k, l := range n.LookUps {
		if l.Player {
			order = append(order, k)
			continue
		}
		constants[l.Table] = true
		c.graph.Constants = append(c.graph.Constants, graphConstant{Table: n.Tables[l.Table].Name, Field: l.Field, Offset: l.Offset, Input: k})
	}
	slices.SortStableFunc(order, func(k, o int) int { return n.LookUps[k].Field - n.LookUps[o].Field })
	var tables []int // numbers of the tables with players, in the order of the look-ups
	for _, k := range order {
		l := &n.LookUps[k]
		at := slices.Index(tables, l.Table)
		if at < 0 {
			at = len(tables)
			tables = append(tables, l.Table)
			t := &n.Tables[l.Table]
			c.Architecture.Tables = append(c.Architecture.Tables, model.Table{Name: t.Name, Rows: t.Rows, Dim: t.Dim})
		}
		c.Architecture.LookUps = append(c.Architecture.LookUps, model.LookUp{Field: l.Field, Table: at, Offset: l.Offset})
		c.graph.LookUps = append(c.graph.LookUps, k)
		c.origin.take(n, k)
	}
	if err := c.checkFirstRows(); err != nil {
		return err
	}
	if err := c.Architecture.Validate(); err != nil {
		return fault.Inputf("%s: %w", c.name, err)
	}
	simplify(&c.Architecture)
	table, err := readTables(n, tables, embeddingShape(&c.Architecture))
	if err != nil {
		return fault.Inputf("%s: %w", c.name, err)
	}
	c.add(graphEmbedding, table)
	for t, is := range constants {
		if !is {
			continue
		}
		table, err := readTables(n, []int{t}, []int{n.Tables[t].Rows, n.Tables[t].Dim})
		if err != nil {
			return fault.Inputf("%s: %w", c.name, err)
		}
		c.add(graphKey(graphConstants, n.Tables[t].Name), table)
	}
	for _, w := range weights {
		c.add(graphKey(graphHead, w.Name), tensor.FromFloat32s(w.Shape, w.Floats))
	}
	return nil
}

// checkFirstRows returns an error if no look-up reads the first row of a table, because the
// graph adds a number to the ids. Such graphs may be trained with ids from -1.
func (c *Checkpoint) checkFirstRows() error {
	for t, table := range c.Architecture.Tables {
		first := table.Rows
		for _, l := range c.Architecture.LookUps {
			if l.Table == t {
				first = min(first, l.Offset)
			}
		}
		if first > 0 {
			return c.inputf("no id from 0 on reads the rows below %d of table %s, because the graph adds %d to the ids: add %d to the ids of the data and leave it out of the graph, or remove these rows if no id is below 0", first, tensor.Quote(table.Name), first, first)
		}
	}
	return nil
}

// SourceOfPad says where the pad of a list of an .onnx file is from.
func SourceOfPad(f *dissect.Field) PadSource {
	switch {
	case f.PadFound:
		return PadFound
	case f.PadBelow:
		return PadBelow
	}
	return PadAssumed
}

// setPads sets the pads of lists to those that a user gives, by the names of the fields. It
// refuses a list whose pad is below 0.
func (c *Checkpoint) setPads(pads map[string]int) error {
	for _, name := range slices.Sorted(maps.Keys(pads)) {
		j := slices.Index(c.Fields, name)
		k := slices.IndexFunc(c.Architecture.Lists, func(l model.List) bool { return l.Field == j })
		if j < 0 || k < 0 {
			var lists []string
			for _, l := range c.Architecture.Lists {
				lists = append(lists, tensor.Quote(c.Fields[l.Field]))
			}
			if lists == nil {
				return c.inputf("the model has no lists, so %s has no pad id", tensor.Quote(name))
			}
			return c.inputf("there is no list %s, expected one of: %s", tensor.Quote(name), strings.Join(lists, ", "))
		}
		if pad, size := pads[name], c.Architecture.FieldDims[j]; pad < -1 || pad >= size {
			return c.inputf("list %s has the pad id %d, expected 0 to %d", tensor.Quote(name), pad, size-1)
		}
		c.Architecture.Lists[k].Pad, c.graph.Pads[k] = pads[name], PadGiven
	}
	if c.graph == nil {
		return nil
	}
	if k := slices.Index(c.graph.Pads, PadBelow); k >= 0 {
		name := tensor.Quote(c.Fields[c.Architecture.Lists[k].Field])
		return c.inputf("the graph masks the ids below 0 of list %s, but ids are at least 0: give its table a row in front, add 1 to the ids, and export the model with the pad 0; if all lists are full, use shaver model convert with --pad %s=none", name, name)
	}
	return nil
}

// simplify makes a plain if all tables have the same number of columns, and the rows of
// the tables, one after another, are those of the fields in their order.
func simplify(a *model.Architecture) {
	if len(a.LookUps) != len(a.FieldDims) || len(a.Lists) > 0 {
		return
	}
	features, spans := a.Offsets(), a.Spans()
	if len(spans) < len(a.LookUps) { // some read the same rows
		return
	}
	for _, s := range spans {
		if s.LookUp != s.Field || s.Row != int(features[s.Field]) || s.Dim != a.Tables[0].Dim {
			return
		}
	}
	a.Dim, a.Tables, a.LookUps = a.Tables[0].Dim, nil, nil
}

// readTables reads some tables into one tensor of the given shape.
func readTables(n *dissect.Network, tables []int, shape []int) (Tensor, error) {
	count, _ := tensor.Count(shape)
	t := Tensor{DType: F32, Shape: shape, Data: make([]byte, 0, count*F32.Size())}
	for _, i := range tables {
		table := &n.Tables[i]
		step := max(1, 4096/table.Dim) // rows
		values := make([]float32, step*table.Dim)
		for row := 0; row < table.Rows; row += step {
			part := values[:min(step, table.Rows-row)*table.Dim]
			if err := table.Read(part, row); err != nil {
				return t, err
			}
			for _, v := range part {
				t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
			}
		}
	}
	return t, nil
}

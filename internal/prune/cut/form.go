package cut

import (
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
)

// Form says in which form a model is written. The name of the file decides whether it is an .onnx
// file, for which CompactONNX replaces Dense, or one of package modelfile, for which nothing counts.
type Form struct {
	Dense       bool             // write every entry, also the dropped ones
	Values      compact.Encoding // of the kept entries of a compact file
	CompactONNX bool             // store a table of an .onnx file by its kept entries, in the encoding Values, if that is smaller
	Rows        string           // one of checkpoint.RowTypes: write the tables only, as rows of this type; only for Convert
	From        string           // with Rows, a file of all rows of an earlier model: write only those that differ
}

// Full reports whether the file at path stores every entry, also the dropped ones.
func (f *Form) Full(path string) bool {
	return f.Dense || modelfile.Named(path) || checkpoint.NamedONNX(path) && !f.CompactONNX
}

// compact reports whether the file at path is a compact safetensors file.
func (f *Form) compact(path string) bool {
	return !f.Dense && f.Rows == "" && !modelfile.Named(path) && !checkpoint.NamedONNX(path)
}

// Sizes are the sizes of a model before and after it was written in a form.
type Sizes struct {
	TableBytes      int64 `json:"table_bytes"` // values, positions and codebook
	DenseTableBytes int64 `json:"dense_table_bytes"`
	Bytes           int64 `json:"bytes"`
	DenseBytes      int64 `json:"dense_bytes"` // size of the unpruned model as safetensors; of the .onnx file if an .onnx file is written
	ONNXTables
}

// ONNXTables says how the tables of an .onnx file are stored. It is empty for other files.
type ONNXTables struct {
	Tables  int `json:"onnx_tables,omitempty"`
	Compact int `json:"compact_tables,omitempty"` // stored by their kept entries
}

// sizes returns the sizes of ck without the dropped entries, which read baseline, except those of the file at out, and of tables with bits that differ.
func (f *Form) sizes(ck *checkpoint.Checkpoint, dropped []bool, baseline model.Baseline, out string) Sizes {
	table := ck.Footprint().Table
	s := Sizes{TableBytes: table, DenseTableBytes: table, DenseBytes: ck.Size()}
	if dropped != nil && f.compact(out) && f.Values != compact.Mixed {
		s.TableBytes = ck.CompactFootprint(dropped, baseline, f.Values).Table
	}
	return s
}

// writeONNX writes ck as an .onnx file, and sets the sizes.
func (s *Sizes) writeONNX(out string, ck *checkpoint.Checkpoint, o checkpoint.ONNXOptions) error {
	size, err := checkpoint.WriteONNX(out, ck, o)
	if err != nil {
		return err
	}
	s.TableBytes, s.Bytes, s.DenseBytes, s.ONNXTables = size.TableBytes, size.Bytes, size.Before, ONNXTables{size.Tables, size.Compact}
	return nil
}

// Conversion says what Convert wrote.
type Conversion struct {
	Out     string `json:"out"`
	Entries int    `json:"entries"`
	Kept    int    `json:"kept"`
	Renamed bool   `json:"-"` // the tensors have shaver's names, and not those of a module
	Sizes
}

// Convert writes the model in a file to another file in the form f. part is the part of the file.
// If there are folders, the new file says that the model has the fields, the vocabularies and the rules of the
// dataset in them, which must be those that the model knows, if it knows any.
func (f *Form) Convert(in string, part checkpoint.Options, out string, folders ...string) (*Conversion, error) {
	ck, err := checkpoint.ReadPart(in, part)
	if err != nil {
		return nil, err
	}
	if len(folders) > 0 {
		d, err := dataset.OpenAll(folders)
		if err != nil {
			return nil, err
		}
		if d, err = d.For(&ck.Architecture, ck.Known()); err != nil {
			return nil, err
		}
		ck.Identities, ck.Standards = d.Identities(), d.Standards()
	}
	m, err := ck.Model() // which checks that every tensor is present, fits and is finite
	if err != nil {
		return nil, err
	}
	dropped, baseline, err := ck.Pruned()
	if err != nil {
		return nil, err
	}
	r := &Conversion{Out: out, Entries: len(dropped), Kept: len(dropped) - count(dropped), Sizes: f.sizes(ck, dropped, baseline, out)}
	r.Renamed = f.Dense && !checkpoint.NamedONNX(out) && (ck.Architecture.Kind == model.Graph || checkpoint.IsONNX(in))
	switch {
	case f.From != "":
		r.TableBytes, r.Bytes, err = checkpoint.WriteRowsDelta(out, ck, f.Rows, f.From)
	case f.Rows != "":
		r.TableBytes, r.Bytes, err = checkpoint.WriteRows(out, ck, f.Rows)
	case modelfile.Named(out):
		var f *modelfile.File
		if f, err = modelfile.New(m, ck.Digest()); err == nil {
			r.Bytes, err = f.Write(out)
		}
	case checkpoint.NamedONNX(out):
		o := checkpoint.ONNXOptions{Dense: f.Dense}
		if f.CompactONNX {
			o.Kept = &checkpoint.Kept{Dropped: dropped, Baseline: baseline, Values: f.Values}
		}
		err = r.writeONNX(out, ck, o)
	case f.Dense:
		r.Bytes, err = checkpoint.WriteDense(out, ck)
	default:
		r.Bytes, err = checkpoint.WriteCompact(out, ck, dropped, baseline, f.Values)
	}
	return r, err
}

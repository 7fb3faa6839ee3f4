package checkpoint

import (
	"io"
	"os"
	"path/filepath"
	"slices"

	"shaver/internal/base/atomicfile"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/wire"
)

// origin says where the tables of a model are in the .onnx file from which it was read.
type origin struct {
	info     os.FileInfo
	options  dissect.Options
	external bool       // whether the file has external data
	lookUps  []tableRow // by look-up of the architecture, or by field if it is plain
}

// tableRow is a row of a table of an .onnx file.
type tableRow struct {
	table int // number among those of dissect.Network
	name  string
	row   int
}

// take appends the first row of look-up k.
func (o *origin) take(n *dissect.Network, k int) {
	l := &n.LookUps[k]
	o.lookUps = append(o.lookUps, tableRow{l.Table, n.Tables[l.Table].Name, l.Offset})
}

// Part is the rows that one look-up reads, under the name that their table has in the file
// of the model.
type Part struct {
	model.Span
	Name string // of the table
	From int    // number of the first row in that table
}

// Parts returns the parts of the embedding tables, in the order of their entries.
func (c *Checkpoint) Parts() []Part {
	a := &c.Architecture
	var parts []Part
	state := c.state()
	rows := 0 // of the tables before the part's
	table := 0
	for _, s := range a.Spans() {
		p := Part{s, c.EmbeddingKey, s.Row}
		keys := state.TableKeys(s.Field)
		switch {
		case c.origin != nil:
			p.Name, p.From = c.origin.lookUps[s.LookUp].name, c.origin.lookUps[s.LookUp].row
		case len(keys) == 1:
			p.Name, p.From = keys[0], 0
		case !a.Plain():
			for ; table < s.Table; table++ {
				rows += a.Tables[table].Rows
			}
			p.Name, p.From = a.Tables[s.Table].Name, s.Row-rows
		}
		parts = append(parts, p)
	}
	return parts
}

// ONNXFiles returns the files that WriteONNX writes to path for the model of the .onnx file
// from: path, and the file with external data if from has one, or is so large that the new
// file may need one.
func ONNXFiles(path, from string) ([]string, error) {
	m, err := wire.Open(from)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if len(m.External()) > 0 || m.Size() > wire.MaxFile/2 { // a table may take twice the bytes as raw_data
		return []string{path, DataFile(path)}, nil
	}
	return []string{path}, nil
}

// DataFile returns the path of the external data of the .onnx file at path.
func DataFile(path string) string { return path + ".data" }

// PathFile returns the path of the file with the steps that removed fields and columns of the model at path.
func PathFile(path string) string { return path + ".path.json" }

// ONNXSize describes the files of WriteONNX. Both sizes include external data.
type ONNXSize struct {
	Bytes      int64
	Before     int64 // size of the files from which the model was read
	TableBytes int64 // of the embedding tables, with the nodes that read compact ones
	Tables     int   // number of embedding tables
	Compact    int   // number of those that are stored by their kept entries
}

// ONNXOptions say how WriteONNX writes a model.
type ONNXOptions struct {
	// Kept stores the tables that get smaller by their kept entries; see wire.Model.Rewrite. Nil stores every entry.
	Kept *Kept
	// Dense refuses a file whose tables are compact. Without it, and without Kept, they stay so.
	Dense bool
	// Scale and Offset calibrate the logit z, which becomes Scale*z + Offset; see
	// onnx.Calibration. If both are 0, the logit stays the same.
	Scale, Offset float64
}

// CheckCalibration returns bad input if WriteONNX cannot calibrate c.
func (c *Checkpoint) CheckCalibration() error {
	file, n, err := c.reopen()
	if err != nil {
		return err
	}
	defer file.Close()
	return file.CheckEnd(n.End)
}

// External reports whether c was read from an .onnx file with external data.
func (c *Checkpoint) External() bool { return c.origin != nil && c.origin.external }

// reopen opens the .onnx file from which c was read. The caller must close the file.
func (c *Checkpoint) reopen() (*wire.Model, *dissect.Network, error) {
	if c.origin == nil {
		return nil, nil, c.inputf("an .onnx file is written from an .onnx file, expected one")
	}
	file, err := wire.Open(c.name)
	if err != nil {
		return nil, nil, err
	}
	info, err := os.Stat(c.name)
	if err != nil || !os.SameFile(info, c.origin.info) || info.Size() != c.origin.info.Size() || !info.ModTime().Equal(c.origin.info.ModTime()) {
		file.Close()
		return nil, nil, c.inputf("the file changed while it was in use")
	}
	n, err := dissect.Dissect(file, c.origin.options)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, n, nil
}

// WriteONNX writes the .onnx file from which c was read with the embedding tables of c. It
// writes path and, if the file has external data or the new one would exceed onnx.MaxFile,
// path with the extension .data behind it. Everything that o does not name stays the same. c
// may differ from the file in its embedding tables, its Identities, Standards, Origins and Scored only.
//
// If the content of a file cannot be written, the previous files, if any, are unchanged. If
// the program is killed between the two files, there is no file at path.
func WriteONNX(path string, c *Checkpoint, o ONNXOptions) (*ONNXSize, error) {
	file, n, err := c.reopen()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := c.newTables(file, n)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all.tensors, (*wire.Tensor).Compact); i >= 0 && o.Dense {
		return nil, c.inputf("table %s is compact, and an .onnx file does not get its entries back: write a safetensors file, or use the file before it was pruned", wire.Quote(all.tensors[i].Name))
	}
	tables, err := all.tables(o.Kept)
	if err != nil {
		return nil, err
	}
	var weights []*wire.Weight8
	if o.Kept != nil && len(o.Kept.Weights8) > 0 {
		if weights, err = all.weights8(); err != nil {
			return nil, err
		}
		weights = o.Kept.chosen(weights)
	}
	options := wire.Options{Weights8: weights, Data: filepath.Base(DataFile(path)), Metadata: c.properties()}
	if o.Scale != 0 || o.Offset != 0 {
		k := &wire.Calibration{End: n.End, Scale: float32(o.Scale), Offset: float32(o.Offset)}
		if !(k.Scale > 0) || !tensor.Finite(k.Scale) || !tensor.Finite(k.Offset) {
			return nil, c.inputf("the calibration by scale %g and offset %g exceeds the range of float32", o.Scale, o.Offset)
		}
		options.Calibration = k
	}
	r, err := file.Rewrite(tables, options)
	if err != nil {
		return nil, err
	}
	size := &ONNXSize{Bytes: r.Bytes + r.DataBytes, Before: file.Size(), TableBytes: r.TableBytes, Tables: len(tables), Compact: r.Compact}
	for _, near := range file.External() {
		if info, err := os.Stat(near); err == nil {
			size.Before += info.Size()
		}
	}
	return size, atomicfile.Write(path, func(w io.Writer) error {
		if _, err := r.WriteTo(w); err != nil || !r.External {
			return err
		}
		return atomicfile.Write(DataFile(path), func(w io.Writer) error {
			if _, err := r.WriteData(w); err != nil {
				return err
			}
			// The old .onnx file must not be read with the new data.
			if err := os.Remove(path); !os.IsNotExist(err) {
				return err
			}
			return nil
		})
	})
}

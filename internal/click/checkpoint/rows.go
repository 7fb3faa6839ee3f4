package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/compact"
	"shaver/internal/click/tensor"
)

// A file of rows has the embedding tables of a model as IntNBitTableBatchedEmbeddingBagsCodegen of FBGEMM stores them on a
// CPU, where rows are not aligned. It has nothing else of the model. It is a safetensors file with a tensor of type U8,
// [rows, bytes], for each table, under the name that the table has in the file of the model. A table ends with the last
// row that a field reads. The rows before it that no field reads are 0.
//
// A row of type float16 is its d values. A row of b = 8, 4 or 2 bits is
//
//	scale    float16
//	bias     float16
//	numbers  [d], b bits each, the first one in the lowest bits of the first byte
//
// and has the values bias + scale*number. The bias is the least value of the row, rounded to float16. The scale is
// (greatest value - bias)/(2^b-1), rounded to float16, or 1 if that is 0. A number is (value - bias)*(1/scale), rounded to
// the nearest whole number, ties to even, and limited to 0 and 2^b-1. All operations are in float32. The
// numbers take an even number of bytes.
//
// FBGEMM's FloatToFusedNBitRowwiseQuantizedSBHalf, with which TorchRec quantizes, gives the same bytes, but with the scale and
// the bias after the numbers. Only the sign of a bias of 0 may differ, if a row has both 0 and -0.
const metaTables = "shaver.tables" // JSON: rowsHeader

// rowsHeader is the value of the metadata shaver.tables.
type rowsHeader struct {
	Version int            `json:"version"`        // 1; 2 = a delta
	Rows    string         `json:"rows"`           // one of RowTypes
	Dims    map[string]int `json:"dims"`           // columns of each table
	From    string         `json:"from,omitempty"` // SHA-256 of the file to which a delta applies, hexadecimal
	To      string         `json:"to,omitempty"`   // SHA-256 of the file of all rows of the model of a delta, hexadecimal
}

const idsSuffix = ".ids" // after the name of a table: the ids of its rows in a delta

// rowBits are the bits of a value by the type of its row.
var rowBits = map[string]int{"int8": 8, "int4": 4, "int2": 2, "float16": 16}

// RowTypes returns the types of rows that WriteRows writes.
func RowTypes() []string { return []string{"int8", "int4", "int2", "float16"} }

// RowsWritten reports whether WriteRows wrote the file at path. It reads only the header.
func RowsWritten(path string) bool {
	metadata, err := tensor.Metadata(path)
	return err == nil && metadata[metaTables] != ""
}

// rowsFile is a file of all rows of a model.
type rowsFile struct {
	*tensor.File // without data
	c            *Checkpoint
	header       rowsHeader
	values       []float32
	pieces       map[string][]Piece // by table
}

// WriteRows writes the embedding tables of c, whose values are finite, to path as rows of a kind, which is one of RowTypes, all of them or
// nothing. It returns the lengths in bytes of the tensors and of the file. A number of columns that does not fit the
// type, and a row with a scale, a bias or a value that float16 cannot hold, are input errors.
func WriteRows(path string, c *Checkpoint, kind string) (table, size int64, err error) {
	r, err := newRowsFile(c, kind)
	if err != nil {
		return 0, 0, err
	}
	return r.write(path, r.File, nil)
}

func newRowsFile(c *Checkpoint, kind string) (*rowsFile, error) {
	values, err := c.floats(c.EmbeddingKey)
	if err != nil {
		return nil, err
	}
	bits, r := rowBits[kind], &rowsFile{nil, c, rowsHeader{Version: 1, Rows: kind, Dims: map[string]int{}}, values, map[string][]Piece{}}
	tensors := map[string]Tensor{}
	for _, p := range c.Pieces() {
		width := p.Width * bits / 8
		if bits < 16 {
			if multiple := 16 / bits; p.Width%multiple != 0 {
				return nil, c.inputf("table %s has %d columns, expected a multiple of %d for rows of %s: choose another type, such as float16", p.Name, p.Width, multiple, kind)
			}
			width += 4
		}
		r.header.Dims[p.Name], r.pieces[p.Name] = p.Width, append(r.pieces[p.Name], p)
		tensors[p.Name] = Tensor{DType: U8, Shape: []int{p.From + p.Rows, width}} // its last piece counts
	}
	r.File = tensor.NewFile(tensors, map[string]string{metaTables: string(mustMarshal(r.header))})
	return r, nil
}

// write writes f, which is r or a delta, to path, and after it the rows of r with the given ids, or all rows if ids is nil. It returns the
// lengths in bytes of the tensors and of the file.
func (r *rowsFile) write(path string, f *tensor.File, ids map[string][]byte) (table, size int64, err error) {
	for _, e := range f.Entries {
		table += int64(e.Elements() * e.DType.Size())
	}
	return table, f.Size(), atomicfile.Write(path, func(file io.Writer) error {
		w := bufio.NewWriterSize(file, 1<<20)
		if _, err := f.WriteTo(w); err != nil { // the header and the ids, because no table has data
			return err
		}
		for _, e := range r.Entries {
			n, row := e.Shape[0], make([]byte, e.Shape[1])
			if ids != nil {
				n = len(ids[e.Key]) / 8
			}
			for id := range n {
				if ids != nil {
					id = int(binary.LittleEndian.Uint64(ids[e.Key][8*id:]))
				}
				if err := r.put(row, e.Key, id); err != nil {
					return err
				}
				if _, err := w.Write(row); err != nil {
					return err
				}
			}
		}
		return w.Flush()
	})
}

// put sets row to the bytes of a row of a table.
func (r *rowsFile) put(row []byte, table string, id int) error {
	pieces := r.pieces[table]
	p := pieces[sort.Search(len(pieces), func(i int) bool { return pieces[i].From+pieces[i].Rows > id })]
	if id < p.From { // no field reads it
		clear(row)
		return nil
	}
	at := p.Entry + (id-p.From)*p.Dim + p.Column
	if err := putRow(row, r.values[at:at+p.Width], rowBits[r.header.Rows]); err != nil {
		return r.c.inputf("table %s, row %d: %w", table, id, err)
	}
	return nil
}

// WriteRowsDelta is WriteRows for the rows that differ from those in the file from, which WriteRows wrote for an earlier model, or that
// from lacks. For each table the new file has these n rows, U8 [n, bytes], and their numbers, I64 [n], ascending, under the name of
// the table with the suffix .ids. n may be 0. WriteRowsDelta reads from once, and keeps 8 bytes for each row that it writes. A
// file from that WriteRows did not write, or with other tables, other columns, another type or a longer table, is an input error. So is a
// table that has the name of the ids of another.
func WriteRowsDelta(path string, c *Checkpoint, kind, from string) (table, size int64, err error) {
	r, err := newRowsFile(c, kind)
	if err != nil {
		return 0, 0, err
	}
	f, ids, err := r.delta(from)
	if err != nil {
		return 0, 0, err
	}
	return r.write(path, f, ids)
}

// delta returns the delta of r from the file at path, without its rows, and the ids of each table.
func (r *rowsFile) delta(path string) (*tensor.File, map[string][]byte, error) {
	f, err := files.Open(path, "a file of rows")
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	from, to := sha256.New(), sha256.New()
	in := io.TeeReader(io.LimitReader(f, info.Size()), from)
	old, err := r.earlier(path, in, info.Size())
	if err != nil {
		return nil, nil, err
	}
	if _, err := r.WriteTo(to); err != nil {
		return nil, nil, err
	}
	buffered := bufio.NewReaderSize(in, 1<<20)
	tensors, changed := map[string]Tensor{}, map[string][]byte{}
	for i, e := range r.Entries {
		var ids []byte
		row, before := make([]byte, e.Shape[1]), make([]byte, e.Shape[1])
		for id := range e.Shape[0] {
			if err := r.put(row, e.Key, id); err != nil {
				return nil, nil, err
			}
			to.Write(row)
			known := id < old[i].Shape[0]
			if known {
				if _, err := io.ReadFull(buffered, before); err != nil {
					return nil, nil, fmt.Errorf("reading %s: %w", path, err)
				}
			}
			if !known || !bytes.Equal(row, before) {
				ids = binary.LittleEndian.AppendUint64(ids, uint64(id))
			}
		}
		changed[e.Key] = ids
		tensors[e.Key] = Tensor{DType: U8, Shape: []int{len(ids) / 8, e.Shape[1]}}
		tensors[e.Key+idsSuffix] = Tensor{DType: I64, Shape: []int{len(ids) / 8}, Data: ids}
	}
	header := rowsHeader{2, r.header.Rows, r.header.Dims, hex.EncodeToString(from.Sum(nil)), hex.EncodeToString(to.Sum(nil))}
	return tensor.NewFile(tensors, map[string]string{metaTables: string(mustMarshal(header))}), changed, nil
}

// earlier reads the header of the file of rows of an earlier model, and returns its tables, which are those of r in the same order.
func (r *rowsFile) earlier(name string, in io.Reader, size int64) ([]tensor.Entry, error) {
	text, err := tensor.ReadHeader(name, in, size)
	if err != nil {
		return nil, err
	}
	old, places, metadata, err := tensor.Placed(name, text, size-8-int64(len(text)))
	if err != nil {
		return nil, err
	}
	var header rowsHeader
	if json.Unmarshal([]byte(metadata[metaTables]), &header) != nil || header.Version != 1 {
		return nil, fault.Inputf("%s is not a file of all rows, which shaver model convert --rows writes without --from", name)
	}
	refuse := func(format string, args ...any) ([]tensor.Entry, error) {
		return nil, fault.Inputf("%s: "+format+": write all rows without --from", append([]any{name}, args...)...)
	}
	if header.Rows != r.header.Rows {
		return refuse("the rows are %s, and those of %s are to be %s", tensor.Quote(header.Rows), r.c.name, r.header.Rows)
	}
	end := 0
	for i := range max(len(old), len(r.Entries)) {
		if i == len(r.Entries) || i < len(old) && old[i].Key < r.Entries[i].Key {
			return refuse("%s has no table %s", r.c.name, old[i].Key)
		}
		e := r.Entries[i]
		if i == len(old) || old[i].Key != e.Key || places[i][0] != end {
			return refuse("table %s of %s is missing", e.Key, r.c.name)
		}
		if shape := old[i].Shape; old[i].DType != U8 || len(shape) != 2 || shape[1] != e.Shape[1] || shape[0] > e.Shape[0] {
			return refuse("table %s is %s %s, and that of %s U8 %s, expected as many bytes in a row and no more rows",
				e.Key, old[i].DType, tensor.ShapeText(shape), r.c.name, tensor.ShapeText(e.Shape))
		}
		if _, clash := r.pieces[e.Key+idsSuffix]; clash {
			return refuse("table %s%s of %s has the name of the ids of table %s", e.Key, idsSuffix, r.c.name, e.Key)
		}
		end = places[i][1]
	}
	return old, nil
}

// putRow sets row to the bytes of values.
func putRow(row []byte, values []float32, bits int) error {
	if bits == 16 {
		for i, v := range values {
			if _, err := putHalf(row[2*i:], "value", v); err != nil {
				return err
			}
		}
		return nil
	}
	bias, err := putHalf(row[2:], "least value", slices.Min(values))
	if err != nil {
		return err
	}
	most := uint(1)<<bits - 1
	scale, err := putHalf(row, "scale", (slices.Max(values)-bias)/float32(most))
	if err != nil {
		return err
	}
	if scale == 0 {
		scale, _ = putHalf(row, "scale", 1)
	}
	inverse, numbers := 1/scale, row[4:]
	clear(numbers)
	for i, v := range values {
		n := math.RoundToEven(float64((v - bias) * inverse))
		numbers[i*bits/8] |= byte(min(max(n, 0), float64(most))) << (i * bits % 8)
	}
	return nil
}

// putHalf sets the beginning of data to v, rounded to float16, and returns the rounded value.
func putHalf(data []byte, what string, v float32) (float32, error) {
	h, near := compact.Quantizer{Bits: 16}.Nearest(v)
	if max(v, -v) >= 65520 {
		return 0, fault.Inputf("the %s is %v, expected at most %v in magnitude for float16: convert to float32 with --dense", what, v, max(near, -near))
	}
	binary.LittleEndian.PutUint16(data, uint16(h))
	return near, nil
}

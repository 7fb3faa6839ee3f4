package checkpoint

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"slices"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
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
	Version int            `json:"version"` // 1
	Rows    string         `json:"rows"`    // one of RowTypes
	Dims    map[string]int `json:"dims"`    // columns of each table
}

// rowBits are the bits of a value by the type of its row.
var rowBits = map[string]int{"int8": 8, "int4": 4, "int2": 2, "float16": 16}

// RowTypes returns the types of rows that WriteRows writes.
func RowTypes() []string { return []string{"int8", "int4", "int2", "float16"} }

// RowsWritten reports whether WriteRows wrote the file at path. It reads only the header.
func RowsWritten(path string) bool {
	metadata, err := tensor.Metadata(path)
	return err == nil && metadata[metaTables] != ""
}

// WriteRows writes the embedding tables of c, whose values are finite, to path as rows of a kind, which is one of RowTypes, all of them or
// nothing. It returns the lengths in bytes of the tensors and of the file. A number of columns that does not fit the
// type, and a row with a scale, a bias or a value that float16 cannot hold, are input errors.
func WriteRows(path string, c *Checkpoint, kind string) (table, size int64, err error) {
	values, err := c.floats(c.EmbeddingKey)
	if err != nil {
		return 0, 0, err
	}
	bits, header := rowBits[kind], rowsHeader{1, kind, map[string]int{}}
	tensors, pieces := map[string]Tensor{}, map[string][]Piece{}
	for _, p := range c.Pieces() {
		width := p.Width * bits / 8
		if bits < 16 {
			if multiple := 16 / bits; p.Width%multiple != 0 {
				return 0, 0, c.inputf("table %s has %d columns, expected a multiple of %d for rows of %s: choose another type, such as float16", p.Name, p.Width, multiple, kind)
			}
			width += 4
		}
		header.Dims[p.Name], pieces[p.Name] = p.Width, append(pieces[p.Name], p)
		tensors[p.Name] = Tensor{DType: U8, Shape: []int{p.From + p.Rows, width}} // its last piece counts
	}
	f := tensor.NewFile(tensors, map[string]string{metaTables: string(mustMarshal(header))})
	for _, t := range tensors {
		table += int64(t.Elements())
	}
	return table, f.Size(), atomicfile.Write(path, func(file io.Writer) error {
		w := bufio.NewWriterSize(file, 1<<20)
		if _, err := f.WriteTo(w); err != nil { // the header, because no tensor has data
			return err
		}
		for _, e := range f.Entries {
			if err := c.writeTable(w, values, pieces[e.Key], e.Shape[1], bits); err != nil {
				return err
			}
		}
		return w.Flush()
	})
}

// writeTable writes the pieces of a table whose rows take width bytes.
func (c *Checkpoint) writeTable(w io.Writer, values []float32, pieces []Piece, width, bits int) error {
	next, data := 0, make([]byte, width)
	for _, p := range pieces {
		for ; next < p.From; next++ { // rows that no field reads
			if _, err := w.Write(make([]byte, width)); err != nil {
				return err
			}
		}
		for row := range p.Rows {
			at := p.Entry + row*p.Dim + p.Column
			if err := putRow(data, values[at:at+p.Width], bits); err != nil {
				return c.inputf("table %s, row %d: %w", p.Name, next, err)
			}
			if _, err := w.Write(data); err != nil {
				return err
			}
			next++
		}
	}
	return nil
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

package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/click/tensor"
)

// rowsOf writes c as rows, and returns the tensors of the file and its header.
func rowsOf(t *testing.T, c *Checkpoint, rows string) (map[string]Tensor, rowsHeader) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.safetensors")
	table, size, err := WriteRows(path, c, rows)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	tensors, metadata, _ := readTensors(t, path)
	var header rowsHeader
	if err := json.Unmarshal([]byte(metadata[metaTables]), &header); err != nil || !RowsWritten(path) {
		t.Errorf("metadata %v: %v", metadata, err)
	}
	for _, e := range tensors {
		table -= int64(len(e.Data))
	}
	if size != info.Size() || table != 0 {
		t.Errorf("%d bytes, expected %d; the tensors have %d fewer than stated", info.Size(), size, table)
	}
	return tensors, header
}

// readSample returns a model with the given values in its table.
func readSample(t *testing.T, path string, value func(i int) float32) (*Checkpoint, []float32) {
	t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join("..", "..", "..", "testdata", filepath.FromSlash(path))
	}
	c, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	table := make([]float32, c.Architecture.Parameters())
	for i := range table {
		table[i] = value(i)
	}
	return c.WithEmbedding(table), table
}

// Each row of a file is the definition, computed here in other steps, and reads its values with an error of at most
// half a scale, and the rounding of scale and bias.
func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, path := range []string{"onnx/dlrm.dynamo.onnx", "onnx/fuxictr-din.dynamo.onnx", "golden/deepfm.pth", "golden/neumf.pth"} {
		for name, bits := range rowBits {
			c, table := readSample(t, path, func(int) float32 { return float32(r.NormFloat64() * math.Exp(2*r.NormFloat64())) })
			if bits < 16 && slices.ContainsFunc(c.Pieces(), func(p Piece) bool { return p.Width%(16/bits) != 0 }) {
				continue
			}
			tensors, header := rowsOf(t, c, name)
			if len(tensors) != len(header.Dims) || header.Version != 1 || header.Rows != name {
				t.Errorf("%s: %d tensors, %+v", path, len(tensors), header)
			}
			for _, p := range c.Pieces() {
				stored := tensors[p.Name]
				if stored.DType != U8 || header.Dims[p.Name] != p.Width || stored.Shape[0] < p.From+p.Rows {
					t.Fatalf("%s: table %s is %s %v for %d columns", path, p.Name, stored.DType, stored.Shape, header.Dims[p.Name])
				}
				for row := range p.Rows {
					at := p.Entry + row*p.Dim + p.Column
					checkRow(t, stored.Data[(p.From+row)*stored.Shape[1]:][:stored.Shape[1]], table[at:at+p.Width], bits)
				}
			}
		}
	}
}

// checkRow checks the bytes of a row.
func checkRow(t *testing.T, row []byte, values []float32, bits int) {
	t.Helper()
	half := func(at int) float32 { return float32(tensor.Half(binary.LittleEndian.Uint16(row[at:]))) }
	round := func(v float32) float32 { _, near := compact.Quantizer{Bits: 16}.Nearest(v); return near }
	if bits == 16 {
		for i, v := range values {
			if len(row) != 2*len(values) || half(2*i) != round(v) {
				t.Fatalf("value %v reads %v", v, half(2*i))
			}
		}
		return
	}
	most := 1<<bits - 1
	scale, bias := half(0), half(2)
	if want := round(slices.Min(values)); bias != want {
		t.Fatalf("bias %v, expected %v", bias, want)
	}
	if want := round((slices.Max(values) - bias) / float32(most)); scale != want && (want != 0 || scale != 1) {
		t.Fatalf("scale %v, expected %v", scale, want)
	}
	if len(row) != 4+len(values)*bits/8 {
		t.Fatalf("%d bytes for %d values", len(row), len(values))
	}
	for i, v := range values {
		number := int(row[4+i/(8/bits)]>>(i%(8/bits)*bits)) & most
		product := float32(float32(v-bias) * float32(1/scale))
		if want := max(0, min(most, int(math.RoundToEven(float64(product))))); number != want {
			t.Fatalf("number %d of %v is %d, expected %d", i, v, number, want)
		}
		reads := float64(bias) + float64(scale)*float64(number)
		if bound := math.Abs(float64(scale))*(0.51+float64(most)/2048) + math.Abs(float64(bias))/2048 + 1e-7*float64(most); math.Abs(reads-float64(v)) > bound {
			t.Fatalf("%v reads %v with the scale %v", v, reads, scale)
		}
	}
}

// Rows of one value, of ties, and of values and scales that float16 rounds have these bytes.
func TestRowBytes(t *testing.T) {
	for _, c := range []struct {
		bits   int
		values []float32
		want   string
	}{
		{8, []float32{0, 0}, "\x00\x3c\x00\x00\x00\x00"},                     // scale 1, bias 0
		{8, []float32{0, 255}, "\x00\x3c\x00\x00\x00\xff"},                   // scale 1
		{4, []float32{-1, 0, 14, 1.5}, "\x00\x3c\x00\xbc\x10\x2f"},           // 2.5 is rounded to 2
		{2, []float32{1, 2, 3, 4, 4, 3, 2, 1}, "\x00\x3c\x00\x3c\xe4\x1b"},   // the first number is the lowest
		{8, []float32{1e-9, 2e-9}, "\x00\x3c\x00\x00\x00\x00"},               // the scale would be 0
		{8, []float32{1.0009, 1.0009}, "\x05\x80\x01\x3c\xff\xff"},           // the bias is above the values, and the scale below 0
		{16, []float32{1, -65504, 65519}, "\x00\x3c\xff\xfb\xff\x7b"},        // 65519 is rounded down
		{8, []float32{-65519, -65519 + 255}, "\x88\x3b\xff\xfb\x00\xff"},     // the bias is -65504, and the scale 240/255
		{4, []float32{0, 1e-6, 15e-6, 0}, "\x11\x00\x00\x00\x10\x0f"},        // a scale below the normal numbers
		{4, []float32{0.1, 0.1, 0.1, 0.1}, "\x1b\x00\x66\x2e\xff\xff"},       // the bias is below the values
		{2, []float32{-2, 1, 1, 1, 1, 1, 1, -2}, "\x00\x3c\x00\xc0\xfc\x3f"}, // of two values
	} {
		row := make([]byte, len(c.want))
		for i := range row {
			row[i] = 0xa5
		}
		if err := putRow(row, c.values, c.bits); err != nil || string(row) != c.want {
			t.Errorf("%d bits of %v: %x (%v), expected %x", c.bits, c.values, row, err, c.want)
		}
	}
}

// A row of which float16 cannot hold a number, and columns that the type cannot hold, are bad input, which names table and row,
// and leave no file.
func TestRowsRefuse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.safetensors")
	refuse := func(model string, value func(i int) float32, rows, want string) {
		t.Helper()
		c, _ := readSample(t, model, value)
		_, _, err := WriteRows(path, c, rows)
		if !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", rows, err, want)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("there is a file: %v", err)
		}
	}
	at := func(position int, v float32) func(int) float32 {
		return func(i int) float32 {
			if i == position {
				return v
			}
			return 0
		}
	}
	const deepfm = "golden/deepfm.pth" // two columns
	refuse(deepfm, at(7, 65520), "float16", "table embedding.weight, row 3: the value is 65520, expected at most 65504")
	refuse(deepfm, at(8, -1e6), "int8", "table embedding.weight, row 4: the least value is -1e+06")
	refuse(deepfm, at(8, math.MaxFloat32), "int8", "table embedding.weight, row 4: the scale is ")
	refuse(deepfm, at(0, 0), "int4", "table embedding.weight has 2 columns, expected a multiple of 4 for rows of int4")
}

// A table has the rows of its pieces at their numbers, and 0 in between.
func TestRowsBetweenPieces(t *testing.T) {
	p, q := Piece{Width: 1}, Piece{Width: 1}
	p.Rows, p.Dim, p.From = 1, 1, 1
	q.Rows, q.Dim, q.From, q.Entry = 2, 1, 3, 1
	r := &rowsFile{c: &Checkpoint{}, header: rowsHeader{Rows: "float16"}, values: []float32{1, 2, -1}, pieces: map[string][]Piece{"t": {p, q}}}
	for id, want := range []string{"0000", "003c", "0000", "0040", "00bc"} {
		row := []byte{1, 1}
		if err := r.put(row, "t", id); err != nil || fmt.Sprintf("%x", row) != want {
			t.Errorf("row %d: %x (%v), expected %s", id, row, err, want)
		}
	}
}

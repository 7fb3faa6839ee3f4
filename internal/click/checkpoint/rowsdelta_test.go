package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/tensor"
)

// readTensors returns the tensors of a file, its metadata, and the SHA-256 of its bytes.
func readTensors(t *testing.T, path string) (map[string]Tensor, map[string]string, string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	entries, metadata, err := tensor.Parse(path, data)
	if err != nil {
		t.Fatal(err)
	}
	tensors := map[string]Tensor{}
	for _, e := range entries {
		tensors[e.Key] = e.Tensor
	}
	return tensors, metadata, fmt.Sprintf("%x", sha256.Sum256(data))
}

// writeTensors writes a file as WriteRows does.
func writeTensors(t *testing.T, path string, tensors map[string]Tensor, metadata map[string]string) {
	t.Helper()
	if _, err := writeWhole(path, tensor.NewFile(tensors, metadata)); err != nil {
		t.Fatal(err)
	}
}

// applyRows sets the rows of a delta in tables, and returns how many there are. The ids must ascend.
func applyRows(t *testing.T, tables, delta map[string]Tensor) (applied int) {
	t.Helper()
	if len(delta) != 2*len(tables) {
		t.Fatalf("%d tensors for %d tables", len(delta), len(tables))
	}
	for name, table := range tables {
		rows, ids := delta[name], delta[name+".ids"]
		if rows.DType != U8 || ids.DType != I64 || len(ids.Shape) != 1 || len(rows.Shape) != 2 || ids.Shape[0] != rows.Shape[0] || rows.Shape[1] != table.Shape[1] {
			t.Fatalf("table %s: rows %s %v, ids %s %v", name, rows.DType, rows.Shape, ids.DType, ids.Shape)
		}
		data, width, last := slices.Clone(table.Data), table.Shape[1], -1
		for i := range ids.Shape[0] {
			id := int(binary.LittleEndian.Uint64(ids.Data[8*i:]))
			if id <= last {
				t.Fatalf("table %s: id %d after %d", name, id, last)
			}
			if grown := (id+1)*width - len(data); grown > 0 {
				data = append(data, make([]byte, grown)...)
			} else if string(data[id*width:][:width]) == string(rows.Data[i*width:][:width]) {
				t.Errorf("table %s: row %d did not change", name, id)
			}
			copy(data[id*width:], rows.Data[i*width:][:width])
			last = id
			applied++
		}
		tables[name] = Tensor{DType: U8, Shape: []int{len(data) / width, width}, Data: data}
	}
	return applied
}

// A delta, applied to the rows of the earlier file, gives the file of all rows of the new model, and has no row that did not
// change. It names both files by their digests. The earlier file may lack rows at the ends of tables.
func TestRowsDelta(t *testing.T) {
	ran := map[string]int{}
	wide := filepath.Join(t.TempDir(), "fm.safetensors") // of 8 columns, for int2
	writeTensors(t, wide, map[string]Tensor{
		"embedding.weight": tensor.FromFloat32s([]int{300, 8}, make([]float32, 2400)),
		"fc.weight":        tensor.FromFloat32s([]int{300, 1}, make([]float32, 300)),
		"_bias":            tensor.FromFloat32s([]int{1}, []float32{0}),
	}, nil)
	if err := os.WriteFile(strings.Replace(wide, ".safetensors", ".json", 1), []byte(`{"kind": "fm", "field_dims": [100, 200]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{"onnx/dlrm.dynamo.onnx", "onnx/fuxictr-din.dynamo.onnx", "golden/neumf.pth", wide} {
		for _, kind := range RowTypes() {
			bits := rowBits[kind]
			for _, change := range []string{"none", "some", "all", "grown", "grown by an equal row"} {
				r := rand.New(rand.NewPCG(3, 4))
				c, table := readSample(t, model, func(int) float32 {
					if change == "grown by an equal row" {
						return 1
					}
					return float32(r.NormFloat64())
				})
				if bits < 16 && slices.ContainsFunc(c.Pieces(), func(p Piece) bool { return p.Width%(16/bits) != 0 }) {
					continue
				}
				folder := t.TempDir()
				old, whole, out := filepath.Join(folder, "old"), filepath.Join(folder, "whole"), filepath.Join(folder, "out")
				if _, _, err := WriteRows(old, c, kind); err != nil {
					t.Fatal(err)
				}
				tables, metadata, _ := readTensors(t, old)
				rows, want := 0, 0
				for name, held := range tables {
					rows += held.Shape[0]
					if n := held.Shape[0]; strings.HasPrefix(change, "grown") && n > 2 {
						tables[name] = Tensor{DType: U8, Shape: []int{n - 2, held.Shape[1]}, Data: held.Data[:(n-2)*held.Shape[1]]}
						want += 2
					}
				}
				writeTensors(t, old, tables, metadata)
				next, most := slices.Clone(table), 0
				for i := range next {
					if change == "all" || change == "some" && i%97 == 0 {
						next[i] += 9
						most++
					}
				}
				c = c.WithEmbedding(next)
				if _, _, err := WriteRows(whole, c, kind); err != nil {
					t.Fatal(err)
				}
				stored, size, err := WriteRowsDelta(out, c, kind, old)
				if err != nil {
					t.Fatal(err)
				}
				delta, said, _ := readTensors(t, out)
				n := applyRows(t, tables, delta)
				switch change {
				case "some":
					if n == 0 || n > most {
						t.Errorf("%s: %d rows for %d changed values", model, n, most)
					}
				case "all":
					if n < rows*9/10 {
						t.Errorf("%s: %d of %d rows", model, n, rows)
					}
				default:
					if n != want {
						t.Errorf("%s %s: %d rows, expected %d", model, change, n, want)
					}
				}
				again := filepath.Join(folder, "again")
				writeTensors(t, again, tables, metadata)
				_, _, from := readTensors(t, old)
				_, _, to := readTensors(t, whole)
				if _, _, got := readTensors(t, again); got != to {
					t.Errorf("%s, %s, %s: the delta does not give the new file", model, kind, change)
				}
				var first, header rowsHeader
				if err := json.Unmarshal([]byte(metadata[metaTables]), &first); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal([]byte(said[metaTables]), &header); err != nil {
					t.Fatal(err)
				}
				if header.Version != 2 || header.Rows != kind || !maps.Equal(header.Dims, first.Dims) || header.From != from || header.To != to || !RowsWritten(out) {
					t.Errorf("header %+v, expected the digests %s and %s", header, from, to)
				}
				for _, e := range delta {
					stored -= int64(len(e.Data))
				}
				if info, err := os.Stat(out); err != nil || info.Size() != size || stored != 0 {
					t.Errorf("%d bytes stated: %v", size, err)
				}
				ran[kind]++
			}
		}
	}
	if len(ran) != len(RowTypes()) {
		t.Errorf("tests of each type: %v", ran)
	}
}

// Another file in place of an earlier one, an earlier file that does not fit, and a name that stands for two tensors are bad input, which names both files and the table, and leave no
// file.
func TestRowsDeltaRefuses(t *testing.T) {
	const model = "onnx/dlrm.dynamo.onnx"
	c, _ := readSample(t, model, func(i int) float32 { return float32(i % 7) })
	folder := t.TempDir()
	old, out := filepath.Join(folder, "old"), filepath.Join(folder, "out")
	if _, _, err := WriteRows(old, c, "int8"); err != nil {
		t.Fatal(err)
	}
	good, metadata, _ := readTensors(t, old)
	names := slices.Sorted(maps.Keys(good))
	first, rows, width := names[0], good[names[0]].Shape[0], good[names[0]].Shape[1]
	refused := func(what, want string) {
		t.Helper()
		_, _, err := WriteRowsDelta(out, c, "int8", old)
		if !fault.IsInput(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), old) {
			t.Errorf("%s: %v, expected %q", what, err, want)
		}
		if _, err := os.Stat(out); !os.IsNotExist(err) {
			t.Errorf("%s: there is a file: %v", what, err)
		}
	}
	header := func(from, to string) func(map[string]Tensor, map[string]string) {
		return func(_ map[string]Tensor, m map[string]string) {
			text := strings.Replace(m[metaTables], from, to, 1)
			if text == m[metaTables] {
				t.Fatalf("%s is not in %s", from, text)
			}
			m[metaTables] = text
		}
	}
	is := func(d tensor.DType, shape ...int) func(map[string]Tensor, map[string]string) {
		n, _ := tensor.Count(shape)
		return func(m map[string]Tensor, _ map[string]string) {
			m[first] = Tensor{DType: d, Shape: shape, Data: make([]byte, n)}
		}
	}
	isNot := func(d tensor.DType, shape ...int) string {
		return fmt.Sprintf("table %s is %s %s, and that of %s U8 [%d, %d], expected as many bytes in a row and no more rows: write all rows", first, d, tensor.ShapeText(shape), c.name, rows, width)
	}
	advice := ": write all rows without --from"
	notAll := "is not a file of all rows, which shaver model convert --rows writes without --from"
	for what, test := range map[string]struct {
		damage func(tables map[string]Tensor, m map[string]string)
		want   string
	}{
		"model":   {func(_ map[string]Tensor, m map[string]string) { delete(m, metaTables) }, notAll},
		"JSON":    {header("{", "["), notAll},
		"delta":   {header(`"version":1`, `"version":2`), notAll},
		"version": {header(`"version":1`, `"version":3`), notAll},
		"type":    {header("int8", "int4"), fmt.Sprintf(`the rows are "int4", and those of %s are to be int8`, c.name) + advice},
		"missing": {func(m map[string]Tensor, _ map[string]string) { delete(m, first) }, fmt.Sprintf("table %s of %s is missing%s", first, c.name, advice)},
		"last":    {func(m map[string]Tensor, _ map[string]string) { delete(m, names[len(names)-1]) }, fmt.Sprintf("table %s of %s is missing%s", names[len(names)-1], c.name, advice)},
		"other":   {func(m map[string]Tensor, _ map[string]string) { m["a"] = m[first] }, fmt.Sprintf("%s has no table a%s", c.name, advice)},
		"beyond":  {func(m map[string]Tensor, _ map[string]string) { m["~"] = m[first] }, fmt.Sprintf("%s has no table ~%s", c.name, advice)},
		"longer":  {is("U8", rows+1, width), isNot("U8", rows+1, width)},
		"columns": {is("U8", rows, width-1), isNot("U8", rows, width-1)},
		"shape":   {is("U8", rows*width), isNot("U8", rows*width)},
		"dtype":   {is("I8", rows, width), isNot("I8", rows, width)},
	} {
		tables, m := maps.Clone(good), maps.Clone(metadata)
		test.damage(tables, m)
		writeTensors(t, old, tables, m)
		refused(what, test.want)
	}

	writeTensors(t, old, good, metadata)
	data, err := os.ReadFile(old)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(old, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(data[:len(data)-1])
	refused("cut short", "the file is cut short")
	for _, n := range []int{0, 7, 8, 20} {
		write(data[:n])
		refused("its beginning", "not a whole safetensors file")
	}
	write(append(binary.LittleEndian.AppendUint64(nil, 1<<62), data[8:]...))
	refused("a large header", "not a whole safetensors file")
	f := tensor.NewFile(good, metadata)
	f.Entries = append(f.Entries[1:], f.Entries[0])
	var moved bytes.Buffer
	if _, err := f.WriteTo(&moved); err != nil {
		t.Fatal(err)
	}
	write(moved.Bytes())
	refused("another order", "table "+first+" of")
	head := moved.Bytes()[8:][:binary.LittleEndian.Uint64(moved.Bytes())]
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(head, &keys); err != nil {
		t.Fatal(err)
	}
	copy(head, mustMarshal(keys)) // by name
	write(moved.Bytes())
	refused("another order of the data", "table "+first+" of")
}

// A table must not have the name of the ids of another.
func TestRowsDeltaNames(t *testing.T) {
	c, _ := readSample(t, "onnx/dlrm.dynamo.onnx", func(int) float32 { return 1 })
	look := c.origin.lookUps
	look[1].name = look[0].name + idsSuffix
	folder := t.TempDir()
	old, out := filepath.Join(folder, "old"), filepath.Join(folder, "out")
	if _, _, err := WriteRows(old, c, "float16"); err != nil {
		t.Fatal(err)
	}
	_, _, err := WriteRowsDelta(out, c, "float16", old)
	if want := fmt.Sprintf("table %s.ids of %s has the name of the ids of table %[1]s: write all rows", look[0].name, c.name); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, expected %q", err, want)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
}

// A file of any bytes as the earlier one is refused as bad input, or gives a delta of at most all rows.
func FuzzRowsDelta(f *testing.F) {
	c, err := Read(filepath.Join("..", "..", "..", "testdata", "golden", "neumf.pth"))
	if err != nil {
		f.Fatal(err)
	}
	old := filepath.Join(f.TempDir(), "old")
	if _, _, err := WriteRows(old, c, "int8"); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(old)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	r, err := newRowsFile(c, "int8")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "old")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		delta, ids, err := r.delta(path)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("not an input error: %v", err)
			}
			return
		}
		for _, e := range r.Entries {
			if n := len(ids[e.Key]) / 8; n > e.Shape[0] {
				t.Fatalf("%d of %d rows in %v", n, e.Shape[0], delta.Entries)
			}
		}
	})
}

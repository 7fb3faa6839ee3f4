package checkpoint

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/fault"
)

// The compact form of a pruned model is a safetensors file in which these
// tensors replace the embedding table [n, d]. Its metadata names the table's key,
// the structure and the number of kept entries. What is kept is said by the
// structure alone: a kept value may be 0.
const (
	tensorValues   = "shaver.values"     // F32 [kept], row by row
	tensorCodebook = "shaver.codebook"   // F32 [m, d], what dropped entries read as
	tensorBitmap   = "shaver.bitmap"     // U8 [ceil(n*d/8)]: bit i%8 of byte i/8 is 1 if entry i is kept
	tensorCounts   = "shaver.row_counts" // U8 or I16 [n]: kept entries of each row
	tensorColumns  = "shaver.columns"    // U8 or I16 [kept]: their columns, rising within a row

	metaCompact      = "shaver.compact" // version of this form
	metaEmbeddingKey = "shaver.embedding_key"
	metaStructure    = "shaver.structure"
	metaKept         = "shaver.kept"

	compactVersion  = "1"
	structureCSR    = "csr"
	structureBitmap = "bitmap"
	ownTensors      = "shaver."
)

// maxInflation bounds the table of a compact file, in bytes, to this multiple of
// the file's: a hostile file of a megabyte must not claim a terabyte. A table
// that CSR would shrink further is written as a bitmap, which stays below.
const maxInflation = 1024

// maxCSRDim is the most columns that CSR's I16 can count.
const maxCSRDim = math.MaxInt16

// indexType is what holds a number from 0 to most.
func indexType(most int) DType {
	if most <= math.MaxUint8 {
		return U8
	}
	return I16
}

// compactFile is the compact file of c with kept entries and the given
// structure. Tensors of the structure have no data yet.
func (c *Checkpoint) compactFile(structure string, kept int) *file {
	a := &c.Architecture
	tensors := maps.Clone(c.Tensors)
	delete(tensors, c.EmbeddingKey)
	tensors[tensorValues] = Tensor{DType: F32, Shape: []int{kept}}
	tensors[tensorCodebook] = Tensor{DType: F32, Shape: []int{a.Fields(), a.Dim}}
	if structure == structureCSR {
		tensors[tensorCounts] = Tensor{DType: indexType(a.Dim), Shape: []int{a.Features()}}
		tensors[tensorColumns] = Tensor{DType: indexType(a.Dim - 1), Shape: []int{kept}}
	} else {
		tensors[tensorBitmap] = Tensor{DType: U8, Shape: []int{(a.Parameters() + 7) / 8}}
	}
	return newFile(tensors, map[string]string{
		metaFormat:       "pt",
		metaArchitecture: string(mustMarshal(c.Architecture)),
		metaCompact:      compactVersion,
		metaEmbeddingKey: c.EmbeddingKey,
		metaStructure:    structure,
		metaKept:         strconv.Itoa(kept),
	})
}

// plan returns the smaller file for a number of kept entries, and its structure
// and size. Both forms depend on that number only, not on which are kept.
func (c *Checkpoint) plan(kept int) (f *file, structure string, size int64) {
	f = c.compactFile(structureBitmap, kept)
	structure, size = structureBitmap, f.size()
	if c.Architecture.Dim > maxCSRDim {
		return f, structure, size
	}
	csr := c.compactFile(structureCSR, kept)
	if n := csr.size(); n < size && int64(c.Architecture.Parameters())*4 <= maxInflation*n {
		return csr, structureCSR, n
	}
	return f, structure, size
}

// CompactSize returns the exact bytes of the file that WriteCompact writes when
// kept entries of the table are kept, whichever they are. For tables of up to 512
// columns it never falls when kept rises; wider ones may change to a bitmap, see
// maxInflation.
func (c *Checkpoint) CompactSize(kept int) int64 {
	if kept < 0 || kept > c.Architecture.Parameters() {
		panic(fmt.Sprintf("checkpoint: %d kept of %d entries", kept, c.Architecture.Parameters()))
	}
	_, _, size := c.plan(kept)
	return size
}

// DenseSize returns the exact bytes of the file that WriteDense writes.
func (c *Checkpoint) DenseSize() int64 { return c.canonical().size() }

// WriteCompact writes c, pruned, to path in compact form, whole or not at all,
// and returns its bytes. dropped, of length n*d, is true for the entries that
// are gone; baseline, of length m*d, is what they read as. Kept entries come
// from c's table, as float32.
func WriteCompact(path string, c *Checkpoint, dropped []bool, baseline []float32) (int64, error) {
	f, err := c.compact(dropped, baseline)
	if err != nil {
		return 0, err
	}
	return writeWhole(path, f)
}

func (c *Checkpoint) compact(dropped []bool, baseline []float32) (*file, error) {
	a := &c.Architecture
	if len(dropped) != a.Parameters() || len(baseline) != a.Players() {
		panic(fmt.Sprintf("checkpoint: mask of %d entries and baseline of %d for a table of %d and %d", len(dropped), len(baseline), a.Parameters(), a.Players()))
	}
	for i, v := range baseline {
		if !finite(v) {
			return nil, c.inputf("the baseline of field %d has the value %v in column %d", i/a.Dim, v, i%a.Dim)
		}
	}
	table, err := c.floats(c.EmbeddingKey)
	if err != nil {
		return nil, err
	}
	kept := 0
	for _, gone := range dropped {
		if !gone {
			kept++
		}
	}
	values := make([]byte, 0, 4*kept)
	for i, gone := range dropped {
		if !gone {
			values = binary.LittleEndian.AppendUint32(values, math.Float32bits(table[i]))
		}
	}
	f, structure, _ := c.plan(kept)
	data := map[string][]byte{tensorValues: values, tensorCodebook: float32Tensor(nil, baseline).Data}
	if structure == structureCSR {
		data[tensorCounts], data[tensorColumns] = csrOf(dropped, a.Dim, kept)
	} else {
		data[tensorBitmap] = bitmapOf(dropped)
	}
	for i := range f.entries {
		if own, ok := data[f.entries[i].key]; ok {
			f.entries[i].Data = own
		}
	}
	return f, nil
}

func bitmapOf(dropped []bool) []byte {
	bitmap := make([]byte, (len(dropped)+7)/8)
	for i, gone := range dropped {
		if !gone {
			bitmap[i/8] |= 1 << (i % 8)
		}
	}
	return bitmap
}

func csrOf(dropped []bool, dim, kept int) (counts, columns []byte) {
	appendTo := func(data []byte, t DType, v int) []byte {
		if t == U8 {
			return append(data, byte(v))
		}
		return binary.LittleEndian.AppendUint16(data, uint16(v))
	}
	columns = make([]byte, 0, kept*indexType(dim-1).Size())
	for row := range slices.Chunk(dropped, dim) {
		count := 0
		for column, gone := range row {
			if !gone {
				columns = appendTo(columns, indexType(dim-1), column)
				count++
			}
		}
		counts = appendTo(counts, indexType(dim), count)
	}
	return counts, columns
}

// inflate replaces the tensors of the compact form by the whole table. fileSize
// bounds what the table may need.
func (c *Checkpoint) inflate(metadata map[string]string, fileSize int64) error {
	if v := metadata[metaCompact]; v != compactVersion {
		return fault.Inputf("version %s, this program reads version %s", quote(v), compactVersion)
	}
	var s statement
	if err := unmarshalArchitecture(metadata, &s); err != nil {
		return err
	}
	if s.Dim == nil || len(s.FieldDims) == 0 {
		return fault.Inputf("metadata %s lacks dim or field_dims", metaArchitecture)
	}
	key := metadata[metaEmbeddingKey]
	if err := checkKey(key); err != nil || strings.HasPrefix(key, ownTensors) {
		return fault.Inputf("metadata %s is %s, expected the table's key", metaEmbeddingKey, quote(key))
	}
	if _, ok := c.Tensors[key]; ok {
		return fault.Inputf("tensor %s is there beside the compact form of it", key)
	}
	rows, dim := 0, *s.Dim
	for _, size := range s.FieldDims {
		if size < 1 || size > math.MaxInt32-rows {
			return fault.Inputf("field_dims %s: sizes are at least 1 and sum to less than 2^31", sizesText(s.FieldDims))
		}
		rows += size
	}
	if dim < 1 || dim > 1<<16 || int64(rows)*int64(dim)*4 > maxInflation*fileSize {
		return fault.Inputf("claims a table of %d rows and %d columns in a file of %d bytes", rows, dim, fileSize)
	}
	t := &compactTable{c: c, dims: s.FieldDims, rows: rows, dim: dim}
	dropped := t.dropped(metadata)
	values := t.take(tensorValues, F32, t.kept)
	codebook := t.take(tensorCodebook, F32, len(s.FieldDims), dim)
	if t.err != nil {
		return t.err
	}
	c.add(key, Tensor{F32, []int{rows, dim}, t.fill(dropped, values, codebook)})
	c.Keys = slices.DeleteFunc(c.Keys, func(k string) bool { return c.Tensors[k].DType == "" })
	c.Compact, c.Kept = true, t.kept
	return nil
}

// compactTable reads the tensors of the compact form; its first failure stays in
// err.
type compactTable struct {
	c               *Checkpoint
	dims            []int
	rows, dim, kept int
	err             error
}

func (t *compactTable) fail(format string, args ...any) {
	if t.err == nil {
		t.err = fault.Inputf(format, args...)
	}
}

// take removes a tensor from the checkpoint and returns its data.
func (t *compactTable) take(key string, dtype DType, shape ...int) []byte {
	tensor, ok := t.c.Tensors[key]
	delete(t.c.Tensors, key)
	if !ok || tensor.DType != dtype || !slices.Equal(tensor.Shape, shape) {
		t.fail("expected tensor %s of type %s and shape %s, found %s %s", key, dtype, shapeText(shape), tensor.DType, shapeText(tensor.Shape))
	}
	return tensor.Data
}

// dropped returns the mask, [rows*dim], after checking that it keeps as many
// entries as the metadata say.
func (t *compactTable) dropped(metadata map[string]string) []bool {
	kept, err := strconv.Atoi(metadata[metaKept])
	if err != nil || kept < 0 || kept > t.rows*t.dim {
		t.fail("metadata %s is %s, expected a number up to %d", metaKept, quote(metadata[metaKept]), t.rows*t.dim)
		return nil
	}
	t.kept = kept
	switch structure := metadata[metaStructure]; {
	case structure == structureBitmap:
		return t.fromBitmap()
	case structure == structureCSR && t.dim <= maxCSRDim:
		return t.fromCSR()
	default:
		t.fail("metadata %s is %s, expected %s or %s", metaStructure, quote(structure), structureCSR, structureBitmap)
		return nil
	}
}

func (t *compactTable) fromBitmap() []bool {
	n := t.rows * t.dim
	bitmap := t.take(tensorBitmap, U8, (n+7)/8)
	if t.err != nil {
		return nil
	}
	found := 0
	for _, b := range bitmap {
		found += bits.OnesCount8(b)
	}
	if last := len(bitmap)*8 - n; last > 0 && bitmap[len(bitmap)-1]>>(8-last) != 0 {
		t.fail("tensor %s has bits set after its %d entries", tensorBitmap, n)
	}
	if found != t.kept {
		t.fail("tensor %s keeps %d entries, metadata %s says %d", tensorBitmap, found, metaKept, t.kept)
		return nil
	}
	dropped := make([]bool, n)
	for i := range dropped {
		dropped[i] = bitmap[i/8]>>(i%8)&1 == 0
	}
	return dropped
}

func (t *compactTable) fromCSR() []bool {
	countType, columnType := indexType(t.dim), indexType(t.dim-1)
	counts := Tensor{DType: countType, Data: t.take(tensorCounts, countType, t.rows)}
	columns := Tensor{DType: columnType, Data: t.take(tensorColumns, columnType, t.kept)}
	if t.err != nil {
		return nil
	}
	countAt, columnAt := counts.intReader(), columns.intReader()
	dropped := make([]bool, t.rows*t.dim)
	at := 0
	for row := range t.rows {
		entries := dropped[row*t.dim : (row+1)*t.dim]
		for column := range entries {
			entries[column] = true
		}
		count, previous := int(countAt(row)), -1
		if count < 0 || count > t.kept-at {
			t.fail("tensor %s has %d for row %d, and %d columns are left", tensorCounts, count, row, t.kept-at)
			return nil
		}
		for range count {
			column := int(columnAt(at))
			if column <= previous || column >= t.dim {
				t.fail("tensor %s has column %d after %d in row %d: columns rise and are below %d", tensorColumns, column, previous, row, t.dim)
				return nil
			}
			entries[column] = false
			previous = column
			at++
		}
	}
	if at != t.kept {
		t.fail("tensor %s counts %d entries, metadata %s says %d", tensorCounts, at, metaKept, t.kept)
	}
	return dropped
}

// fill returns the table's bytes: kept values in order, the field's codebook
// entry elsewhere.
func (t *compactTable) fill(dropped []bool, values, codebook []byte) []byte {
	table := make([]byte, 0, 4*len(dropped))
	row := 0
	for field, size := range t.dims {
		line := codebook[field*t.dim*4 : (field+1)*t.dim*4]
		for range size {
			for column := range t.dim {
				if dropped[row*t.dim+column] {
					table = append(table, line[4*column:4*column+4]...)
				} else {
					table = append(table, values[:4]...)
					values = values[4:]
				}
			}
			row++
		}
	}
	return table
}

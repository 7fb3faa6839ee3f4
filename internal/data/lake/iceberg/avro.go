package iceberg

import (
	"bytes"
	"compress/bzip2"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// Bounds of an Avro object container file.
const (
	mostAvro   = 256       // MiB in the file
	mostBlock  = 128 << 20 // bytes in a decompressed block
	mostValues = 4 << 20   // values in a record of the file, with those in records, arrays and unions
	mostDepth  = 32        // levels of types in types
)

// record has the values of an Avro record by field IDs. They are nil, bool, int64, float64, string, []byte, []any and record.
// A map with keys that are not strings is an array of records.
type record map[int]any

// avroType is a type of an Avro schema.
type avroType struct {
	kind  string
	size  int64       // of fixed
	parts []*avroType // branches of a union, fields of a record, or items
	ids   []int       // field IDs of the fields
}

// readAvro calls visit for each record of an Avro object container file, with the metadata in its header. Fields with IDs in skip
// are left out. Slices of bytes in a record are valid until visit returns.
func readAvro(path string, skip map[int]bool, visit func(header map[string]string, r record) error) error {
	data, err := files.Small(path, mostAvro, "an Avro file")
	if err != nil {
		return err
	}
	return decodeAvro(data, skip, visit)
}

func decodeAvro(data []byte, skip map[int]bool, visit func(header map[string]string, r record) error) error {
	d := &avroDecoder{data: data, values: mostValues, skip: skip}
	if string(d.take(4)) != "Obj\x01" {
		return fault.Inputf("not an Avro object container file")
	}
	header := map[string]string{}
	d.blocks(func() {
		key := string(d.take(d.long()))
		header[key] = string(d.take(d.long()))
	})
	sync := d.take(16)
	if d.failed {
		return fault.Inputf("the header of the Avro file is malformed")
	}
	var text any
	if err := json.Unmarshal([]byte(header["avro.schema"]), &text); err != nil {
		return fault.Inputf("the schema of the Avro file is malformed: %w", err)
	}
	schema, err := parseAvro(text, map[string]*avroType{}, 0)
	if err == nil && schema.kind != "record" {
		err = fmt.Errorf("the type is %q, expected a record", schema.kind)
	}
	if err != nil {
		return fault.Inputf("the schema of the Avro file is malformed: %w", err)
	}
	for n := 0; len(d.data) > 0; n++ {
		count, block := d.long(), d.take(d.long())
		if !bytes.Equal(d.take(16), sync) || d.failed || count < 0 {
			return fault.Inputf("block %d of the Avro file is malformed or truncated", n)
		}
		block, err := decompress(header["avro.codec"], block)
		if err != nil {
			return fault.Inputf("block %d of the Avro file: %w", n, err)
		}
		b, most := &avroDecoder{data: block, skip: skip}, mostValues+16*len(block) // some values take no bytes
		for range count {
			b.values = min(mostValues, most)
			most -= b.values
			r, _ := b.value(schema, 0, true).(record)
			if b.failed {
				return fault.Inputf("block %d of the Avro file does not fit its schema, or has more than %d values", n, mostValues)
			}
			most += b.values
			if err := visit(header, r); err != nil {
				return err
			}
		}
		if len(b.data) > 0 {
			return fault.Inputf("block %d of the Avro file has %d more bytes than its records", n, len(b.data))
		}
	}
	return nil
}

// decompress returns a block of at most mostBlock bytes.
func decompress(codec string, block []byte) (content []byte, err error) {
	switch codec {
	case "", "null":
		content = block
	case "deflate":
		content, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(block)), mostBlock+1))
	case "bzip2":
		content, err = io.ReadAll(io.LimitReader(bzip2.NewReader(bytes.NewReader(block)), mostBlock+1))
	case "snappy":
		at := len(block) - 4
		if at < 0 {
			return nil, errors.New("the block is truncated")
		}
		if n, err := snappy.DecodedLen(block[:at]); err != nil || n > mostBlock {
			return nil, fmt.Errorf("malformed or more than %d bytes", mostBlock)
		}
		if content, err = snappy.Decode(nil, block[:at]); err == nil && crc32.ChecksumIEEE(content) != binary.BigEndian.Uint32(block[at:]) {
			err = errors.New("the checksum of the block is wrong")
		}
	case "zstandard":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostBlock)); err == nil {
			defer d.Close()
			content, err = d.DecodeAll(block, nil)
		}
	default:
		err = fmt.Errorf("the codec is %q, expected null, deflate, snappy, zstandard or bzip2", codec)
	}
	if err == nil && len(content) > mostBlock {
		err = fmt.Errorf("the block has more than %d bytes", mostBlock)
	}
	return content, err
}

// parseAvro returns the type that a JSON value describes. named has the types with names that were defined before.
func parseAvro(text any, named map[string]*avroType, depth int) (*avroType, error) {
	if depth > mostDepth {
		return nil, errors.New("too many levels")
	}
	t := &avroType{}
	var parts []any
	switch text := text.(type) {
	case string:
		if known := named[text]; known != nil {
			return known, nil
		}
		t.kind = text
	case []any:
		t.kind, parts = "union", text
	case map[string]any:
		kind, ok := text["type"].(string)
		if !ok {
			return parseAvro(text["type"], named, depth+1)
		}
		if known := named[kind]; known != nil {
			return known, nil
		}
		t.kind = kind
		if name, ok := text["name"].(string); ok && (kind == "record" || kind == "fixed" || kind == "enum") {
			named[name] = t
		}
		switch kind {
		case "array":
			parts = []any{text["items"]}
		case "map":
			parts = []any{text["values"]}
		case "fixed":
			size, _ := text["size"].(float64)
			t.size = int64(size)
		case "record":
			fields, _ := text["fields"].([]any)
			for _, f := range fields {
				f, _ := f.(map[string]any)
				id, _ := f["field-id"].(float64)
				parts, t.ids = append(parts, f["type"]), append(t.ids, int(id))
			}
		}
	}
	for _, p := range parts {
		part, err := parseAvro(p, named, depth+1)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part)
	}
	return t, nil
}

// avroDecoder decodes values. After a failure it returns zeros.
type avroDecoder struct {
	data   []byte // what is left
	values int    // number of values that may follow
	skip   map[int]bool
	failed bool
}

func (d *avroDecoder) take(n int64) []byte {
	if d.failed || n < 0 || n > int64(len(d.data)) {
		d.failed = true
		return nil
	}
	taken := d.data[:n:n]
	d.data = d.data[n:]
	return taken
}

func (d *avroDecoder) long() int64 {
	x, n := binary.Varint(d.data)
	if n <= 0 {
		d.failed = true
		return 0
	}
	d.data = d.data[n:]
	return x
}

// blocks calls item for each item of an array or a map.
func (d *avroDecoder) blocks(item func()) {
	for !d.failed {
		n := d.long()
		if n < 0 { // the block's size in bytes follows
			n = -n
			d.long()
		}
		if n == 0 {
			return
		}
		for ; n != 0 && !d.failed; n-- {
			if d.values--; d.values < 0 {
				d.failed = true
				return
			}
			item()
		}
	}
}

// value returns the next value, or nil without keep.
func (d *avroDecoder) value(t *avroType, depth int, keep bool) any {
	if d.values--; d.values < 0 || depth > mostDepth || d.failed {
		d.failed = true
		return nil
	}
	switch t.kind {
	case "null":
	case "boolean":
		b := d.take(1)
		return len(b) == 1 && b[0] != 0
	case "int", "long", "enum":
		return d.long()
	case "float":
		if b := d.take(4); b != nil {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	case "double":
		if b := d.take(8); b != nil {
			return math.Float64frombits(binary.LittleEndian.Uint64(b))
		}
	case "bytes":
		return d.take(d.long())
	case "fixed":
		return d.take(t.size)
	case "string":
		if b := d.take(d.long()); keep {
			return string(b)
		}
	case "union":
		if i := d.long(); i >= 0 && i < int64(len(t.parts)) {
			return d.value(t.parts[i], depth+1, keep)
		}
		d.failed = true
	case "map": // no field of Iceberg has this type
		d.blocks(func() {
			d.take(d.long())
			d.value(t.parts[0], depth+1, false)
		})
	case "array":
		var items []any
		d.blocks(func() {
			if v := d.value(t.parts[0], depth+1, keep); keep {
				items = append(items, v)
			}
		})
		return items
	case "record":
		var r record
		if keep {
			r = record{}
		}
		for i, part := range t.parts {
			wanted := keep && !d.skip[t.ids[i]]
			if v := d.value(part, depth+1, wanted); wanted && v != nil {
				r[t.ids[i]] = v
			}
		}
		return r
	default:
		d.failed = true
	}
	return nil
}

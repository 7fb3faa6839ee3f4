package iceberg

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/parquet"
	parquetfile "github.com/apache/arrow/go/v17/parquet/file"
	nodes "github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"shaver/internal/data/columnfile"
	"shaver/internal/data/lake"
)

// written is a table in the making.
type written struct {
	*testing.T
	folder   string
	metadata map[string]any
	sequence int64
	lists    map[int64][]record // manifests of each snapshot
}

// location is that of the table in its metadata. The table is elsewhere.
const location = "s3a://lake/t"

// newTable returns a table with the columns id, a long, and name, a string.
func newTable(t *testing.T, fields ...any) *written {
	if fields == nil {
		fields = []any{column(1, "id", "long"), column(2, "name", "string")}
	}
	w := &written{T: t, folder: t.TempDir(), lists: map[int64][]record{}}
	w.metadata = map[string]any{
		"format-version": 2, "table-uuid": "u", "location": location,
		"schemas": []any{map[string]any{"schema-id": 0, "fields": fields}}, "current-schema-id": 0,
		"partition-specs": []any{map[string]any{"spec-id": 0, "fields": []any{}}},
	}
	for _, folder := range []string{"metadata", "data"} {
		if err := os.Mkdir(filepath.Join(w.folder, folder), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func column(id int, name string, kind any, more ...any) map[string]any {
	c := map[string]any{"id": id, "name": name, "required": false, "type": kind}
	for i := 0; i < len(more); i += 2 {
		c[more[i].(string)] = more[i+1]
	}
	return c
}

func (w *written) set(key string, value any) { w.metadata[key] = value }

func (w *written) write(name string, data []byte) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.folder, filepath.FromSlash(name)), data, 0o666); err != nil {
		w.Fatal(err)
	}
}

// parquet writes a Parquet file, whose columns have their IDs unless they are 0, and returns its entry. Each column is a name, an ID and its values,
// which are nil, int, float64 or string.
func (w *written) parquet(name string, columns ...any) record {
	w.Helper()
	var fields nodes.FieldList
	var write []func(c parquetfile.ColumnChunkWriter) error
	var rows int
	for i := 0; i < len(columns); i += 3 {
		var strings []parquet.ByteArray
		var numbers []int64
		var floats []float64
		defined := make([]int16, len(columns[i+2].([]any)))
		for k, v := range columns[i+2].([]any) {
			switch v := v.(type) {
			case int:
				numbers, defined[k] = append(numbers, int64(v)), 1
			case float64:
				floats, defined[k] = append(floats, v), 1
			case string:
				strings, defined[k] = append(strings, parquet.ByteArray(v)), 1
			}
		}
		rows = len(defined)
		name, id := columns[i].(string), int32(columns[i+1].(int))
		if id == 0 {
			id = -1
		}
		if strings != nil {
			fields = append(fields, nodes.NewByteArrayNode(name, parquet.Repetitions.Optional, id))
			write = append(write, func(c parquetfile.ColumnChunkWriter) error {
				_, err := c.(*parquetfile.ByteArrayColumnChunkWriter).WriteBatch(strings, defined, nil)
				return err
			})
			continue
		}
		if floats != nil {
			fields = append(fields, nodes.NewFloat64Node(name, parquet.Repetitions.Optional, id))
			write = append(write, func(c parquetfile.ColumnChunkWriter) error {
				_, err := c.(*parquetfile.Float64ColumnChunkWriter).WriteBatch(floats, defined, nil)
				return err
			})
			continue
		}
		fields = append(fields, nodes.NewInt64Node(name, parquet.Repetitions.Optional, id))
		write = append(write, func(c parquetfile.ColumnChunkWriter) error {
			_, err := c.(*parquetfile.Int64ColumnChunkWriter).WriteBatch(numbers, defined, nil)
			return err
		})
	}
	var out bytes.Buffer
	p := parquetfile.NewParquetWriter(struct{ io.Writer }{&out}, nodes.MustGroup(nodes.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)))
	group := p.AppendRowGroup()
	for _, write := range write {
		c, err := group.NextColumn()
		if err != nil {
			w.Fatal(err)
		}
		if err := errors.Join(write(c), c.Close()); err != nil {
			w.Fatal(err)
		}
	}
	if err := errors.Join(group.Close(), p.Close()); err != nil {
		w.Fatal(err)
	}
	w.write(name, out.Bytes())
	return record{filePath: location + "/" + name, fileFormat: "PARQUET", fileRows: int64(rows), fileBytes: int64(out.Len()), filePartition: record{}, fileContent: int64(0)}
}

// positions writes a file of position deletes.
func (w *written) positions(name, path string, rows ...any) record {
	paths := make([]any, len(rows))
	for i := range paths {
		paths[i] = location + "/" + path
	}
	return with(w.parquet(name, "file_path", 2147483546, paths, "pos", 2147483545, rows), fileContent, int64(1))
}

// with returns a record with another value of a field.
func with(r record, pairs ...any) record {
	c := record{}
	for id, v := range r {
		c[id] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		c[pairs[i].(int)] = pairs[i+1]
	}
	return c
}

// Schemas of manifests. A test adds the fields of partitions.
const (
	listSchema = `{"type":"record","name":"manifest_file","fields":[
		{"name":"manifest_path","type":"string","field-id":500},{"name":"partition_spec_id","type":"int","field-id":502},
		{"name":"content","type":"int","field-id":517},{"name":"sequence_number","type":"long","field-id":515},
		{"name":"key_metadata","type":["null","bytes"],"field-id":519}]}`
	entrySchema = `{"type":"record","name":"manifest_entry","fields":[
		{"name":"status","type":"int","field-id":0},{"name":"sequence_number","type":["null","long"],"field-id":3},
		{"name":"data_file","field-id":2,"type":{"type":"record","name":"r2","fields":[
			{"name":"content","type":"int","field-id":134},{"name":"file_path","type":"string","field-id":100},{"name":"file_format","type":"string","field-id":101},
			{"name":"partition","field-id":102,"type":{"type":"record","name":"r102","fields":[%s]}},
			{"name":"record_count","type":"long","field-id":103},{"name":"file_size_in_bytes","type":"long","field-id":104},
			{"name":"null_value_counts","field-id":110,"type":["null",{"type":"array","logicalType":"map","items":{"type":"record","name":"k121_v122","fields":[
				{"name":"key","type":"int","field-id":121},{"name":"value","type":"long","field-id":122}]}}]},
			{"name":"lower_bounds","field-id":125,"type":["null",{"type":"array","logicalType":"map","items":{"type":"record","name":"k126_v127","fields":[
				{"name":"key","type":"int","field-id":126},{"name":"value","type":"bytes","field-id":127}]}}]},
			{"name":"upper_bounds","field-id":128,"type":["null",{"type":"array","logicalType":"map","items":{"type":"record","name":"k129_v130","fields":[
				{"name":"key","type":"int","field-id":129},{"name":"value","type":"bytes","field-id":130}]}}]},
			{"name":"key_metadata","type":["null","bytes"],"field-id":131},
			{"name":"equality_ids","type":["null",{"type":"array","items":"int"}],"field-id":135},
			{"name":"referenced_data_file","type":["null","string"],"field-id":143},
			{"name":"content_offset","type":["null","long"],"field-id":144},{"name":"content_size_in_bytes","type":["null","long"],"field-id":145}]}}]}`
)

// manifest writes a manifest with added files, and returns its entry in a list.
func (w *written) manifest(spec int64, partition string, files ...record) record {
	content := int64(0)
	entries := make([]record, len(files))
	for i, f := range files {
		if f[fileContent] != int64(0) {
			content = 1
		}
		entries[i] = record{entryStatus: int64(1), entryFile: f}
	}
	return with(w.entries(spec, partition, entries...), listContent, content)
}

// entries writes a manifest of data.
func (w *written) entries(spec int64, partition string, entries ...record) record {
	w.Helper()
	name := fmt.Sprintf("metadata/m%d.avro", w.count("metadata"))
	w.write(name, encodeAvro(w, fmt.Sprintf(entrySchema, partition), map[string]string{"partition-spec-id": fmt.Sprint(spec)}, entries))
	return record{listPath: location + "/" + name, listSpec: spec, listContent: int64(0)}
}

func (w *written) count(folder string) int {
	entries, err := os.ReadDir(filepath.Join(w.folder, folder))
	if err != nil {
		w.Fatal(err)
	}
	return len(entries)
}

// commit adds a snapshot with the manifests of the one before and new ones.
func (w *written) commit(manifests ...record) {
	w.Helper()
	old := w.lists[w.sequence]
	w.sequence++
	all := slices.Clone(old)
	for _, m := range manifests {
		all = append(all, with(m, listSequence, w.sequence))
	}
	w.lists[w.sequence] = all
	name := fmt.Sprintf("metadata/snap-%d.avro", w.sequence)
	w.write(name, encodeAvro(w, listSchema, nil, all))
	w.snapshot(map[string]any{"manifest-list": location + "/" + name})
}

// snapshot adds a snapshot to the metadata.
func (w *written) snapshot(s map[string]any) {
	s["snapshot-id"], s["timestamp-ms"], s["schema-id"] = w.sequence, w.sequence*1000, w.metadata["current-schema-id"]
	snapshots, _ := w.metadata["snapshots"].([]any)
	log, _ := w.metadata["snapshot-log"].([]any)
	w.set("snapshots", append(snapshots, s))
	w.set("snapshot-log", append(log, map[string]any{"snapshot-id": w.sequence, "timestamp-ms": w.sequence * 1000}))
	w.set("current-snapshot-id", w.sequence)
}

// read reads the table.
func (w *written) read(r lake.Request) (*lake.Snapshot, error) {
	w.Helper()
	data, err := json.Marshal(w.metadata)
	if err != nil {
		w.Fatal(err)
	}
	w.write("metadata/v1.metadata.json", data)
	return Read(w.Context(), lake.Folder(w.folder), r)
}

// rows returns the rows of the table, with commas between their values.
func (w *written) rows(r lake.Request) (rows []string) {
	w.Helper()
	s, err := w.read(r)
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range s.Files {
		t, err := columnfile.OpenView(filepath.Join(w.folder, filepath.FromSlash(f.Name)), &f.View)
		if err != nil {
			w.Fatal(err)
		}
		defer t.Close()
		for {
			b, err := t.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				w.Fatal(err)
			}
			if err := b.Rows(func(_ int, cells [][]byte) error {
				rows = append(rows, string(bytes.Join(cells, []byte(","))))
				return nil
			}); err != nil {
				w.Fatal(err)
			}
		}
	}
	return rows
}

// want checks the rows of the table.
func (w *written) want(r lake.Request, want ...string) {
	w.Helper()
	if got := w.rows(r); !slices.Equal(got, want) {
		w.Errorf("%+v: the rows are %q, expected %q", r, got, want)
	}
}

// refused checks that an error has a text.
func refused(t testing.TB, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, expected %q", err, want)
	}
}

// encodeAvro returns an Avro file with a block for each record.
func encodeAvro[T testing.TB](t T, schema string, header map[string]string, records []record) []byte {
	var text any
	if err := json.Unmarshal([]byte(schema), &text); err != nil {
		t.Fatal(err)
	}
	kind, err := parseAvro(text, map[string]*avroType{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	const sync = "0123456789abcdef"
	out := binary.AppendVarint([]byte("Obj\x01"), int64(len(header)+1))
	out = appendAvro(out, &avroType{kind: "string"}, "avro.schema")
	out = appendAvro(out, &avroType{kind: "string"}, schema)
	for key, value := range header {
		out = appendAvro(appendAvro(out, &avroType{kind: "string"}, key), &avroType{kind: "string"}, value)
	}
	out = append(append(out, 0), sync...)
	for _, r := range records {
		block := compress(t, header["avro.codec"], appendAvro(nil, kind, r))
		out = binary.AppendVarint(binary.AppendVarint(out, 1), int64(len(block)))
		out = append(append(out, block...), sync...)
	}
	return out
}

// appendAvro appends the encoding of a value. A missing value of another type than a union is zero.
func appendAvro(out []byte, t *avroType, value any) []byte {
	switch t.kind {
	case "int", "long":
		x, _ := value.(int64)
		return binary.AppendVarint(out, x)
	case "boolean":
		if value == true {
			return append(out, 1)
		}
		return append(out, 0)
	case "double":
		return binary.LittleEndian.AppendUint64(out, math.Float64bits(value.(float64)))
	case "float":
		return binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(value.(float64))))
	case "string":
		text, _ := value.(string)
		return append(binary.AppendVarint(out, int64(len(text))), text...)
	case "bytes":
		data, _ := value.([]byte)
		return append(binary.AppendVarint(out, int64(len(data))), data...)
	case "fixed":
		return append(out, value.([]byte)...)
	case "union": // of null and another type
		if value == nil {
			return binary.AppendVarint(out, 0)
		}
		return appendAvro(binary.AppendVarint(out, 1), t.parts[1], value)
	case "array":
		var content []byte
		items, _ := value.([]any)
		for _, item := range items {
			content = appendAvro(content, t.parts[0], item)
		}
		switch n := int64(len(items)); {
		case n > 1: // with the size of the block, as a writer may
			out = binary.AppendVarint(binary.AppendVarint(out, -n), int64(len(content)))
		case n > 0:
			out = binary.AppendVarint(out, n)
		}
		return append(append(out, content...), 0)
	case "record":
		r, _ := value.(record)
		for i, part := range t.parts {
			out = appendAvro(out, part, r[t.ids[i]])
		}
	}
	return out
}

// compress returns a block in a codec.
func compress(t testing.TB, codec string, block []byte) []byte {
	var out bytes.Buffer
	switch codec {
	case "", "null":
		return block
	case "deflate":
		c, err := flate.NewWriter(&out, 1)
		if err != nil {
			t.Fatal(err)
		}
		c.Write(block)
		c.Close()
	case "snappy":
		out.Write(snappy.Encode(nil, block))
		out.Write(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(block)))
	case "zstandard":
		c, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		c.Write(block)
		c.Close()
	default:
		t.Fatalf("no codec %s", codec)
	}
	return out.Bytes()
}

package iceberg

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"shaver/internal/base/fault"
)

// everything has all types of Avro that manifests may have.
const everything = `{"type":"record","name":"r","fields":[
	{"name":"a","type":"boolean","field-id":1},{"name":"b","type":"long","field-id":2},{"name":"c","type":"float","field-id":3},{"name":"d","type":"double","field-id":4},
	{"name":"e","type":["null","string"],"field-id":5},{"name":"f","type":{"type":"fixed","name":"two","size":2},"field-id":6},{"name":"g","type":"two","field-id":7},
	{"name":"h","type":{"type":"array","items":{"type":"record","name":"s","fields":[{"name":"x","type":"bytes","field-id":9}]}},"field-id":8}]}`

func decoded(data []byte, skip map[int]bool) (all []record, err error) {
	err = decodeAvro(data, skip, func(_ map[string]string, r record) error {
		all = append(all, r)
		return nil
	})
	return all, err
}

// What is written in any codec is read. Fields that are skipped are left out.
func TestAvro(t *testing.T) {
	r := record{1: true, 2: int64(-1 << 40), 3: 0.5, 4: 0.1, 5: "text", 6: []byte("ab"), 7: []byte("cd"), 8: []any{record{9: []byte("x")}, record{9: []byte{}}}}
	null := record{1: false, 2: int64(0), 3: 0.0, 4: 0.0, 6: []byte("ab"), 7: []byte("cd"), 8: []any(nil)}
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		data := encodeAvro(t, everything, map[string]string{"avro.codec": codec}, []record{r, null})
		if got, err := decoded(data, nil); err != nil || !reflect.DeepEqual(got, []record{r, null}) {
			t.Errorf("%s: the records are %v, %v", codec, got, err)
		}
		got, err := decoded(data, map[int]bool{8: true, 2: true})
		if err != nil || len(got) != 2 || len(got[0]) != 6 || got[0][5] != "text" {
			t.Errorf("%s: the records without fields are %v, %v", codec, got, err)
		}
		for n := range data {
			if _, err := decoded(data[:n], nil); !fault.IsInput(err) && n != len(data) && (n < 4 || err != nil) {
				t.Errorf("%s, %d bytes: the error is %v, expected bad input", codec, n, err)
			}
		}
	}
}

// A block that decompresses to more than the bound, values without bytes, and types without end are bad input.
func TestAvroBounds(t *testing.T) {
	text := `{"type":"record","name":"r","fields":[{"name":"a","field-id":1,"type":"bytes"}]}`
	for _, codec := range []string{"deflate", "snappy", "zstandard"} {
		data := encodeAvro(t, text, map[string]string{"avro.codec": codec}, []record{{1: make([]byte, mostBlock)}})
		_, err := decoded(data, nil)
		refused(t, err, "block 0")
	}
	file := func(schema string, count, size int64, block string) []byte {
		const sync = "0123456789abcdef"
		kind := &avroType{kind: "string"}
		out := appendAvro(appendAvro([]byte("Obj\x01\x02"), kind, "avro.schema"), kind, schema)
		out = append(append(out, 0), sync...)
		out = appendAvro(appendAvro(out, &avroType{kind: "long"}, count), &avroType{kind: "long"}, size)
		return append(append(out, block...), sync...)
	}
	array := `{"type":"record","name":"r","fields":[{"name":"a","field-id":1,"type":{"type":"array","items":"null"}}]}`
	for name, data := range map[string][]byte{
		"records without fields": file(`{"type":"record","name":"r","fields":[]}`, 1<<40, 0, ""),
		"an array of nulls":      file(array, 1, 6, "\xfe\xff\xff\xff\xff\x00"),
		"too many values":        file(strings.Replace(array, "null", "boolean", 1), 1, mostValues+5, string(appendAvro(nil, &avroType{kind: "long"}, int64(mostValues)))+strings.Repeat("\x00", mostValues+1)),
		"a type in itself":       file(`{"type":"record","name":"r","fields":[{"name":"a","field-id":1,"type":"r"}]}`, 1, 0, ""),
		"a codec":                encodeAvro(t, `{"type":"record","name":"r","fields":[]}`, map[string]string{"avro.codec": ""}, nil)[:40],
		"a deep schema":          file(strings.Repeat(`{"type":`, 100)+`"int"`+strings.Repeat("}", 100), 0, 0, ""),
		"another type":           file(`"long"`, 0, 0, ""),
		"an unknown type":        file(`{"type":"record","name":"r","fields":[{"name":"a","type":"int128"}]}`, 1, 1, "\x00"),
		"a negative size":        file(array, 1, -5, ""),
		"no schema":              file("", 0, 0, ""),
	} {
		if _, err := decoded(data, nil); !fault.IsInput(err) {
			t.Errorf("%s: the error is %v, expected bad input", name, err)
		}
	}
	_, err := decompress("lzma", nil)
	refused(t, err, `the codec is "lzma"`)
}

// Malformed manifests are bad input.
func FuzzManifest(f *testing.F) {
	for _, codec := range []string{"null", "deflate", "snappy"} {
		f.Add(encodeAvro(f, everything, map[string]string{"avro.codec": codec}, []record{{3: 0.5, 4: 0.1, 6: []byte("ab"), 7: []byte("cd")}}))
	}
	file := record{filePath: "a", fileFormat: "PARQUET", fileRows: int64(1), fileBytes: int64(1), fileLower: []any{record{126: int64(1), 127: []byte("x")}}, filePartition: record{1000: int64(1)}}
	f.Add(encodeAvro(f, fmt.Sprintf(entrySchema, `{"name":"b","field-id":1000,"type":["null","int"]}`), nil, []record{{entryStatus: int64(1), entryFile: file}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &schema{Fields: []field{{ID: 1, Name: "a", Type: "string"}}}
		m := &metadata{Location: "l", Specs: []*spec{{Fields: []specField{{Source: 1, ID: 1000, Name: "b", Transform: "day"}}}}}
		m.Specs[0].resolve(c)
		err := decodeAvro(data, unused, func(header map[string]string, r record) error {
			_, err := m.entry(&manifest{}, header, r, []int32{1})
			return err
		})
		if err != nil && !fault.IsInput(err) {
			t.Errorf("%v is not bad input", err)
		}
	})
}

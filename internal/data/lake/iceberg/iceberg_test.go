package iceberg

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/lake"
)

func where(t *testing.T, conditions ...string) (r lake.Request) {
	t.Helper()
	for _, text := range conditions {
		c, err := lake.ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		r.Where = append(r.Where, c)
	}
	return r
}

// A snapshot has the files that its manifests list and that are not deleted. --at names an earlier one by its id, by a
// branch or a tag, or by a time.
func TestSnapshots(t *testing.T) {
	w := newTable(t)
	_, err := w.read(lake.Request{})
	refused(t, err, "the table is empty")
	a := w.parquet("data/a.parquet", "id", 1, []any{1, 2}, "name", 2, []any{"x", nil})
	b := w.parquet("data/b.parquet", "name", 2, []any{"y"}, "id", 1, []any{3})
	w.commit(w.manifest(0, "", a))
	w.commit(w.manifest(0, "", b))
	w.want(lake.Request{}, "1,x", "2,", "3,y")
	w.lists[2] = nil
	w.commit(w.entries(0, "", record{entryStatus: int64(2), entrySequence: int64(1), entryFile: a}, record{entryStatus: int64(0), entrySequence: int64(2), entryFile: b}))
	w.set("refs", map[string]any{"old": map[string]any{"snapshot-id": 1, "type": "tag"}, "main": map[string]any{"snapshot-id": 3, "type": "branch"}})
	w.want(lake.Request{}, "3,y")
	for at, want := range map[string]string{"1": "1", "2": "2", "old": "1", "main": "3", "1970-01-01T00:00:02.5Z": "2", "1970-01-01T01:00:01+01:00": "1"} {
		s, err := w.read(lake.Request{At: at})
		if err != nil {
			t.Fatal(err)
		}
		if s.ID != want || s.Format != "iceberg" || s.Table != "u" {
			t.Errorf("%s is %+v, expected the snapshot %s", at, s, want)
		}
	}
	for at, want := range map[string]string{"4": "no snapshot 4", "new": `the branches and tags are ["main" "old"]`, "1970-01-01T00:00:00Z": "no snapshot was current"} {
		_, err := w.read(lake.Request{At: at})
		refused(t, err, want)
		if !fault.IsInput(err) {
			t.Errorf("%v is not bad input", err)
		}
	}
}

// A snapshot that is named has its own schema. The newest one and branches have the table's.
func TestSchemas(t *testing.T) {
	w := newTable(t)
	w.commit(w.manifest(0, "", w.parquet("data/a.parquet", "id", 1, []any{1}, "name", 2, []any{"x"})))
	w.set("refs", map[string]any{"b": map[string]any{"snapshot-id": 1, "type": "branch"}, "t": map[string]any{"snapshot-id": 1, "type": "tag"}})
	w.set("schemas", append(w.metadata["schemas"].([]any), map[string]any{"schema-id": 1, "fields": []any{column(2, "text", "string"), column(3, "id", "int")}}))
	w.set("current-schema-id", 1)
	w.want(lake.Request{}, "x,")
	w.want(lake.Request{At: "b"}, "x,")
	w.want(lake.Request{At: "t"}, "1,x")
	w.want(lake.Request{At: "1"}, "1,x")
}

// A column that a file lacks has the value by which the file is partitioned, or else its default, or else none. Without field
// IDs, names in the name mapping find it, or without one its own.
func TestColumns(t *testing.T) {
	w := newTable(t, column(1, "id", "long"), column(2, "city", "string", "initial-default", "Rome"), column(3, "day", "date", "initial-default", "2026-11-29"))
	w.set("partition-specs", []any{
		map[string]any{"spec-id": 0, "fields": []any{}},
		map[string]any{"spec-id": 1, "fields": []any{map[string]any{"source-id": 2, "field-id": 1000, "name": "c", "transform": "identity"}}},
	})
	id := func(name string, more ...any) record {
		return w.parquet("data/"+name, append([]any{"id", 1, []any{1}}, more...)...)
	}
	w.set("format-version", 3)
	city := `{"name":"c","field-id":1000,"type":["null","string"]}`
	w.commit(
		w.manifest(0, "", id("a"), id("b", "city", 2, []any{"Oslo"}), w.parquet("data/c", "id", 1, []any{1, 1}, "city", 2, []any{nil, "Lodz"})),
		w.manifest(1, city, with(id("d"), filePartition, record{1000: "Bern"}), with(id("e"), filePartition, record{})),
		w.manifest(0, "", w.parquet("data/f", "id", 0, []any{2}, "town", 0, []any{"Kyiv"})),
	)
	w.want(lake.Request{}, "1,Rome,2026-11-29", "1,Oslo,2026-11-29", "1,,2026-11-29", "1,Lodz,2026-11-29", "1,Bern,2026-11-29", "1,,2026-11-29", "2,Rome,2026-11-29")
	w.set("properties", map[string]any{"schema.name-mapping.default": `[{"field-id": 2, "names": ["city", "town"]}]`})
	w.want(lake.Request{}, "1,Rome,2026-11-29", "1,Oslo,2026-11-29", "1,,2026-11-29", "1,Lodz,2026-11-29", "1,Bern,2026-11-29", "1,,2026-11-29", ",Kyiv,2026-11-29")
}

// The kind of a column is that of its type, and that of a list is the kind of its elements.
func TestKinds(t *testing.T) {
	list := map[string]any{"type": "list", "element": "double", "element-id": 9}
	kinds := []any{"long", "numbers", "boolean", "truth values", "timestamp_ns", "timestamps without a zone", "timestamptz", "timestamps with a zone", "time", "times of day",
		"uuid", "", "decimal(9, 2)", "", "fixed[3]", "", "variant", "", list, "numbers", map[string]any{"type": "struct", "fields": []any{}}, "", map[string]any{"type": "map"}, ""}
	var fields []any
	for i := 0; i < len(kinds); i += 2 {
		fields = append(fields, column(i+1, fmt.Sprint("c", i), kinds[i]))
	}
	w := newTable(t, fields...)
	w.commit(w.manifest(0, "", w.parquet("data/a", "c0", 1, []any{1})))
	s, err := w.read(lake.Request{})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range s.Columns {
		if got := s.Files[0].View.Columns[i].Double; got != (c.Name == "c18") {
			t.Errorf("%v: Double is %t", kinds[2*i], got)
		}
		if c.Kind != kinds[2*i+1] {
			t.Errorf("%v has the kind %q, expected %q", kinds[2*i], c.Kind, kinds[2*i+1])
		}
	}
}

// The defaults of columns have the texts of their values.
func TestDefaults(t *testing.T) {
	for _, c := range [][3]string{
		{"boolean", "true", "1"}, {"int", "-3", "-3"}, {"float", "0.1", "0.1"}, {"double", "3", "3"}, {"string", `"x"`, "x"}, {"date", `"1969-12-31"`, "1969-12-31"},
		{"time", `"22:31:08.12"`, "22:31:08.12"}, {"timestamp", `"2017-11-16T22:31:08"`, "2017-11-16 22:31:08"}, {"timestamptz", `"2017-11-16T22:31:08+00:00"`, "2017-11-16 22:31:08+00:00"},
		{"timestamp_ns", `"2017-11-16T22:31:08.123456789"`, "2017-11-16 22:31:08.123456789"}, {"uuid", `"f"`, ""}, {"int", "null", ""}, {"int", "", ""},
	} {
		if got, err := kind(c[0]).given(json.RawMessage(c[1])); err != nil || got != c[2] {
			t.Errorf("%s %s is %q, %v, expected %q", c[0], c[1], got, err, c[2])
		}
	}
	for _, c := range [][2]string{{"boolean", "1"}, {"int", "1.5"}, {"double", `"x"`}, {"date", `"x"`}, {"string", "1"}} {
		if got, err := kind(c[0]).given(json.RawMessage(c[1])); err == nil {
			t.Errorf("%s %s is %q, expected an error", c[0], c[1], got)
		}
	}
}

// Position deletes apply to data files of the same or an earlier snapshot, and equality deletes to those of an earlier one. In a partition
// they apply to its files only. A missing value equals a missing one, and not an empty text.
func TestDeletes(t *testing.T) {
	w := newTable(t)
	w.set("partition-specs", []any{
		map[string]any{"spec-id": 0, "fields": []any{}},
		map[string]any{"spec-id": 1, "fields": []any{map[string]any{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[2]"}}},
	})
	data := func(name string) record {
		return w.parquet(name, "id", 1, []any{1, 2, 3, 4}, "name", 2, []any{"x", "", nil, "y"})
	}
	bucket := `{"name":"b","field-id":1000,"type":["null","int"]}`
	in := func(b int64, r record) record { return with(r, filePartition, record{1000: b}) }
	equal := func(name string, ids []any, columns ...any) record {
		return with(w.parquet(name, columns...), fileContent, int64(2), fileEquality, ids)
	}
	a, b, c := data("data/a"), in(0, data("data/b")), in(1, data("data/c"))
	w.commit(w.manifest(0, "", a), w.manifest(1, bucket, b, c), w.manifest(0, "", w.positions("data/p", "data/a", 0), w.positions("data/q", "data/b", 0)))
	w.want(lake.Request{}, "2,", "3,", "4,y", "1,x", "2,", "3,", "4,y", "1,x", "2,", "3,", "4,y") // b is in another partition than q
	w.commit(w.manifest(1, bucket, in(1, equal("data/e", []any{int64(2)}, "name", 2, []any{nil, "x"}))))
	w.want(lake.Request{}, "2,", "3,", "4,y", "1,x", "2,", "3,", "4,y", "2,", "4,y")
	w.commit(w.manifest(0, "", equal("data/f", []any{int64(2), int64(1)}, "id", 1, []any{4, 2}, "name", 2, []any{"y", nil})), w.manifest(0, "", data("data/g")))
	w.want(lake.Request{}, "2,", "3,", "1,x", "2,", "3,", "2,", "1,x", "2,", "3,", "4,y")
	w.commit(w.manifest(0, "", vector(w, "data/v", "data/g", 1, 3)))
	w.commit(w.manifest(0, "", with(w.positions("data/h", "data/g", 0), fileReferenced, location+"/data/g"))) // superseded by the vector
	w.want(lake.Request{}, "2,", "3,", "1,x", "2,", "3,", "2,", "1,x", "3,")
	s, err := w.read(lake.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if first, second := s.Files[0].Deletes, s.Files[2].Deletes; first == "" || first == second || s.Files[3].Deletes == "" {
		t.Errorf("the deletes are identified by %q and %q", first, second)
	}
	// Files without field IDs have the columns by their names.
	h := newTable(t)
	h.commit(h.manifest(0, "", h.parquet("data/a", "id", 0, []any{1, 2}, "name", 0, []any{"x", "y"})))
	h.commit(h.manifest(0, "", with(h.parquet("data/b", "id", 0, []any{2}), fileContent, int64(2), fileEquality, []any{int64(1)})))
	h.want(lake.Request{}, "1,x")
	// A key is deleted only from files that are older than the deletes with it.
	h = newTable(t)
	h.commit(h.manifest(0, "", h.parquet("data/0", "id", 1, []any{1})))
	h.commit(h.manifest(0, "", with(h.parquet("data/a", "id", 1, []any{1}), fileContent, int64(2), fileEquality, []any{int64(1)})))
	h.commit(h.manifest(0, "", h.parquet("data/b", "id", 1, []any{1, 2, 3})))
	h.commit(h.manifest(0, "", with(h.parquet("data/c", "id", 1, []any{2}), fileContent, int64(2), fileEquality, []any{int64(1)})))
	h.want(lake.Request{}, "1,", "3,")
	// NaN equals NaN, and not a missing value.
	n := newTable(t, column(1, "x", "double"))
	n.commit(n.manifest(0, "", n.parquet("data/a", "x", 1, []any{math.NaN(), nil}), n.parquet("data/b", "x", 1, []any{nil, 1.5})))
	n.commit(n.manifest(0, "", with(n.parquet("data/c", "x", 1, []any{math.NaN()}), fileContent, int64(2), fileEquality, []any{int64(1)})))
	n.want(lake.Request{}, "", "", "1.5")
	// Two columns of a key may have had one name.
	h.set("schemas", append(h.metadata["schemas"].([]any), map[string]any{"schema-id": 1, "fields": []any{column(1, "id", "long"), column(5, "name", "long")}}))
	h.set("current-schema-id", 1)
	h.commit(h.manifest(0, "", h.parquet("data/d", "id", 1, []any{7, 8}, "name", 5, []any{0, 0}, "old", 2, []any{"x", "y"})))
	h.commit(h.manifest(0, "", with(h.parquet("data/e", "name", 2, []any{"y"}, "new", 5, []any{0}), fileContent, int64(2), fileEquality, []any{int64(2), int64(5)})))
	h.want(lake.Request{}, "1,", "3,", "7,0")
	// A column that was dropped is still compared.
	w.set("schemas", append(w.metadata["schemas"].([]any), map[string]any{"schema-id": 1, "fields": []any{column(1, "id", "long")}}))
	w.set("current-schema-id", 1)
	w.want(lake.Request{}, "2", "3", "1", "2", "3", "2", "1", "3")
}

// vector writes a deletion vector in a Puffin file, and returns its entry.
func vector(w *written, name, path string, rows ...uint64) record {
	blob := vectorBlob(w, rows...)
	w.write(name, append([]byte("PFA1"), blob...))
	return record{
		filePath: location + "/" + name, fileFormat: "PUFFIN", fileRows: int64(len(rows)), fileBytes: int64(4 + len(blob)), filePartition: record{}, fileContent: int64(1),
		fileReferenced: location + "/" + path, fileOffset: int64(4), fileSize: int64(len(blob)),
	}
}

// A condition on what a file is partitioned by chooses files. One on a column leaves out files whose bounds exclude it.
func TestWhere(t *testing.T) {
	w := newTable(t, column(1, "id", "long"), column(2, "name", "string"), column(3, "day", "date"))
	w.set("partition-specs", []any{
		map[string]any{"spec-id": 0, "fields": []any{}},
		map[string]any{"spec-id": 1, "fields": []any{
			map[string]any{"source-id": 3, "field-id": 1000, "name": "day", "transform": "identity"},
			map[string]any{"source-id": 1, "field-id": 1001, "name": "id_bucket", "transform": "bucket[8]"},
			map[string]any{"source-id": 9, "field-id": 1002, "name": "gone", "transform": "identity"},
		}},
	})
	fields := `{"name":"day","field-id":1000,"type":["null",{"type":"int","logicalType":"date"}]},{"name":"id_bucket","field-id":1001,"type":["null","int"]}`
	data := func(name string, id int64, day, bucket any) record {
		low, high := binary.LittleEndian.AppendUint32(nil, uint32(id)), binary.LittleEndian.AppendUint64(nil, uint64(id+10)) // an int before
		return with(w.parquet(name, "id", 1, []any{int(id), int(id) + 10}), filePartition, record{1000: day, 1001: bucket},
			fileLower, []any{record{126: int64(1), 127: low}}, fileUpper, []any{record{129: int64(1), 130: high}}, fileNulls, []any{record{121: int64(1), 122: int64(0)}, record{121: int64(2), 122: int64(2)}})
	}
	w.commit(w.manifest(1, fields, data("data/a", 0, int64(20786), int64(3)), data("data/b", 100, int64(20787), int64(10)), data("data/c", 200, nil, int64(3))))
	for _, c := range [][3]string{
		{"day=2026-11-29", "a", ""}, {"day!=", "a b", ""}, {"day=", "c", ""}, {"day>2026-11-29", "b", ""}, {"id_bucket>=10", "b", ""}, {"id_bucket=3", "a c", ""},
		{"id>=105", "b c", "id>=105"}, {"id<=105", "a b", "id<=105"}, {"id=1e2", "b", "id=1e2"}, {"name=x", "", "name=x"}, {"name=", "a b c", "name="},
		{"day>2026-11-29 id<105", "b", "id<105"},
	} {
		s, err := w.read(where(t, strings.Fields(c[0])...))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range s.Files {
			names = append(names, strings.TrimPrefix(f.Name, "data/"))
		}
		if got := strings.Join(names, " "); got != c[1] || s.Where.String() != c[2] {
			t.Errorf("%s: the files are %s and %q remains, expected %s and %q", c[0], got, s.Where, c[1], c[2])
		}
		if got := fmt.Sprint(s.Values); got != "map[day:[ 2026-11-29 2026-11-30] id_bucket:[10 3]]" {
			t.Errorf("%s: the values are %s", c[0], got)
		}
	}
	_, err := w.read(where(t, "city=Rome"))
	refused(t, err, `no column or partition field "city": the columns are ["id" "name" "day"], and the partition fields are ["id_bucket"]`)
	w.commit(w.manifest(0, "", w.parquet("data/d", "id", 1, []any{1})))
	_, err = w.read(where(t, "id_bucket=3"))
	refused(t, err, `data/d is not partitioned by the field "id_bucket"`)
	if s, err := w.read(where(t, "day=2026-11-29")); err != nil || len(s.Files) != 2 || len(s.Where) != 1 || len(s.Values) != 0 {
		t.Errorf("the snapshot is %+v, %v", s, err)
	}
}

// Bounds exclude a value only if they are known. They are those of the type that a column had when they were written.
func TestBounds(t *testing.T) {
	four := func(x uint32) []byte { return binary.LittleEndian.AppendUint32(nil, x) }
	eight := func(x uint64) []byte { return binary.LittleEndian.AppendUint64(nil, x) }
	for _, c := range []struct {
		kind        kind
		low, high   []byte
		nulls, nans int64
		yes, no     string
	}{
		{"int", four(3), four(5), 0, -1, "x=4 x>=5 x!=4", "x=6 x<3 x="},
		{"int", four(3), four(5), 1, -1, "x=4 x= x!=4", "x=6"},
		{"int", four(3), four(5), -1, -1, "x=", "x=6"},
		{"int", four(3), four(5), 9, -1, "x= x!=4", "x=4 x<9"}, // all are missing
		{"long", four(1<<32 - 1), eight(5), 0, -1, "x=-1 x=5", "x=-2 x=6"},
		{"float", four(math.Float32bits(0.5)), four(math.Float32bits(1)), 0, 0, "x=0.5", "x=2 x="},
		{"double", four(math.Float32bits(0.5)), eight(math.Float64bits(1)), 0, 1, "x=0.5 x=", "x=2"},
		{"double", eight(math.Float64bits(0.5)), eight(math.Float64bits(1)), 0, -1, "x=", "x=2"},
		{"string", []byte("b"), []byte("d"), 0, -1, "x=c x=b", "x=a x=e x="},
		{"string", []byte(""), []byte("d"), 0, -1, "x= x=a", "x=e"},
		{"boolean", []byte{1}, []byte{1}, 0, -1, "x=1", "x=0"},
		{"date", four(0), four(1), 0, -1, "x=1970-01-02", "x=1970-01-03"},
		{"timestamptz", eight(0), eight(1e6), 0, -1, "x<1970-01-02", "x>1970-01-01 00:00:01+00:00"},
		{"timestamp", four(0), eight(1e6), 0, -1, "x=2", ""}, // a date before
		{"uuid", make([]byte, 16), make([]byte, 16), 0, -1, "x=2", ""},
		{"int", nil, four(5), 0, -1, "x=9", ""},
	} {
		for conditions, want := range map[string]bool{c.yes: true, c.no: false} {
			for text := range strings.SplitSeq(strings.ReplaceAll(conditions, " x", ";x"), ";") {
				if text == "" {
					continue
				}
				w := where(t, text).Where[0]
				if got := (bounds{c.low, c.high, c.nulls, c.nans}).mayHold(&w, &field{Type: c.kind}, 9); got != want {
					t.Errorf("%s from %x to %x, %d missing and %d NaN: %s may hold is %t", c.kind, c.low, c.high, c.nulls, c.nans, text, got)
				}
			}
		}
	}
}

// The values of partition fields have texts.
func TestTransforms(t *testing.T) {
	c := &schema{Fields: []field{{ID: 1, Name: "c", Type: "string"}, {ID: 2, Name: "d", Type: "decimal(3, 1)"}}}
	for _, x := range []struct {
		transform string
		source    int32
		value     any
		want      string
	}{
		{"identity", 1, "é", "é"}, {"truncate[2]", 1, "ab", "ab"}, {"bucket[4]", 2, int64(3), "3"}, {"year", 1, int64(56), "2026"}, {"year", 1, int64(-1), "1969"},
		{"month", 1, int64(682), "2026-11"}, {"month", 1, int64(-1), "1969-12"}, {"day", 1, int64(20786), "2026-11-29"}, {"hour", 1, int64(20786*24 + 13), "2026-11-29-13"},
		{"hour", 1, int64(-1), "1969-12-31-23"}, {"hour", 1, nil, ""}, {"day", 9, int64(0), "1970-01-01"},
	} {
		s := &spec{Fields: []specField{{Source: x.source, Name: "f", Transform: x.transform}}}
		s.resolve(c)
		if len(s.parts) != 1 || s.parts[0].id != 1000 {
			t.Fatalf("%s: the parts are %+v", x.transform, s.parts)
		}
		if got, err := s.parts[0].text(x.value); err != nil || got != x.want {
			t.Errorf("%s of %v is %q, %v, expected %q", x.transform, x.value, got, err, x.want)
		}
		if _, err := s.parts[0].text([]byte{1}); err == nil {
			t.Errorf("%s of bytes has a text", x.transform)
		}
		if _, err := s.parts[0].text(int64(1 << 40)); err == nil && x.transform != "bucket[4]" {
			t.Errorf("%s of 2^40 has a text", x.transform)
		}
	}
	for _, f := range []specField{{Source: 1, Name: "d", Transform: "bucket[4]"}, {Source: 1, Transform: "void"}, {Source: 1, Transform: "zorder"}, {Source: 2, Transform: "identity"}, {Source: 9, Transform: "identity"}, {Source: 2, Transform: "truncate[4]"}} {
		s := &spec{Fields: []specField{f}}
		if s.resolve(c); len(s.parts) != 0 {
			t.Errorf("%+v has the parts %+v", f, s.parts)
		}
	}
}

// A table of version 1 may have its only schema and partition spec outside lists, and the manifests of a snapshot in the metadata.
func TestVersion1(t *testing.T) {
	w := newTable(t)
	m := w.entries(7, `{"name":"id","field-id":1000,"type":["null","long"]}`, record{entryStatus: int64(1), entryFile: with(w.parquet("data/a", "id", 1, []any{1}), filePartition, record{1000: int64(1)})})
	w.sequence++
	w.snapshot(map[string]any{"manifests": []any{m[listPath]}})
	w.set("format-version", 1)
	w.set("schema", w.metadata["schemas"].([]any)[0])
	w.set("schemas", nil)
	w.set("partition-specs", []any{map[string]any{"spec-id": 7, "fields": []any{map[string]any{"source-id": 1, "name": "id", "transform": "identity"}}}})
	w.want(lake.Request{}, "1,")
	w.want(where(t, "id=2"))
}

// The newest metadata is that which version-hint.text names, or a later one, and otherwise that with the highest version.
func TestNewest(t *testing.T) {
	for _, c := range []struct{ files, want string }{
		{"v2.metadata.json v10.metadata.json v9.gz.metadata.json", "v10.metadata.json"},
		{"00002-a.metadata.json 00010-b.metadata.json.gz x.avro", "00010-b.metadata.json.gz"},
		{"v1.metadata.json v2.metadata.json v3.metadata.json v5.metadata.json version-hint.text=2", "v3.metadata.json"},
		{"00001-a.metadata.json 00001-b.metadata.json version-hint.text=00001-a", "00001-a.metadata.json"},
		{"00001-a.metadata.json 00001-b.metadata.json version-hint.text=00001-b.metadata.json", "00001-b.metadata.json"},
		{"v1.metadata.json version-hint.text=2", "error: metadata/v2.metadata.json does not exist"},
		{"00001-a.metadata.json 00001-b.metadata.json 00000-c.metadata.json", "error: 2 files have the version 1"},
		{"x.avro", "error: no metadata file"},
	} {
		w := newTable(t)
		for _, name := range strings.Fields(c.files) {
			name, text, _ := strings.Cut(name, "=")
			w.write("metadata/"+name, []byte(text+"\n"))
		}
		got, err := newest(t.Context(), lake.Folder(w.folder))
		if want, bad := strings.CutPrefix(c.want, "error: "); bad {
			refused(t, err, want)
		} else if err != nil || got != "metadata/"+c.want {
			t.Errorf("%s: the newest is %s, %v, expected %s", c.files, got, err, c.want)
		}
	}
}

// What the package does not support is refused by name.
func TestRefused(t *testing.T) {
	parquet := func(w *written) record { return w.parquet("data/a", "id", 1, []any{1}) }
	for want, change := range map[string]func(w *written, m, f record) record{
		"format-version 4":                    func(w *written, m, _ record) record { w.set("format-version", 4); return m },
		"that of a view":                      func(w *written, m, _ record) record { w.set("view-uuid", "v"); return m },
		"no location":                         func(w *written, m, _ record) record { w.set("location", ""); return m },
		"encryption-keys":                     func(w *written, m, _ record) record { w.set("encryption-keys", []any{map[string]any{}}); return m },
		"a manifest has content 2":            func(_ *written, m, _ record) record { return with(m, listContent, int64(2)) },
		"a manifest has key_metadata":         func(_ *written, m, _ record) record { return with(m, listKey, []byte("k")) },
		"partition spec 5":                    func(_ *written, m, _ record) record { return with(m, listSpec, int64(5)) },
		"data/a: the file has the format ORC": func(w *written, _, f record) record { return w.manifest(0, "", with(f, fileFormat, "orc")) },
		"data/a: the file has key_metadata":   func(w *written, _, f record) record { return w.manifest(0, "", with(f, fileKey, []byte("k"))) },
		"the file has content 3":              func(w *written, _, f record) record { return w.manifest(0, "", with(f, fileContent, int64(3))) },
		"the file has content 1": func(w *written, _, f record) record {
			return w.entries(0, "", record{entryStatus: int64(1), entryFile: with(f, fileContent, int64(1))})
		},
		"a status from 0 to 2": func(w *written, _, f record) record {
			return w.entries(0, "", record{entryStatus: int64(3), entryFile: f})
		},
		"no sequence_number": func(w *written, _, f record) record {
			return w.entries(0, "", record{entryStatus: int64(0), entryFile: f})
		},
		"without ..":                 func(w *written, _, f record) record { return w.manifest(0, "", with(f, filePath, location+"/../a")) },
		"a file that does not exist": func(_ *written, m, _ record) record { return with(m, listPath, location+"/metadata/x.avro") },
	} {
		w := newTable(t)
		f := parquet(w)
		w.commit(change(w, w.manifest(0, "", f), f))
		_, err := w.read(lake.Request{})
		refused(t, err, want)
		if !fault.IsInput(err) {
			t.Errorf("%v is not bad input", err)
		}
	}
	for want, deletes := range map[string]func(w *written) record{
		"the format AVRO":        func(w *written) record { return with(w.positions("data/p", "data/a", 0), fileFormat, "AVRO") },
		"no equality_ids":        func(w *written) record { return with(parquet(w), fileContent, int64(2)) },
		"equality_ids has 8":     func(w *written) record { return with(parquet(w), fileContent, int64(2), fileEquality, []any{int64(8)}) },
		`the position "-1"`:      func(w *written) record { return w.positions("data/p", "data/a", -1) },
		"has 2 rows, expected 1": func(w *written) record { return with(vector(w, "data/v", "data/a", 0, 1), fileRows, int64(1)) },
		"bytes from 9999":        func(w *written) record { return with(vector(w, "data/v", "data/a", 0), fileOffset, int64(9999)) },
		"two deletion vectors": func(w *written) record {
			w.commit(w.manifest(0, "", vector(w, "data/v", "data/a", 0)))
			return vector(w, "data/u", "data/a", 1)
		},
	} {
		w := newTable(t)
		w.commit(w.manifest(0, "", parquet(w)))
		w.commit(w.manifest(0, "", deletes(w)))
		_, err := w.read(lake.Request{})
		refused(t, err, want)
	}
}

// Files that conditions leave out may have any format.
func TestFormats(t *testing.T) {
	w := newTable(t)
	w.set("partition-specs", []any{map[string]any{"spec-id": 0, "fields": []any{map[string]any{"source-id": 1, "field-id": 1000, "name": "id", "transform": "identity"}}}})
	f := w.parquet("data/a", "id", 1, []any{1})
	w.commit(w.manifest(0, `{"name":"id","field-id":1000,"type":["null","long"]}`, with(f, filePartition, record{1000: int64(1)}), with(f, fileFormat, "ORC", filePartition, record{1000: int64(2)})))
	w.want(where(t, "id=1"), "1,")
	_, err := w.read(where(t, "id>=1"))
	refused(t, err, "ORC")
}

// A file in the folder of the table has a name relative to it, whatever form of the URL a writer chose. Other files have their own.
func TestNames(t *testing.T) {
	for _, c := range [][3]string{
		{"s3://b/t", "s3a://b/t/data/x=a%2Fb/y", "data/x=a%2Fb/y"}, {"file:/a/t", "file:///a/t/y", "y"}, {"/a/t", "file:/a/t//y", "y"}, {"file:///a/t", "/a/t/y", "y"},
		{"s3://b/t", "s3n://c/t/y", "s3://c/t/y"}, {"/a/t", "file:/a/t2/y", "file:/a/t2/y"}, {"s3://b/t", "/b/t/y", "/b/t/y"},
	} {
		if got, err := (&metadata{Location: c[0]}).name(c[1]); err != nil || got != c[2] {
			t.Errorf("%s in %s has the name %q, %v, expected %q", c[1], c[0], got, err, c[2])
		}
	}
}

// Compressed metadata is decompressed, whatever its name.
func TestCompressedMetadata(t *testing.T) {
	w := newTable(t)
	w.commit(w.manifest(0, "", w.parquet("data/a", "id", 1, []any{1})))
	data, err := json.Marshal(w.metadata)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(data)
	z.Close()
	m, err := parseMetadata(out.Bytes())
	if err != nil || m.UUID != "u" {
		t.Errorf("the metadata is %+v, %v", m, err)
	}
	_, err = parseMetadata(out.Bytes()[:out.Len()/2])
	refused(t, err, "unexpected EOF")
}

// Malformed metadata is bad input.
func FuzzMetadata(f *testing.F) {
	for _, text := range []string{
		`{"format-version":1,"location":"a","schema":{"fields":[{"id":1,"name":"a","type":{"type":"list","element":"int"}}]},"snapshots":[{"snapshot-id":1}],"current-snapshot-id":1}`,
		`{"format-version":2,"location":"a","schemas":[{"fields":[{"id":1,"name":"a","type":"int","initial-default":1}]}],"partition-specs":[{"spec-id":0,"fields":[{"source-id":1,"transform":"month"}]}],"snapshots":[{"snapshot-id":1}],"refs":{"main":{"snapshot-id":1}}}`,
		`{"format-version":3,"location":"a","snapshots":[null],"properties":{"schema.name-mapping.default":"[]"}}`,
	} {
		f.Add([]byte(text), "main")
	}
	f.Fuzz(func(t *testing.T, data []byte, at string) {
		m, err := parseMetadata(data)
		if err != nil {
			if !fault.IsInput(err) {
				t.Errorf("%v is not bad input", err)
			}
			return
		}
		_, c, err := m.at(at)
		if err != nil {
			return
		}
		for _, s := range m.Specs {
			s.resolve(c)
		}
		m.views(c.Fields)
	})
}

// A constant for a partition field has the form of the field's texts, because others would be compared by their first letters.
func TestConditionOnField(t *testing.T) {
	m := &metadata{Specs: []*spec{{Fields: []specField{
		{Source: 1, Name: "y", Transform: "year"}, {Source: 1, Name: "m", Transform: "month"}, {Source: 1, Name: "d", Transform: "day"}, {Source: 1, Name: "h", Transform: "hour"},
		{Source: 1, Name: "b", Transform: "bucket[8]"},
	}}}}
	m.Specs[0].resolve(&schema{Fields: []field{{ID: 1, Name: "at", Type: "timestamp"}}})
	forms := map[string]string{"y": "2026", "m": "2026-11", "d": "2026-11-29", "h": "2026-11-29-13", "b": "7"}
	for name := range forms {
		for other, text := range forms {
			same := name == other || name == "b" && other == "y" // a year is a number
			for _, operator := range []string{"=", ">=", "<"} {
				if err := m.checkFields(&lake.Condition{Column: name, Operator: operator, Value: text}); (err == nil) != same {
					t.Errorf("%s%s%s: %v", name, operator, text, err)
				}
			}
		}
		if err := m.checkFields(&lake.Condition{Column: name, Operator: "=", Value: ""}); err != nil {
			t.Error(err)
		}
	}
}

package deltalog

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/lake"
)

// store is a table in a folder.
type store string

func (s store) List(_ context.Context, folder string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(string(s), folder))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func (s store) Local(_ context.Context, names []string) ([]string, error) {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = filepath.Join(string(s), name)
		if _, err := os.Stat(paths[i]); err != nil {
			return nil, fault.Inputf("%s: %w", name, fs.ErrNotExist)
		}
	}
	return paths, nil
}

// write writes a file of the log, with a line for each action.
func (s store) write(t testing.TB, name string, actions ...string) {
	t.Helper()
	path := filepath.Join(string(s), "_delta_log", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Join(actions, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// commit writes a commit of a version.
func (s store) commit(t testing.TB, version int, actions ...string) {
	t.Helper()
	s.write(t, fmt.Sprintf("%020d.json", version), actions...)
}

func (s store) read(t testing.TB, at string, where ...string) (*lake.Snapshot, error) {
	t.Helper()
	r := lake.Request{At: at}
	for _, text := range where {
		c, err := lake.ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		r.Where = append(r.Where, c)
	}
	return Read(context.Background(), s, r)
}

// names returns the names of the files of a snapshot, which must be readable.
func (s store) names(t testing.TB, at string, where ...string) string {
	t.Helper()
	snapshot, err := s.read(t, at, where...)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range snapshot.Files {
		names = append(names, f.Name)
	}
	return strings.Join(names, " ")
}

// refused checks that a snapshot is bad input with an error that contains text.
func (s store) refused(t testing.TB, at, text string, where ...string) {
	t.Helper()
	if _, err := s.read(t, at, where...); !fault.IsInput(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("at %q: %v, expected %q", at, err, text)
	}
}

const protocol1 = `{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}`

func protocol3(features string) string {
	return `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[` + features + `],"writerFeatures":["unknownToUs"]}}`
}

// meta returns the action metaData of a table whose columns have the form name:type. Types begin with a brace or are names.
// Those with a star partition the table.
func meta(t testing.TB, columns ...string) string {
	t.Helper()
	var fields []any
	partition := []string{}
	for _, c := range columns {
		name, kind, _ := strings.Cut(c, ":")
		if left, ok := strings.CutPrefix(name, "*"); ok {
			name = left
			partition = append(partition, name)
		}
		var of any = kind
		if strings.HasPrefix(kind, "{") {
			of = json.RawMessage(kind)
		}
		fields = append(fields, map[string]any{"name": name, "type": of, "nullable": true, "metadata": map[string]any{}})
	}
	return metaOf(t, fields, partition, nil)
}

func metaOf(t testing.TB, fields []any, partition []string, configuration map[string]string) string {
	t.Helper()
	schema, err := json.Marshal(map[string]any{"type": "struct", "fields": fields})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"metaData": map[string]any{"id": "the-id", "format": map[string]any{"provider": "parquet", "options": map[string]any{}},
		"schemaString": string(schema), "partitionColumns": partition, "configuration": configuration}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// add returns an action add. values are partition values such as day=1, and more is added to the action.
func add(path string, more string, values ...string) string {
	partition := map[string]any{}
	for _, v := range values {
		name, value, ok := strings.Cut(v, "=")
		if partition[name] = value; !ok {
			partition[name] = nil
		}
	}
	text, _ := json.Marshal(partition)
	return fmt.Sprintf(`{"add":{"path":%q,"partitionValues":%s,"size":10,"modificationTime":1,"dataChange":true%s}}`, path, text, more)
}

func remove(path string) string {
	return fmt.Sprintf(`{"remove":{"path":%q,"dataChange":true}}`, path)
}

// A snapshot has the files that commits up to its version have added and not removed.
func TestVersions(t *testing.T) {
	s := store(t.TempDir())
	s.commit(t, 0, protocol1, meta(t, "x:long", "label:integer"), add("a", ""), add("b%20b", ""))
	s.commit(t, 1, `{"commitInfo":{"timestamp":1000000}}`, remove("a"), add("c", ""), `{"somethingNew":{}}`, `{"txn":{"appId":"x","version":1}}`)
	s.commit(t, 2, remove("b%20b"), add("a", ""))
	s.write(t, "_last_checkpoint", `{"version":77}`)
	s.write(t, "00000000000000000000.00000000000000000001.compacted.json", `not JSON`)
	s.write(t, "00000000000000000001.crc", `not JSON`)
	s.write(t, "00000000000000000001", `not JSON`)
	s.write(t, "3.json", `not JSON`)
	for at, want := range map[string]string{"": "a c", "2": "a c", "1": "b b c", "0": "a b b"} {
		if got := s.names(t, at); got != want {
			t.Errorf("version %q has the files %q, expected %q", at, got, want)
		}
	}
	s.refused(t, "3", "no version 3, the newest is 2")
	if _, err := s.read(t, "yesterday"); !fault.IsUsage(err) {
		t.Error(err)
	}
	got, err := s.read(t, "1")
	if err != nil {
		t.Fatal(err)
	}
	if got.Format != "delta" || got.Table != "the-id" || got.ID != "1" || got.Files[0].Bytes != 10 {
		t.Errorf("%+v", got)
	}
	if want := []lake.Column{{Name: "x", Kind: columnfile.Numbers}, {Name: "label", Kind: columnfile.Numbers}}; !slices.Equal(got.Columns, want) {
		t.Errorf("columns %v, expected %v", got.Columns, want)
	}
	if err := os.Remove(filepath.Join(string(s), "_delta_log", fmt.Sprintf("%020d.json", 1))); err != nil {
		t.Fatal(err)
	}
	s.refused(t, "", "00000000000000000001.json is missing: version 2 ")
	if got := s.names(t, "0"); got != "a b b" {
		t.Error(got)
	}
	s = store(t.TempDir())
	s.write(t, "_last_checkpoint", `{"version":77}`)
	s.refused(t, "", "expected the log of a Delta table")
}

// A time means the newest version that is not newer.
func TestTimes(t *testing.T) {
	s := store(t.TempDir())
	s.commit(t, 0, `{"commitInfo":{"timestamp":1000}}`, protocol1, meta(t, "x:long"))
	s.commit(t, 1, `{"commitInfo":{"inCommitTimestamp":2500,"timestamp":900}}`, add("a", ""))
	s.commit(t, 2, `{"commitInfo":{"timestamp":3000,"inCommitTimestamp":null}}`, add("b", ""))
	for at, want := range map[string]string{"1970-01-01T00:00:01Z": "0", "1970-01-01T00:00:02.4Z": "0", "1970-01-01T00:00:02.5Z": "1", "1970-01-01T01:00:02.7+01:00": "1", "2026-01-01T00:00:00Z": "2"} {
		got, err := s.read(t, at)
		if err != nil || got.ID != want {
			t.Errorf("at %s: %v, %v, expected %s", at, got, err, want)
		}
	}
	s.refused(t, "1970-01-01T00:00:00Z", "the oldest is that of version 0 at 1970-01-01T00:00:01Z")
	s.commit(t, 3, `{"commitInfo":"by hand"}`)
	s.refused(t, "1970-01-01T00:00:01Z", "00000000000000000003.json: no commitInfo with a timestamp")
	if got, err := s.read(t, ""); err != nil || got.ID != "3" {
		t.Error(got, err)
	}
}

// The log may begin with a checkpoint, which has the same content as the commits before it.
func TestCheckpoints(t *testing.T) {
	s := store(t.TempDir())
	const uuid = "80a083e8-7026-4e79-81be-64bd76c43a11"
	s.write(t, "00000000000000000003.checkpoint."+uuid+".json", `{"checkpointMetadata":{"version":3}}`, protocol3(`"v2Checkpoint"`), meta(t, "x:long"), add("a", ""), add("b", ""), remove("c"))
	s.write(t, "00000000000000000005.checkpoint.0000000001.0000000002.parquet", "one of two parts")
	s.commit(t, 3, `{"commitInfo":{"timestamp":1000}}`)
	s.commit(t, 4, remove("a"), add("d", ""))
	s.commit(t, 5, add("e", ""))
	for at, want := range map[string]string{"3": "a b", "4": "b d", "": "b d e"} {
		if got := s.names(t, at); got != want {
			t.Errorf("version %q has the files %q, expected %q", at, got, want)
		}
	}
	s.refused(t, "2", "begins with the checkpoint of version 3")
	s.write(t, "00000000000000000007.checkpoint."+uuid+".json", protocol1, meta(t, "x:long"), add("z", ""))
	if got := s.names(t, ""); got != "z" {
		t.Error(got)
	}
	s.refused(t, "2026-01-01T00:00:00Z", "00000000000000000007.json is missing: the snapshot at a time")
	s.refused(t, "6", "00000000000000000006.json is missing")
}

// A snapshot does not depend on the form of the log.
func TestForms(t *testing.T) {
	for _, where := range [][]string{nil, {"x<2"}, {"y>b4"}, {"z>=5"}, {"at<2026-11-28 00:00:02"}, {"day=2026-11-28", "x!="}} {
		want, err := store("testdata/commit").read(t, "", where...)
		if err != nil || len(want.Files) == 0 || where != nil && len(want.Files) == 6 {
			t.Fatalf("%v: %v, %v", where, want, err)
		}
		for _, form := range []string{"classic", "parts", "sidecars", "mixed"} {
			got, err := store("testdata/"+form).read(t, "", where...)
			if err != nil {
				t.Errorf("%s: %v", form, err)
				continue
			}
			if got.ID = want.ID; !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %v: %+v, expected %+v", form, where, got, want)
			}
		}
	}
}

// The kinds of columns follow from Delta's types.
func TestColumns(t *testing.T) {
	s := store(t.TempDir())
	kinds := map[string]string{
		"string": columnfile.Strings, "varchar(3)": columnfile.Strings, "binary": columnfile.Strings, "byte": columnfile.Numbers, "double": columnfile.Numbers, "decimal(3,1)": "", "void": "",
		"boolean": columnfile.Truths, "date": columnfile.Dates, "timestamp": columnfile.Instants, "timestamp_ntz": columnfile.Timestamps,
		`{"type":"array","elementType":"double","containsNull":true}`:                           columnfile.Numbers,
		`{"type":"array","elementType":{"type":"array","elementType":"long"}}`:                  "",
		`{"type":"struct","fields":[{"name":"y","type":"long","nullable":true,"metadata":{}}]}`: "",
		`{"type":"map","keyType":"string","valueType":"long","valueContainsNull":true}`:         "",
	}
	names := slices.Sorted(maps.Keys(kinds))
	var columns []string
	for i, kind := range names {
		columns = append(columns, fmt.Sprint("c", i, ":", kind))
	}
	s.commit(t, 0, protocol1, meta(t, columns...), add("a", ""))
	got, err := s.read(t, "")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range got.Files[0].View.Columns {
		want := columnfile.ViewColumn{Name: fmt.Sprint("c", i), Source: fmt.Sprint("c", i), Kind: kinds[names[i]], Double: strings.Contains(names[i], "double")}
		if !reflect.DeepEqual(c, want) || got.Columns[i].Kind != want.Kind {
			t.Errorf("%s: %+v, expected %+v", names[i], c, want)
		}
	}
}

// The values of partition columns have the texts that columnfile gives values of files.
func TestPartitionValues(t *testing.T) {
	values := map[string]string{ // by type and value in the log
		"string:a b": "a b", "string:": "", "long:007": "7", "byte:-3": "-3", "float:0.1": "0.1", "double:1.0E10": "10000000000", "double:NaN": "", "boolean:true": "1", "boolean:false": "0",
		"date:2026-11-29": "2026-11-29", "timestamp:2026-11-29 01:02:03": "2026-11-29 01:02:03+00:00", "timestamp:2026-11-29T01:02:03.5Z": "2026-11-29 01:02:03.5+00:00",
		"timestamp:2026-11-29T01:02:03.000000+01:00": "2026-11-29 00:02:03+00:00", "timestamp_ntz:2026-11-29 01:02:03.120000": "2026-11-29 01:02:03.12", "decimal(4,2):1.50": "1.50", "binary:\u0001": "\x01",
		"byte:300": "refused", "long:x": "refused", "double:x": "refused", "boolean:1": "refused", "date:2026-13-01": "refused", "timestamp:noon": "refused", "binary:\ufffd": "refused", `binary:\u0061`: "refused",
	}
	for key, want := range values {
		kind, value, _ := strings.Cut(key, ":")
		s := store(t.TempDir())
		s.commit(t, 0, protocol1, meta(t, "x:long", "*p:"+kind), add("a", "", "p="+value))
		if want == "refused" {
			s.refused(t, "", `_delta_log/00000000000000000000.json, line 3: partition column "p" has the value`)
			continue
		}
		got, err := s.read(t, "")
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		if c := got.Files[0].View.Columns[1]; c.Value != want || c.Source != "" || c.Name != "p" || !slices.Equal(got.Values["p"], []string{want}) {
			t.Errorf("%s: %+v and %q, expected the value %q", key, c, got.Values, want)
		}
	}
}

// field returns a column of a table with column mapping.
func field(name, kind, physical string, id int) map[string]any {
	return map[string]any{"name": name, "type": kind, "nullable": true, "metadata": map[string]any{"delta.columnMapping.id": id, "delta.columnMapping.physicalName": physical}}
}

// With column mapping the log and the files have other names for columns than the table, and files may have ids.
func TestColumnMapping(t *testing.T) {
	for _, mode := range []string{"none", "name", "id", "ignored"} {
		version, setting := 2, mode
		if mode == "ignored" { // readers of version 1 do not know it
			version, setting = 1, "name"
		}
		s := store(t.TempDir())
		fields := []any{field("x", "long", "col-1", 1), field("day", "date", "col-2", 2)}
		s.commit(t, 0, fmt.Sprintf(`{"protocol":{"minReaderVersion":%d,"minWriterVersion":5}}`, version), metaOf(t, fields, []string{"day"}, map[string]string{"delta.columnMapping.mode": setting}),
			add("a", withStats(`{"numRecords":1,"minValues":{"col-1":1,"x":5},"maxValues":{"col-1":2,"x":5},"nullCount":{}}`), "col-2=2026-11-29", "day=2026-11-30"))
		day, x, drops := "2026-11-29", columnfile.ViewColumn{Name: "x", Source: "col-1", Kind: columnfile.Numbers}, "x=5"
		switch mode {
		case "none", "ignored":
			day, x.Source, drops = "2026-11-30", "x", "x=1"
		case "id":
			x.ID = 1
		}
		got, err := s.read(t, "", "day="+day)
		if err != nil {
			t.Fatal(err)
		}
		if want := []columnfile.ViewColumn{x, {Name: "day", Value: day, Kind: columnfile.Dates}}; !reflect.DeepEqual(got.Files[0].View.Columns, want) {
			t.Errorf("%s: %+v, expected %+v", mode, got.Files[0].View.Columns, want)
		}
		if s.names(t, "", drops) != "" {
			t.Errorf("%s: the statistics of the wrong column are read", mode)
		}
	}
}

// A reader needs to know only the features of readers.
func TestProtocol(t *testing.T) {
	for protocol, refused := range map[string]string{
		protocol1: "",
		protocol3(`"timestampNtz","v2Checkpoint","columnMapping","vacuumProtocolCheck","typeWidening","deletionVectors","variantType"`): "",
		protocol3(`"timestampNtz","catalogManaged"`): "_delta_log/00000000000000000000.json, line 1: the table has the feature catalogManaged, which this version of shaver does not read",
		`{"protocol":{"minReaderVersion":4}}`:        `readers of version "4"`,
		`{"protocol":{}}`:                            `readers of version ""`,
		`{}`:                                         "no action protocol",
	} {
		s := store(t.TempDir())
		s.commit(t, 0, protocol, meta(t, "x:long"), add("a", ""))
		if refused != "" {
			s.refused(t, "", refused)
		} else if got := s.names(t, ""); got != "a" {
			t.Error(got)
		}
	}
}

// The error of a malformed log names the file and the line.
func TestMalformedLogs(t *testing.T) {
	ok := meta(t, "x:long", "*p:long")
	for action, refused := range map[string]string{
		`{"add":{"path":"a"`:                                             "_delta_log/00000000000000000000.json, line 3: unexpected end of JSON input: expected an action of Delta's protocol",
		`{"add":{"path":5}}`:                                             "line 3: json: cannot unmarshal number",
		`{"add":{"path":"a","size":"x"}}`:                                "line 3: json: invalid number literal",
		`{"add":{"path":"a"}}`:                                           `line 3: file a: its size is ""`,
		`{"add":{"path":"a","size":-1}}`:                                 `its size is "-1"`,
		`{"add":{"path":"","size":1}}`:                                   `line 3: path "" leads out of the table, or to no file`,
		`{"add":{"path":"../a","size":1}}`:                               `path "../a" leads out`,
		`{"add":{"path":"a/%2e%2e/%2E%2E/b","size":1}}`:                  `leads out`,
		`{"remove":{"path":"a%zz"}}`:                                     `path "a%zz": invalid URL escape "%zz"`,
		`{"metaData":{"schemaString":"x","format":{}}}`:                  "line 3: metaData: schemaString: invalid character",
		`{"metaData":{"schemaString":"{}","partitionColumns":["y"]}}`:    `partitioned by "y", but has no such column`,
		`{"metaData":{"schemaString":"{}","format":{"provider":"orc"}}}`: `the files have the format "orc"`,
		strings.ReplaceAll(add("a", "", "p=x"), "\n", ""):                `line 3: partition column "p" has the value "x", expected a value of the type long`,
		`{"protocol":{"minReaderVersion":2,"minWriterVersion":5}}` + "\n" + metaOf(t, []any{map[string]any{"name": "x", "type": "long"}}, nil, map[string]string{"delta.columnMapping.mode": "id"}): "no delta.columnMapping.physicalName",
		`{"protocol":{"minReaderVersion":2,"minWriterVersion":5}}` + "\n" + metaOf(t, []any{field("x", "long", "y", 0)}, nil, map[string]string{"delta.columnMapping.mode": "id"}):                  "delta.columnMapping.id is 0",
		`{"protocol":{"minReaderVersion":2,"minWriterVersion":5}}` + "\n" + metaOf(t, []any{field("x", "long", "y", 0)}, nil, map[string]string{"delta.columnMapping.mode": "ids"}):                 `delta.columnMapping.mode is "ids"`,
		strings.Repeat(" ", maxLine+1): "a line has more than 67108864 bytes",
	} {
		s := store(t.TempDir())
		s.commit(t, 0, protocol1, ok, action)
		s.refused(t, "", refused)
	}
	s := store(t.TempDir())
	s.commit(t, 0, protocol1, "", ok, "", add("a", ""))
	if got := s.names(t, ""); got != "a" {
		t.Error(got)
	}
	s.write(t, "00000000000000000000.checkpoint.parquet", "PAR1 nonsense")
	s.refused(t, "", "_delta_log/00000000000000000000.checkpoint.parquet")
}

// Paths are parts of URLs, or whole URLs.
func TestPaths(t *testing.T) {
	for path, want := range map[string]string{
		"a%20b/c%2525d": "a b/c%25d", "p=a:b/c": "p=a:b/c", "/abs/a%20b": "/abs/a b", "s3://bucket/a%20b": "s3://bucket/a b", "file:///a%20b": "/a b", "file:/a": "/a", "a+b": "a+b",
	} {
		if got, err := fileName(path); err != nil || got != want {
			t.Errorf("%q is %q, %v, expected %q", path, got, err, want)
		}
	}
}

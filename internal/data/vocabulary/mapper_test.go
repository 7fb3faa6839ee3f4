package vocabulary

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
)

const plenty = 1 << 30 // bytes of memory, enough for every mapper here

func mapperFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if strings.HasSuffix(name, ".gz") {
		w := gzip.NewWriter(f)
		defer w.Close()
		_, err = w.Write([]byte(text))
	} else {
		_, err = f.WriteString(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMappers(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"m.csv", "field,value,id\nsite,b,0\nad,7,1\nsite,\"a,c\",1\nad,,0\n"},
		{"m.csv.gz", "field,value,id\r\nsite,b,0\r\nsite,\"a,c\",1\r\nad,7,1\r\nad,,0\r\n"},
		{"m.csv", "\xef\xbb\xbffield,value,id\r\n\r\nsite,b,0\nad,7,1\nsite,\"a,c\",1\nad,,0"},
		{"m.json", "\xef\xbb\xbf" + `{"site": {"a,c": 1, "b": 0}, "ad": {"": 0, "7": 1}}`},
		{"m.json", `{"site": ["b", "a,c"], "ad": ["", 7]}`},
		{"m.csv", "field,value,id\nsite,b,0.0\nad,7,1.0\nsite,\"a,c\",1.0\nad,,0\n"},
		{"m.json", `{"site": {"a,c": 1.0, "b": 0.0}, "ad": {"": 0, "7": 1.0}}`},
		{"m.json.gz", `{"fields": ["site"], "oov": "last", "vocabulary": {"site": ["b", "a,c"], "ad": {"7": 1, "": 0}}}`},
	} {
		m, err := Read(mapperFile(t, c.name, c.text), plenty, "")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		fields, err := m.Choose([]string{"ad", "site"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for value, want := range map[string][2]int32{"b": {2, 0}, "a,c": {2, 1}, "7": {1, 2}, "": {0, 2}, "x": {2, 2}} {
			if got := [2]int32{idOf(fields[0], value), idOf(fields[1], value)}; got != want {
				t.Errorf("%s: %q has the ids %v, want %v", c.name, value, got, want)
			}
		}
		if _, err := m.Choose([]string{"ad", "user"}, nil); !fault.IsInput(err) || !strings.Contains(err.Error(), `no field "user"`) {
			t.Errorf("a missing field: %v", err)
		}
	}
}

// In a field without values, all rows get its only id.
func TestMapperOfNoValues(t *testing.T) {
	for _, text := range []string{`{"a": ["x"], "b": []}`, `{"a": {"x": 0}, "b": {}}`} {
		m, err := Read(mapperFile(t, "m.json", text), plenty, "")
		if err != nil {
			t.Fatal(err)
		}
		if fields, err := m.Choose([]string{"b", "a"}, nil); err != nil || fields[0].Size() != 1 || idOf(fields[0], "x") != 0 || fields[1].Size() != 2 {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestMappersRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"m.csv", "", "the file is empty"},
		{"m.csv", "field,id,value\n", "expected the header"},
		{"m.csv", "field,value,id\n", "the vocabulary is empty"},
		{"m.csv", "field,value,id\na,x,0\na,y,2\n", "field a has 2 values and the id 2: ids must count from 0 without a gap, unless the id of unseen values"},
		{"m.csv", "field,value,id\na,x,0\na,y,0\n", "field a has two values with the id 0"},
		{"m.csv", "field,value,id\na,x,0\na,x,1\n", `m.csv:3: field a: the value "x" occurs twice`},
		{"m.csv", "field,value,id\na,x,-1\n", "m.csv:2: field a: the value \"x\" has the id -1"},
		{"m.csv", "field,value,id\na,x,1.5\n", `m.csv:2: the id "1.5" is not an integer`},
		{"m.csv", "field,value,id\na,x,null\n", `m.csv:2: the id "null" is not an integer`},
		{"m.csv", "field,value,id\na,x\n", "m.csv:2: 2 columns, expected 3"},
		{"m.csv", "field,value,id\na,\"x\n\",0\na,y\n", "m.csv:4: 2 columns, expected 3"},
		{"m.csv", "field,value,id\na,\"x", "m.csv:2: a quote is opened"},
		{"m.csv", "field,value,id\na,x\"y,0\n", "m.csv:2: a quote is opened"},
		{"m.csv", "field,value,id\na,x\"y\",0\n", "m.csv:2: not CSV"},
		{"m.json", "[]", "not a JSON object"},
		{"m.json", "{}", "the vocabulary is empty"},
		{"m.json", `{"a": 3}`, "field a: expected an object or a list"},
		{"m.json", `{"a": {"x": "y"}}`, "is not an integer"},
		{"m.json", `{"a": [["x"]]}`, "is not a value"},
		{"m.json", `{"a": {"x": 0}`, "not a JSON object"},
		{"m.txt", "", "expected a vocabulary"},
		{"m.parquet", "PAR1", "file too small"},
		{"m.csv.gz.json", "\x1f\x8b", "compressed data are broken"},
	} {
		path := mapperFile(t, c.name, c.text)
		if _, err := readWhole(path); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s %q: %v", c.name, c.text, err)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.csv"), plenty, ""); !fault.IsInput(err) {
		t.Errorf("a missing file: %v", err)
	}
}

// readWhole reads a mapper and chooses all of its fields.
func readWhole(path string) (*Mapper, error) {
	m, err := Read(path, plenty, "")
	if err == nil {
		_, err = m.Choose(m.Names, nil)
	}
	return m, err
}

// In any mapper that Read accepts, a value has the id with which Each visits it, and an
// unseen value has the id OOV.
func FuzzMapper(f *testing.F) {
	f.Add([]byte("field,value,id\na,x,0\n"), true, "")
	f.Add([]byte("field,value,id\na,x,1\na,y,2\n"), true, "id=0")
	f.Add([]byte(`{"vocabulary": {"a": {"x": 0}, "b": ["y", "x"]}}`), false, "value=x")
	f.Fuzz(func(t *testing.T, data []byte, isCSV bool, oov string) {
		name := "m.json"
		if isCSV {
			name = "m.csv"
		}
		m, err := Read(mapperFile(t, name, string(data)), plenty, oov)
		if err == nil {
			_, err = m.Choose(m.Names, nil)
		}
		if err != nil {
			if !fault.IsInput(err) && !fault.IsUsage(err) {
				t.Errorf("not bad input: %v", err)
			}
			return
		}
		for j, field := range m.Fields {
			id, without := int32(0), 0
			err := field.Each(func(value []byte, has bool) error {
				if has && idOf(field, string(value)) != id {
					t.Errorf("field %s: %q has the id %d, expected %d", m.Names[j], value, idOf(field, string(value)), id)
				}
				if !has {
					without++
				}
				id++
				return nil
			})
			if err != nil || field.Reserved() != 0 || int(id) != dataset.VocabularyLines(field.Size(), field.OOV()) || without != int(id)-field.Size()+min(1, field.OOV()+1) {
				t.Errorf("%d ids, %d without a value, of a field of size %d, %v", id, without, field.Size(), err)
			}
			if got := idOf(field, strings.Repeat("unseen", 1<<18)); int(got) != field.OOV() { // longer than any value
				t.Errorf("unseen values have the id %d, expected %d", got, field.OOV())
			}
		}
	})
}

// A small compressed file that expands to a large one does not exceed the memory limit, and
// gives an error that names the limit.
func TestMapperBombs(t *testing.T) {
	const memory = 16 << 20
	var values strings.Builder
	values.WriteString("field,value,id\n")
	for i := range 400_000 {
		fmt.Fprintf(&values, "a,%d,%d\n", i, i)
	}
	long := strings.Repeat("x", 64<<20)
	for _, c := range []struct{ name, text, want string }{
		{"m.csv.gz", values.String(), "the vocabulary's values take more than 8 MiB"},
		{"m.json.gz", `{"a": ["` + long + `"]}`, "the text has more than 2 MiB"},
		{"m.json.gz", long, "the text has more than 2 MiB"},
		{"m.json.gz", "{" + strings.Repeat(`"aaaa": [], `, 100_000) + `"a": ["` + strings.Repeat(`","`, 200_000) + `"]}`, "occurs twice"},
		{"m.csv.gz", "field,value,id\na," + long + ",0\n", "longer than"},
		{"m.csv.gz", "field,value,id\na,\"" + strings.Repeat("x\n", 32<<20) + "\",0\n", "a quote is opened"},
		{"m.csv.gz", long, "longer than"},
	} {
		path := mapperFile(t, c.name, c.text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(path, memory, "")
		runtime.ReadMemStats(&after)
		if !fault.IsUsage(err) && !fault.IsInput(err) || !strings.Contains(fmt.Sprint(err), c.want) || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s %.20q: %v", c.name, c.text, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 4*memory { // TotalAlloc is more than the memory in use at one time
			t.Errorf("%s %.20q: %d MiB were allocated", c.name, c.text, got>>20)
		}
	}
	fields := make([]string, maxFields+1)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"%d": []`, i)
	}
	if _, err := Read(mapperFile(t, "m.json", "{"+strings.Join(fields, ",")+"}"), plenty, ""); !fault.IsInput(err) || !strings.Contains(err.Error(), "more than 16384 fields") {
		t.Errorf("many fields: %v", err)
	}
}

// FuxiCTR's feature_vocab.json gives each value the id that FuxiCTR gave it.
func TestFuxiCTR(t *testing.T) {
	folder := filepath.Join("..", "..", "..", "testdata", "families", "mapper")
	records := func(name string) [][]string {
		f, err := os.Open(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all, err := csv.NewReader(f).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	m, err := Read(filepath.Join(folder, "feature_vocab.json"), plenty, "")
	if err != nil {
		t.Fatal(err)
	}
	ids := records("ids.csv")
	names := ids[0][1:] // the label is first
	fields, err := m.Choose(names, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := append(records("train.csv")[1:], records("valid.csv")[1:]...)
	if len(rows) != len(ids)-1 || len(rows) == 0 {
		t.Fatalf("%d rows, %d rows of ids", len(rows), len(ids)-1)
	}
	lookup := NewLookup(fields, false)
	unseen := 0
	for i, row := range rows {
		columns, values := make([][]int32, len(names)), make([][]byte, len(names))
		for j := range names {
			values[j] = []byte(row[j+1])
		}
		if without := lookup.Append(columns, values); without >= 0 {
			t.Fatalf("row %d: field %s has no id for %q", i, names[without], values[without])
		}
		for j, name := range names {
			if got, want := strconv.Itoa(int(columns[j][0])), ids[i+1][j+1]; got != want {
				t.Errorf("row %d: %s %q has the id %s, FuxiCTR gives %s", i, name, values[j], got, want)
			}
			if int(columns[j][0]) == fields[j].OOV() {
				unseen++
			}
		}
	}
	if unseen == 0 {
		t.Error("no row has an unseen value")
	}
}

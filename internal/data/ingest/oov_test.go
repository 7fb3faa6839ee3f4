package ingest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
)

// mapperCase is one way in which a mapper numbers the values of two fields.
type mapperCase struct {
	oov   string            // rule for the id of unseen values
	ids   [2]map[string]int // ids of the values in the mapper
	sizes []int             // sizes of the model's fields, if the import needs them
	want  []int             // expected sizes
	other [2]int            // expected ids of unseen values, or -1
	oovs  string            // expected OOV of the fields in the manifest; - if missing
}

func mapperCases() []mapperCase {
	return []mapperCase{
		{"", [2]map[string]int{{"b": 0, "a": 1, "c d": 2}, {"x": 0, "": 1}}, nil, []int{4, 3}, [2]int{3, 2}, "- -"},
		{"id=0", [2]map[string]int{{"b": 3, "a": 1, "c d": 2}, {"x": 2, "": 1}}, nil, []int{4, 3}, [2]int{0, 0}, "0 0"},
		{"id=1", [2]map[string]int{{"b": 4, "a": 2}, {"x": 2, "": 3}}, []int{7, 4}, []int{7, 4}, [2]int{1, 1}, "1 1"},
		{"value=<unk>", [2]map[string]int{{"b": 0, "<unk>": 1, "a": 2}, {"x": 0, "": 1, "<unk>": 2}}, nil, []int{3, 3}, [2]int{1, 2}, "1 -"},
		{"value=", [2]map[string]int{{"b": 1, "": 2}, {"x": 4, "": 0}}, []int{3, 5}, []int{3, 5}, [2]int{2, 0}, "- 0"},
		{"last", [2]map[string]int{{"b": 1, "a": 3}, {"x": 1, "": 2}}, []int{5, 4}, []int{5, 4}, [2]int{4, 3}, "- -"},
		{"none", [2]map[string]int{{"b": 1, "a": 0}, {"x": 1, "": 3}}, []int{2, 6}, []int{2, 6}, [2]int{-1, -1}, "-1 -1"},
	}
}

// rowsFor returns the text of random raw rows, some of which contain unseen values. It also
// returns the expected ids of each valid row, the number of unseen values in each field, and
// the number of bad rows.
func (c *mapperCase) rowsFor(r *rand.Rand) (text string, rows [][]int, unseen []int64, bad int) {
	values := [2][]string{{"a", "b", "c d", "<unk>", "", "new"}, {"x", "", "<unk>", "y"}}
	var lines strings.Builder
	lines.WriteString("label,first,second\n")
	unseen = make([]int64, 2)
	for range 300 {
		line, ids, ok := fmt.Sprint(r.IntN(2)), []int{}, true
		for j := range values {
			value := values[j][r.IntN(len(values[j]))]
			line += "," + value
			id, known := c.ids[j][value]
			if !known {
				id = c.other[j]
			}
			ids, ok = append(ids, id), ok && id >= 0
		}
		lines.WriteString(line + "\n")
		if !ok {
			bad++
			continue
		}
		for j, id := range ids {
			if id == c.other[j] {
				unseen[j]++
			}
		}
		rows = append(rows, ids)
	}
	return lines.String(), rows, unseen, bad
}

// check checks that the dataset in dir and the summary agree with the results of rowsFor.
func (c *mapperCase) check(t *testing.T, dir string, summary *Summary, rows [][]int, unseen []int64, bad int) {
	t.Helper()
	d := open(t, dir)
	if !slices.Equal(d.FieldDims(), c.want) || !slices.Equal(summary.Unseen, unseen) || summary.Skipped != int64(bad) {
		t.Errorf("%q: sizes %v, unseen %v, skipped %d; want %v, %v, %d", c.oov, d.FieldDims(), summary.Unseen, summary.Skipped, c.want, unseen, bad)
	}
	got := rowsOf(t, d, 1000)
	if got.Len() != len(rows) {
		t.Fatalf("%q: %d rows, want %d", c.oov, got.Len(), len(rows))
	}
	counts := make([]int64, d.Features())
	for i, ids := range rows {
		want := []int32{int32(ids[0]), int32(c.want[0] + ids[1])}
		if !slices.Equal(got.Row(i), want) {
			t.Fatalf("%q: row %d is %v, want %v", c.oov, i, got.Row(i), want)
		}
		counts[want[0]]++
		counts[want[1]]++
	}
	if frequencies, err := d.Frequencies(); err != nil || !slices.Equal(frequencies, counts) {
		t.Errorf("%q: frequencies %v, want %v, %v", c.oov, frequencies, counts, err)
	}
	facts, err := dataset.Inspect(dir, 10)
	if err != nil {
		t.Fatal(err)
	}
	oovs := []string{"-", "-"}
	for j, f := range facts.Fields {
		if id := d.Manifest.Fields[j].OOV; id != nil {
			oovs[j] = fmt.Sprint(*id)
		}
		if (f.OOV == nil) != (c.other[j] < 0) || f.OOV != nil && *f.OOV != float64(unseen[j])/float64(len(rows)) {
			t.Errorf("%q: field %d: share of unseen values %v", c.oov, j, f.OOV)
		}
		for _, v := range f.Top {
			id, known := -1, false
			if v.Value != nil {
				id, known = c.ids[j][*v.Value]
			}
			if known != (v.ID != c.other[j]) || known && id != v.ID {
				t.Errorf("%q: field %d: the id %d has the value %v", c.oov, j, v.ID, v.Value)
			}
		}
	}
	if got := strings.Join(oovs, " "); got != c.oovs {
		t.Errorf("%q: the manifest has the ids %s for unseen values, want %s", c.oov, got, c.oovs)
	}
}

// Values get the ids of a mapper, however it numbers them. Other rows get the same ids from
// the dataset that was made with the mapper.
func TestMappersIDs(t *testing.T) {
	for i, c := range mapperCases() {
		dir := t.TempDir()
		r := rand.New(rand.NewPCG(7, uint64(i)))
		text, rows, unseen, bad := c.rowsFor(r)
		mapper, err := json.Marshal(map[string]any{"second": c.ids[1], "first": c.ids[0]})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "mapper.json")
		if err := os.WriteFile(path, mapper, 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := ReadVocabulary(path, DefaultMemory, c.oov)
		if err != nil {
			t.Fatal(err)
		}
		config := RawConfig{Files: []string{write(t, text)}, Vocabulary: m, Sizes: c.sizes, Split: "1:0:0", OnBadRow: Skip, Out: filepath.Join(dir, "a"), Workers: 2}
		summary, err := ImportRaw(t.Context(), config)
		if err != nil {
			t.Fatalf("%q: %v", c.oov, err)
		}
		a := open(t, config.Out)
		c.check(t, config.Out, summary, rows, unseen, bad)

		// The same rows with the vocabulary of the dataset give the same bytes.
		if config.Vocabulary, err = ReadVocabulary(config.Out, DefaultMemory, ""); err != nil {
			t.Fatalf("%q: %v", c.oov, err)
		}
		config.Sizes, config.Out = nil, filepath.Join(dir, "b")
		if _, err := ImportRaw(t.Context(), config); err != nil {
			t.Fatalf("%q: %v", c.oov, err)
		}
		if b := open(t, config.Out); b.Digest() != a.Digest() {
			t.Errorf("%q: the vocabulary of the dataset gives a different dataset\n%s\n%s", c.oov, b.Marshal(), a.Marshal())
		}
		// Other rows get the same ids.
		text, rows, unseen, bad = c.rowsFor(r)
		config.Files, config.Sizes, config.Out = []string{write(t, text)}, c.want, filepath.Join(dir, "c")
		if summary, err = ImportRaw(t.Context(), config); err != nil {
			t.Fatalf("%q: %v", c.oov, err)
		}
		c.check(t, config.Out, summary, rows, unseen, bad)
		config.Out, config.Sizes = filepath.Join(dir, "d"), []int{c.want[0], c.want[1] + 1}
		_, err = ImportRaw(t.Context(), config)
		wantInput(t, err, fmt.Sprintf("%d features, but the model has %d", c.want[1], c.want[1]+1))
		config.Sizes = c.want[:1]
		_, err = ImportRaw(t.Context(), config)
		wantInput(t, err, "the rows have 2 fields, which are ")
	}
}

// If unseen values have no id, the first one ends the import, and the error names it.
func TestNoIDForUnseen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.csv")
	if err := os.WriteFile(path, []byte("field,value,id\na,x,0\nb,y,0\nb,z,1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := ReadVocabulary(path, DefaultMemory, "none")
	if err != nil {
		t.Fatal(err)
	}
	config := RawConfig{Files: []string{write(t, "label,a,b\n1,x,y\n0,x,new\n0,odd,z\n")}, Vocabulary: m, Split: "1:0:0", Out: filepath.Join(t.TempDir(), "out")}
	_, err = ImportRaw(t.Context(), config)
	wantInput(t, err, `rows.csv:3: field 1 (b): the value "new" is not in the vocabulary, which has no id for such values`)
	wantNothing(t, config.Out)

	// The same holds for a table, here the rows of a dataset, whose values are all unseen.
	table := smallDataset(t)
	name := open(t, table).Fields()[0]
	if err := os.WriteFile(path, []byte("field,value,id\n"+name+",not in the table,0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if config.Vocabulary, err = ReadVocabulary(path, DefaultMemory, "none"); err != nil {
		t.Fatal(err)
	}
	config.Format, config.Files = Tables(), []string{filepath.Join(table, "train.arrow")}
	config.Format.Columns = []Column{{Name: name}}
	_, err = ImportRaw(t.Context(), config)
	wantInput(t, err, "train.arrow: row 0: field 0 ("+name+"): the value ")

	_, err = ReadVocabulary(table, DefaultMemory, "none")
	wantUsage(t, err, "the id of unseen values can be chosen only for a mapper in a file")
}

// A row that is skipped because of an unseen value does not count for the statistics of the
// dense inputs, also if the vocabulary grows.
func TestSkippedRowsAreNotMeasured(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.csv")
	if err := os.WriteFile(path, []byte("field,value,id\na,x,0\na,y,1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := "label,a,price,dwell\n1,x,1,2\n0,unseen,1e9,1e9\n0,y,3,\n1,twice,5,6\n1,twice,5,6\n"
	config := RawConfig{
		Files: []string{write(t, text)}, Split: "1:0:0", OnBadRow: Skip, Out: filepath.Join(dir, "one"),
		Format: Format{Dense: Dense{Columns: []DenseColumn{{Name: "price", Input: dense.Input{Rule: dense.ZScore}}, {Name: "dwell"}}, Missing: MissingMean}},
	}
	for _, c := range []struct {
		from                     string
		grow                     bool
		rows                     int64
		mean, deviation, missing float64
	}{
		{path, false, 2, 2, 1, 2},
		{config.Out, true, 4, 3.5, math.Sqrt(2.75), 14. / 3},
	} {
		var err error
		if config.Vocabulary, err = ReadVocabulary(c.from, DefaultMemory, map[bool]string{false: "none"}[c.grow]); err != nil {
			t.Fatal(err)
		}
		if config.Grow = c.grow; c.grow {
			config.MinCount, config.Out = 2, filepath.Join(dir, "two")
		}
		if _, err := ImportRaw(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		d := open(t, config.Out)
		price, dwell := d.Dense[0], d.Dense[1]
		if rows := d.Rows("train"); rows != c.rows || *price.Mean != c.mean || math.Abs(*price.Deviation-c.deviation) > 1e-12 || *dwell.Missing != c.missing {
			t.Errorf("grow %t: %d rows, mean %v, deviation %v, missing %v; want %+v", c.grow, d.Rows("train"), *price.Mean, *price.Deviation, *dwell.Missing, c)
		}
	}
}

package ingest

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
)

// A grown vocabulary keeps all ids, also that of unseen values, and appends the new values
// with enough rows. The result depends neither on the memory nor on the number of workers,
// and the datasets are the days of a window.
func TestGrow(t *testing.T) {
	dir := t.TempDir()
	rows := func(cells ...string) string {
		text := "label,a,b\n"
		for i, cell := range cells {
			text += fmt.Sprintf("%d,%s\n", i%2, cell)
		}
		return write(t, text)
	}
	grow := func(name, from string, file string, change func(*RawConfig)) *dataset.Dataset {
		t.Helper()
		config := RawConfig{Files: []string{file}, Split: "1:0:0", MinCount: 1, Out: filepath.Join(dir, name)}
		if from != "" {
			var err error
			if config.Vocabulary, err = ReadVocabulary(filepath.Join(dir, from), DefaultMemory, ""); err != nil {
				t.Fatal(err)
			}
			config.Grow, config.MinCount = true, 2
		}
		if change != nil {
			change(&config)
		}
		if _, err := ImportRaw(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		return open(t, config.Out)
	}
	values := func(d *dataset.Dataset, field int) string {
		list, err := d.Vocabulary(field)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%q of %d, others %d", list, d.FieldDims()[field], d.Manifest.Fields[field].OOVID())
	}
	one := grow("one", "", rows("m,7", "p,8", "m,7"), nil)
	second := rows("x,7.0", "x,8", "m,9", "m,9.0", "rare,7", "b,7", "b,7")
	two := grow("two", "one", second, nil)
	three := grow("three", "two", rows("c,7", "c,7", "x,9", "y\\n,8"), nil)
	for name, c := range map[string]struct{ got, want string }{
		"one, a":   {values(one, 0), `["m" "p"] of 3, others 2`},
		"two, a":   {values(two, 0), `["m" "p" "" "b" "x"] of 5, others 2`},
		"two, b":   {values(two, 1), `["7" "8" "" "9"] of 4, others 2`},
		"three, a": {values(three, 0), `["m" "p" "" "b" "x" "c"] of 6, others 2`},
		"three, b": {values(three, 1), values(two, 1)},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s\nwant %s", name, c.got, c.want)
		}
	}
	if a, b := three.Manifest.Vocabulary[1], two.Manifest.Vocabulary[1]; a != b {
		t.Errorf("a field without new values has another vocabulary file: %+v, %+v", a, b)
	}
	if got, want := rowsOf(t, two, 100).Features, []int32{4, 5, 4, 6, 0, 8, 0, 8, 2, 5, 3, 5, 3, 5}; !slices.Equal(got, want) {
		t.Errorf("the features are %v, want %v", got, want)
	}
	for name, change := range map[string]func(*RawConfig){
		"workers": func(c *RawConfig) { c.Workers = 1 },
		"memory":  func(c *RawConfig) { c.Memory, c.Workers = 1<<20, 3 },
	} {
		if again := grow(name, "one", second, change); again.Digest() != two.Digest() {
			t.Errorf("with other %s the dataset differs", name)
		}
	}
	d, err := dataset.OpenDays([]string{filepath.Join(dir, "one"), filepath.Join(dir, "two"), filepath.Join(dir, "three")})
	if err != nil || !slices.Equal(d.FieldDims(), []int{6, 4}) || values(d, 0) != values(three, 0) {
		t.Errorf("the days are no window: %v", err)
	}
	_, err = dataset.OpenDays([]string{filepath.Join(dir, "two"), filepath.Join(dir, "one")})
	wantInput(t, err, "field 0 (a) has 5 features, expected at most 3")
	other := grow("other", "one", rows("k,7", "k,7", "l,7", "l,7", "n,7", "n,7"), nil)
	_, err = dataset.OpenDays([]string{filepath.Join(dir, "two"), filepath.Join(dir, "other")})
	wantInput(t, err, "the id 3 of field 0 (a) has another value")
	if other.MinCount != 2 {
		t.Errorf("the minimum count is %d", other.MinCount)
	}
	config := RawConfig{Files: []string{second}, Split: "1:0:0", Grow: true, Memory: 64, Out: filepath.Join(dir, "small")}
	if config.Vocabulary, err = ReadVocabulary(filepath.Join(dir, "three"), DefaultMemory, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := ImportRaw(t.Context(), config); !fault.IsUsage(err) || !slices.Contains(fault.Settings(err), MemorySetting) || !strings.Contains(err.Error(), "twice the memory") {
		t.Errorf("with too little memory: %v", err)
	}
}

// Growing by the rows of the earlier dataset changes nothing.
func TestGrowByNothing(t *testing.T) {
	dir := t.TempDir()
	config := RawConfig{Files: []string{write(t, "label,a\n"+strings.Repeat("0,u\n1,v\n0,w\n", 9)+"0,once\n")}, MinCount: 2, Split: "1:0:0", Out: filepath.Join(dir, "a")}
	if _, err := ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	first := open(t, config.Out)
	var err error
	if config.Vocabulary, err = ReadVocabulary(config.Out, DefaultMemory, ""); err != nil {
		t.Fatal(err)
	}
	config.Grow, config.Out = true, filepath.Join(dir, "b")
	summary, err := ImportRaw(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if again := open(t, config.Out); again.Digest() != first.Digest() || !reflect.DeepEqual(summary.Unseen, []int64{1}) {
		t.Errorf("the dataset differs, or %v rows have unseen values", summary.Unseen)
	}
}

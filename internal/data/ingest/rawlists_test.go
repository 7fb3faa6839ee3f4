package ingest

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
	"shaver/internal/data/vocabulary"
)

// importRawLists imports raw rows of train.
func importRawLists(t *testing.T, text string, change func(*RawConfig)) (*Summary, *dataset.Dataset, error) {
	t.Helper()
	config := RawConfig{Files: []string{write(t, text)}, Split: "1:0:0", Lists: Lists{Columns: []ListColumn{{Name: "history", Length: 3}}}, Out: filepath.Join(t.TempDir(), "out")}
	if change != nil {
		change(&config)
	}
	summary, err := ImportRaw(t.Context(), config)
	if err != nil {
		return nil, nil, err
	}
	return summary, open(t, config.Out), nil
}

// localIDs returns the ids of the rows of train, without the offsets of the fields.
func localIDs(t *testing.T, d *dataset.Dataset) string {
	t.Helper()
	all := rowsOf(t, d, 1000, dataset.Train)
	var text []string
	for i := range all.Len() {
		row, at, offset := all.Row(i), 0, int32(0)
		for _, f := range d.Manifest.Fields {
			for range max(1, f.Length) {
				text = append(text, fmt.Sprint(row[at]-offset))
				at++
			}
			offset += int32(f.Size)
		}
		text = append(text, "/")
	}
	return strings.Join(text, " ")
}

func valuesOf(t *testing.T, d *dataset.Dataset, field int) []string {
	t.Helper()
	values, err := d.Vocabulary(field)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

const rawListText = `label,item,history,user
1,book,film|song,7
0,film,,8.0
1,song,book|book|film,7
0,book,film,8
`

// A new vocabulary has the pad id 0. A value counts once for each row, whether it is in the
// list, in the field that shares it, or in both.
func TestImportRawLists(t *testing.T) {
	share := []Sharing{{"history", "item"}}
	for name, c := range map[string]struct {
		change           func(*RawConfig)
		item, list, rows string
	}{
		"apart":         {nil, `["book" "film" "song"]`, `["" "book" "film" "song"]`, "0 2 3 0 0 / 1 0 0 0 1 / 2 1 1 2 0 / 0 2 0 0 1 /"},
		"shared":        {func(c *RawConfig) { c.Share = share }, `["" "book" "film" "song"]`, `["" "book" "film" "song"]`, "1 2 3 0 0 / 2 0 0 0 1 / 3 1 1 2 0 / 1 2 0 0 1 /"},
		"shared, rare":  {func(c *RawConfig) { c.Share, c.MinCount = share, 3 }, `["" "book" "film"]`, `["" "book" "film"]`, "1 2 3 0 0 / 2 0 0 0 0 / 3 1 1 2 0 / 1 2 0 0 0 /"},
		"other way":     {func(c *RawConfig) { c.Share = []Sharing{{"item", "history"}} }, `["" "book" "film" "song"]`, `["" "book" "film" "song"]`, "1 2 3 0 0 / 2 0 0 0 1 / 3 1 1 2 0 / 1 2 0 0 1 /"},
		"first two":     {func(c *RawConfig) { c.Lists.Long, c.Lists.Columns[0].Length = LongFirst, 2 }, `["book" "film" "song"]`, `["" "book" "film" "song"]`, "0 2 3 0 / 1 0 0 1 / 2 1 1 0 / 0 2 0 1 /"},
		"last two":      {func(c *RawConfig) { c.Lists.Long, c.Lists.Columns[0].Length = LongLast, 2 }, `["book" "film" "song"]`, `["" "book" "film" "song"]`, "0 2 3 0 / 1 0 0 1 / 2 1 2 0 / 0 2 0 1 /"},
		"little memory": {func(c *RawConfig) { c.Memory, c.Workers, c.Share = 1<<20, 3, share }, `["" "book" "film" "song"]`, `["" "book" "film" "song"]`, "1 2 3 0 0 / 2 0 0 0 1 / 3 1 1 2 0 / 1 2 0 0 1 /"},
	} {
		summary, d, err := importRawLists(t, rawListText, c.change)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := fmt.Sprintf("%q", valuesOf(t, d, 0)); got != c.item {
			t.Errorf("%s: the items are %s, expected %s", name, got, c.item)
		}
		if got := fmt.Sprintf("%q", valuesOf(t, d, 1)); got != c.list {
			t.Errorf("%s: the histories have %s, expected %s", name, got, c.list)
		}
		if got := localIDs(t, d); name != "shared, rare" && got != c.rows {
			t.Errorf("%s: the rows are\n%s, expected\n%s", name, got, c.rows)
		}
		if f := d.Manifest.Fields[1]; f.Pad == nil || *f.Pad != 0 || f.Length != len(strings.Fields(c.rows))/4-3 {
			t.Errorf("%s: the field is %+v", name, f)
		}
		if cut := summary.Cut[1]; (cut == 1) != strings.HasSuffix(name, "two") || summary.Cut[0] != 0 {
			t.Errorf("%s: cut %v", name, summary.Cut)
		}
	}
}

// Files with lists of other programs have the ids of a text with the same values.
func TestImportListColumns(t *testing.T) {
	config := RawConfig{Split: "1:0:0", Lists: Lists{Columns: []ListColumn{{Name: "tags", Length: 2}}}, Workers: 2}
	imported := func(format Format, file string) *dataset.Dataset {
		t.Helper()
		c := config
		c.Format, c.Files, c.Out = format, []string{file}, filepath.Join(t.TempDir(), "out")
		if _, err := ImportRaw(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return open(t, c.Out)
	}
	for name, lists := range map[string][]string{
		"pyarrow-list.parquet": {"a", "", "", "b|c", "d", "e"},
		"pyarrow-list.arrow":   {"a", "", "", "b|c", "d", "e"},
		"polars-list.arrow":    {"a", "", "", "b", "c", "d"},
	} {
		d := imported(Tables(), filepath.Join("testdata", "variants", name))
		words, all := valuesOf(t, d, 0), rowsOf(t, d, 10, dataset.Train)
		text := "label,word,tags\n"
		for i, list := range lists {
			text += fmt.Sprintf("%v,\"%s\",%s\n", all.Label[i], strings.ReplaceAll(words[all.Row(i)[0]], `"`, `""`), list)
		}
		want := imported(Format{}, write(t, text))
		if got := localIDs(t, d); got != localIDs(t, want) || !slices.Equal(valuesOf(t, d, 1), valuesOf(t, want, 1)) {
			t.Errorf("%s: the rows are %s of %q, expected %s of %q", name, got, valuesOf(t, d, 1), localIDs(t, want), valuesOf(t, want, 1))
		}
	}
}

// An earlier dataset gives its ids, its lists and its pads to another day. With Grow, new
// values get ids in all fields that share them.
func TestRawListsOfAnotherDay(t *testing.T) {
	_, first, err := importRawLists(t, rawListText, func(c *RawConfig) { c.Share = []Sharing{{"history", "item"}} })
	if err != nil {
		t.Fatal(err)
	}
	next := "label,item,history,user\n1,opera,film|opera|book,7\n0,song,,9\n1,opera,play,7\n"
	for _, grow := range []bool{false, true} {
		summary, d, err := importRawLists(t, next, func(c *RawConfig) {
			c.Lists.Adopt(first, []Column{{Name: "history"}})
			if c.Vocabulary, err = vocabulary.Of(first); err != nil {
				t.Fatal(err)
			}
			c.Grow, c.MinCount, c.Share = grow, 2, []Sharing{{"history", "item"}}
		})
		if err != nil {
			t.Fatal(err)
		}
		want, values := "4 2 4 1 0 / 3 0 0 0 2 / 4 4 0 0 0 /", []string{"", "book", "film", "song"}
		if grow {
			want, values = "5 2 5 1 0 / 3 0 0 0 2 / 5 4 0 0 0 /", []string{"", "book", "film", "song", "", "opera"}
		}
		if got := localIDs(t, d); got != want {
			t.Errorf("grow %t: the rows are %s, expected %s", grow, got, want)
		}
		for j := range 2 {
			if got := valuesOf(t, d, j); grow && !slices.Equal(got, values) {
				t.Errorf("field %d has the values %q, expected %q", j, got, values)
			}
		}
		if grow != reflect.DeepEqual(summary.Unseen, []int64{0, 1, 1}) {
			t.Errorf("grow %t: unseen %v", grow, summary.Unseen)
		}
	}
}

func TestRawListsThatAreWrong(t *testing.T) {
	text := func(list string) string { return "label,history\n1,a\n0," + list + "\n" }
	for name, c := range map[string]struct {
		text   string
		change func(*RawConfig)
		want   string
	}{
		"too long":         {text("a|b|c|d"), nil, "rows.csv:3: column 1 (history): 4 values, expected at most 3"},
		"empty value":      {text("a||b"), nil, "rows.csv:3: column 1 (history): value 2 of 3 is empty"},
		"separator at end": {text("a|"), nil, "value 2 of 2 is empty"},
		"no pad":           {text("a|b|c"), func(c *RawConfig) { c.Lists.Columns[0].Pad = -1 }, "rows.csv:2: column 1 (history): 1 values, expected 3, because no id stands for missing ones"},
		"pad":              {text("a"), func(c *RawConfig) { c.Lists.Columns[0].Pad = 2 }, "list history has the pad id 2, expected 0 in a new vocabulary"},
		"unknown":          {text("a"), func(c *RawConfig) { c.Share = []Sharing{{"history", "item"}} }, `"history" shares the values of "item", but the fields are ["history"]`},
		"itself":           {text("a"), func(c *RawConfig) { c.Share = []Sharing{{"history", "history"}} }, `field "history" shares its own values`},
		"separator":        {text("a"), func(c *RawConfig) { c.Lists.Separator = ',' }, "separated by ','"},
		"no such list":     {text("a"), func(c *RawConfig) { c.Lists.Columns[0].Name = "tags" }, `list "tags" is not one of the fields, which are ["history"]`},
	} {
		_, _, err := importRawLists(t, c.text, c.change)
		if err == nil || !strings.Contains(err.Error(), c.want) || !fault.IsInput(err) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
	}
}

// Fields that had one vocabulary must not get different values for an id when they grow apart.
func TestSharedVocabularyStaysShared(t *testing.T) {
	dir := t.TempDir()
	config := RawConfig{Split: "1:0:0", MinCount: 1, Out: filepath.Join(dir, "one"), Format: Format{Label: "label"}, Lists: Lists{Columns: []ListColumn{{Name: "history", Length: 2}}}}
	text := "label,item,history\n"
	for i := range 12 {
		text += fmt.Sprintf("%d,i%d,\n", i%2, i)
	}
	config.Files, config.Share = []string{write(t, text)}, []Sharing{{"history", "item"}}
	if _, err := ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	import2 := func(rows string, share []Sharing) error {
		var err error
		if config.Vocabulary, err = ReadVocabulary(filepath.Join(dir, "one"), DefaultMemory, ""); err != nil {
			t.Fatal(err)
		}
		config.Files, config.Grow, config.Share, config.Out = []string{write(t, "label,item,history\n"+rows)}, true, share, filepath.Join(t.TempDir(), "two")
		_, err = ImportRaw(t.Context(), config)
		return err
	}
	if err := import2("1,i1,i2|i3\n", nil); err != nil {
		t.Errorf("without new values: %v", err)
	}
	if err := import2("1,a,b\n", config.Share); err == nil {
		t.Error("the second day was imported without sharing")
	} else if wantInput(t, err, "let history share the values of item, as in history=item"); !slices.Contains(fault.Settings(err), ShareSetting) {
		t.Errorf("the error does not name the setting: %v", err)
	}
	if err := import2("1,a,b\n", []Sharing{{"history", "item"}}); err != nil {
		t.Errorf("with sharing: %v", err)
	}
}

// An import warns of lists that are empty in all rows, and of no others.
func TestEmptyLists(t *testing.T) {
	for history, want := range map[string][]string{
		"":  {"field history: the lists of all 3 rows are empty"},
		"x": nil,
	} {
		summary, _, err := importRawLists(t, "label,user,history\n1,u,"+history+"\n0,v,\n0,u,\n", nil)
		if err != nil {
			t.Fatal(err)
		}
		wantWarnings(t, history, summary, want)
	}
}

// An import warns of lists whose values contain another separator.
func TestListsOfAnotherSeparator(t *testing.T) {
	const warning = "field history: 120 of 121 lists have one value that contains | ; ^ a comma or a space: check the separator of the lists"
	for form, want := range map[string][]string{
		"a%d|b%d": nil, "a%d-b%d": nil, "a%d;b%d": {warning}, "a%d^b%d": {warning}, "a%d b%d": {warning}, "\"a%d,b%d\"": {warning},
	} {
		var text strings.Builder
		text.WriteString("label,user,history\n1,1,x|y\n")
		for i := range 120 {
			fmt.Fprintf(&text, "%d,%d,"+form+"\n", i%2, i%3, i, i%7)
		}
		summary, _, err := importRawLists(t, text.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		wantWarnings(t, form, summary, want)
	}
}

// With a vocabulary, a few lists suffice for this warning if none of their values are in it.
func TestUnseenListsOfAnotherSeparator(t *testing.T) {
	for form, want := range map[string][]string{
		"film^song": {"field history: 4 of 4 lists have one value that contains | ; ^ a comma or a space"}, "film": nil, "opera": nil, "the end": nil,
	} {
		summary, _, err := importRawLists(t, "label,user,history\n"+strings.Repeat("0,a,"+form+"\n1,a,"+form+"\n", 2), func(c *RawConfig) {
			path := filepath.Join(t.TempDir(), "ids.csv")
			err := os.WriteFile(path, []byte("field,value,id\nuser,a,0\nuser,<unk>,1\nhistory,pad,0\nhistory,film,1\nhistory,song,2\nhistory,the end,3\nhistory,<unk>,4\n"), 0o600)
			if err == nil {
				c.Vocabulary, err = ReadVocabulary(path, DefaultMemory, "value=<unk>")
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		wantWarnings(t, form, summary, want)
	}
}

// Fields that share a table have the values of all of them in a vocabulary file, which must agree. In a dataset, they
// must have shared already.
func TestSharedVocabularyFiles(t *testing.T) {
	const ids = "field,value,id\nitem,,0\nitem,book,1\nitem,song,2\nuser,7,0\nuser,8,1\n"
	_, apart, err := importRawLists(t, rawListText, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file string // "" = the dataset apart
		want string // rows, or the error
	}{
		"same":    {ids + "history,song,2\nhistory,book,1\n", "1 3 2 0 0 / 3 0 0 0 1 / 2 1 1 3 0 / 1 3 0 0 1 /"},
		"more":    {ids + "history,film,3\nhistory,book,1\n", "1 3 2 0 0 / 3 0 0 0 1 / 2 1 1 3 0 / 1 3 0 0 1 /"},
		"other":   {strings.ReplaceAll(ids, "item", "history"), "1 3 2 0 0 / 3 0 0 0 1 / 2 1 1 3 0 / 1 3 0 0 1 /"},
		"one":     {ids, "1 3 2 0 0 / 3 0 0 0 1 / 2 1 1 3 0 / 1 3 0 0 1 /"},
		"two ids": {ids + "history,song,4\nhistory,book,3\n", `the value "book" has the id 1 in field item and 3 in field history, which share one table: expected the same id`},
		"one id":  {ids + "history,film,1\n", "field item with the values of history has two values with the id 1"},
		"dataset": {"", "the fields item and history have ids of their own in the earlier dataset, so they cannot share one table"},
	} {
		_, d, err := importRawLists(t, rawListText, func(config *RawConfig) {
			config.Share = []Sharing{{"history", "item"}}
			config.Vocabulary, err = vocabulary.Of(apart)
			if c.file != "" {
				path := filepath.Join(t.TempDir(), "ids.csv")
				if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
				config.Vocabulary, err = ReadVocabulary(path, DefaultMemory, "")
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		switch {
		case err != nil:
			wantInput(t, err, c.want)
		case localIDs(t, d) != c.want:
			t.Errorf("%s: the rows are %s, expected %s", name, localIDs(t, d), c.want)
		}
	}
}

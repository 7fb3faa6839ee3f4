package ingest

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
)

func importLists(t *testing.T, text string, change func(*EncodedConfig)) (*Summary, *dataset.Dataset, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "rows.csv")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	config := EncodedConfig{Train: []string{file}, Out: filepath.Join(dir, "data"), Lists: Lists{Columns: []ListColumn{{Name: "items", Length: 3}}}}
	if change != nil {
		change(&config)
	}
	summary, err := ImportEncoded(t.Context(), config)
	if err != nil {
		return nil, nil, err
	}
	d, err := dataset.Open(config.Out)
	if err != nil {
		t.Fatal(err)
	}
	return summary, d, nil
}

const listText = "label,user,items,item\n1,0,3|1|3,2\n0,1,,1\n1,1,2,1\n"

// Lists are filled with the pad id. An id counts once in a row, and pads do not count.
func TestImportLists(t *testing.T) {
	for _, sizes := range [][]int{nil, {2, 4, 3}} {
		_, d, err := importLists(t, listText, func(c *EncodedConfig) { c.Sizes = sizes })
		if err != nil {
			t.Fatal(err)
		}
		f := d.Manifest.Fields[1]
		if d.Version != dataset.ListVersion || f.Length != 3 || f.Pad == nil || *f.Pad != 0 || f.Size != 4 {
			t.Errorf("version %s, field %+v", d.Version, f)
		}
		var all model.Rows
		r, err := d.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for batch := (model.Rows{}); ; {
			if err := r.Next(&batch); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			all.AppendAll(&batch)
		}
		if want := []int32{0, 5, 3, 5, 8, 1, 2, 2, 2, 7, 1, 4, 2, 2, 7}; all.Width != 5 || !slices.Equal(all.Features, want) {
			t.Errorf("width %d, features %v, want %v", all.Width, all.Features, want)
		}
		counts, err := d.Frequencies()
		if err != nil {
			t.Fatal(err)
		}
		if want := []int64{1, 2, 0, 1, 1, 1, 0, 2, 1}; !slices.Equal(counts, want) {
			t.Errorf("frequencies %v, want %v", counts, want)
		}
		facts, err := d.Inspect(2)
		if err != nil {
			t.Fatal(err)
		}
		if f := facts.Fields[1]; f.Length != 3 || f.Seen != 3 || f.Concentration[0].Features != 2 {
			t.Errorf("facts %+v", f)
		}
		a := &model.Architecture{FieldDims: []int{2, 4, 3}, Lists: []model.List{{Field: 1, Length: 3}}}
		if err := fit(d, a); err != nil {
			t.Error(err)
		}
		a.Lists[0].Pad = 1
		if err := fit(d, a); !fault.IsInput(err) || !strings.Contains(err.Error(), "field 1 (items) has a list of 3 ids with the pad id 0 in the dataset, and a list of 3 ids with the pad id 1 in the model") {
			t.Errorf("another pad id: %v", err)
		}
		a.Lists = nil
		if err := fit(d, a); !fault.IsInput(err) || !strings.Contains(err.Error(), "and one id in the model") {
			t.Errorf("no list: %v", err)
		}
	}
}

// Lists that are too long are shortened if that is asked for, and counted.
func TestImportLongLists(t *testing.T) {
	long := "label,user,items,item\n1,0,1|2|3|4|5,2\n1,0,1|2|3|4,x\n0,1,5|4,1\n" // the malformed row does not count
	for policy, want := range map[string][]int32{LongFirst: {1, 2, 3}, LongLast: {3, 4, 5}} {
		summary, d, err := importLists(t, long, func(c *EncodedConfig) { c.Lists.Long, c.OnBadRow = policy, Skip })
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var rows model.Rows
		if err := r.Next(&rows); err != nil {
			t.Fatal(err)
		}
		var got []int32
		for _, f := range rows.Row(0)[1:4] {
			got = append(got, f-2)
		}
		if !slices.Equal(got, want) || !slices.Equal(summary.Cut, []int64{0, 1, 0}) {
			t.Errorf("%s: ids %v, want %v; cut %v", policy, got, want, summary.Cut)
		}
	}
}

func TestImportListsRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		change func(*EncodedConfig)
		want   string
	}{
		"too long":     {"label,items\n1,1|2|3|4\n", nil, "rows.csv:2: field 0 (items): 4 ids, expected at most 3"},
		"an id":        {"label,items\n1,1|x\n", nil, `rows.csv:2: field 0 (items): position 1: "x" is not an integer`},
		"outside":      {"label,items\n1,1|9\n", func(c *EncodedConfig) { c.Sizes = []int{4} }, "position 1: id 9 is outside [0,4)"},
		"too short":    {"label,items\n1,1|2\n", func(c *EncodedConfig) { c.Lists.Columns[0].Pad = -1 }, "2 ids, expected 3, because no id stands for missing ones"},
		"no column":    {"label,item\n1,1\n", nil, `list "items" is not one of the fields, which are ["item"]`},
		"no header":    {"1,1\n", nil, "lists need a header"},
		"pad":          {"label,items\n1,1\n", func(c *EncodedConfig) { c.Sizes = []int{4}; c.Lists.Columns[0].Pad = 4 }, "list items has the pad id 4, expected one of its 4 ids"},
		"separator":    {"label,items\n1,1\n", func(c *EncodedConfig) { c.Lists.Separator = ',' }, "separated by ','"},
		"twice":        {"label,items\n1,1\n", func(c *EncodedConfig) { c.Lists.Columns = append(c.Lists.Columns, c.Lists.Columns[0]) }, "named twice"},
		"no positions": {"label,items\n1,1\n", func(c *EncodedConfig) { c.Lists.Columns[0].Length = 0 }, "expected 1 to 16384"},
	} {
		if _, _, err := importLists(t, c.text, c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		} else if long := slices.Contains(fault.Settings(err), LongSetting); long != (name == "too long") {
			t.Errorf("%s: the error names the policy for long lists: %t", name, long)
		}
	}
}

package cut_test

import (
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// A table with a largest number of bytes takes at most these, and with an entry more it would take more. The rest of the budget goes to
// the other tables.
func TestTableBudget(t *testing.T) {
	f := newFiles(t)
	for _, values := range []compact.Encoding{compact.Float32, compact.Int8} {
		for _, c := range []struct {
			list string
			drop int         // of the budget
			most map[int]int // bytes of a table
		}{
			{"e=..0.02KiB", 14, map[int]int{4: 20}}, {"e=..0.02KiB,a=1.0..", 14, map[int]int{4: 20}}, {"e=..0.02KiB", 0, map[int]int{4: 20}}, {"e=..0.005KiB", 0, map[int]int{4: 5}},
			{"e=..0.01KiB,c=..0.01KiB", 27, map[int]int{2: 10, 4: 10}},
		} {
			o := f.options("table.safetensors", mask.Kept, float64(f.entries-c.drop))
			o.Form.Values = values
			if err := o.Keep.Tables.Set(c.list); err != nil {
				t.Fatal(err)
			}
			made, _ := prune(t, o)
			ck, err := checkpoint.Read(made.Out)
			if err != nil {
				t.Fatal(err)
			}
			dropped, _, err := ck.Pruned()
			if err != nil {
				t.Fatal(err)
			}
			spans := ck.Architecture.Spans()
			bytes := func(j int) int {
				n, s := compact.Plan(&ck.Architecture, dropped)[j], &spans[j]
				rows, columns := n.Sizes(s.Rows, s.Dim)
				return rows + columns + n.Kept*values.Size()
			}
			names := []string{"a", "b", "c", "d", "e"}
			for j, table := range made.Tables() {
				if n := spans[j].Rows; table != (cut.Table{Name: names[j], Rows: n, Entries: n * spans[j].Dim, Kept: compact.Plan(&ck.Architecture, dropped)[j].Kept, Bytes: int64(bytes(j))}) {
					t.Errorf("%s %s: table %d is %+v", values, c.list, j, table)
				}
			}
			forced := 0
			for j, most := range c.most {
				from, to := spans[j].Entries()
				gone := slices.Index(dropped[from:to], false) // the scores grow, so the first entries go
				if gone < 0 {
					gone = to - from
				}
				forced += gone
				if got := bytes(j); got > most {
					t.Errorf("%s %s: table %d takes %d bytes, expected at most %d", values, c.list, j, got, most)
				}
				if gone == 0 || c.drop == 27 {
					continue
				}
				if dropped[from+gone-1] = false; bytes(j) <= most {
					t.Errorf("%s %s: table %d takes only %d bytes with an entry more", values, c.list, j, bytes(j))
				}
				dropped[from+gone-1] = true
			}
			if want := max(c.drop, forced); made.Dropped != want {
				t.Errorf("%s %s: %d entries are dropped, expected %d", values, c.list, made.Dropped, want)
			}
		}
	}
}

// A budget that the tables exclude is refused, and so are tables that the rise excludes.
func TestTableBudgetRefuses(t *testing.T) {
	f := newFiles(t)
	for list, o := range map[string]*cut.Options{
		"a=1.0..,b=1.0..,c=1.0..,d=1.0..": f.options("x.safetensors", mask.Sparsity, .9),
		"a=..0":                           {Model: f.model, Scores: f.scores, Dataset: []string{f.rows}, Rank: mask.Abs, Slicing: cut.Slicing{MostRise: 1e-9, KeepFields: 5, KeepColumns: 2}, Form: cut.Form{Values: compact.Float32}},
	} {
		if err := o.Keep.Tables.Set(list); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Choose(t.Context()); err == nil || !strings.Contains(err.Error(), "table-budget") {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// The size of a file in layers is that of the file, and not that of a file of its last layer alone.
func TestSizeOfLayers(t *testing.T) {
	f, layers := newFiles(t), cut.Layers{}
	var c *cut.Choice
	for _, sparsity := range []float64{.9, .5} {
		var err error
		if c, err = f.options("layers.safetensors", mask.Sparsity, sparsity).Choose(t.Context()); err != nil {
			t.Fatal(err)
		}
		layers.Add(c, nil)
	}
	sizes, err := layers.Write(c.Out, c)
	if err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Read(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	var p sweep.Point
	if err := cut.SetSize(&p, ck, f.entries); err != nil || *p.Bytes != sizes.Bytes {
		t.Errorf("%d bytes, expected %d; %v", *p.Bytes, sizes.Bytes, err)
	}
}

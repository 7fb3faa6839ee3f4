package compact

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// nested returns masks of s of which each keeps what the one before keeps, and the last one is that of s.
func (s *sample) nested(layers int) [][]bool {
	masks := [][]bool{s.dropped}
	for len(masks) < layers {
		less := slices.Clone(masks[0])
		seed := uint64(len(masks))
		for _, span := range s.layout.Spans() {
			for i := span.Entry; i < span.Entry+span.Rows*span.Dim; i++ {
				seed = seed*6364136223846793005 + 1442695040888963407
				row := span.Row + (i-span.Entry)/span.Dim
				_, fixed := slices.BinarySearch(s.layout.FixedRows(), row)
				less[i] = less[i] || !fixed && seed>>62 == 0
			}
		}
		masks = slices.Insert(masks, 0, less)
	}
	return masks
}

// rowsOf returns the values of each row of a table, and then 1 for each dropped entry and 0 for each kept one.
func rowsOf(table *Table) (rows [][]float32) {
	table.Rows(func(x []float32, dropped []bool) {
		row := slices.Clone(x)
		for _, gone := range dropped {
			if gone {
				row = append(row, 1)
			} else {
				row = append(row, 0)
			}
		}
		rows = append(rows, row)
	})
	return rows
}

// The union of the first layers is the tables with the mask of the last one of them, for any layout, with pads, lists, frozen
// rows and words.
func TestUnion(t *testing.T) {
	check := func(t rapid.TB, s *sample) {
		for _, v := range []Encoding{Float32, Float16} {
			if v != Float32 && len(s.layout.Frozen) > 0 {
				continue
			}
			masks := s.nested(4)
			layers, err := EncodeLayers(s.layout, s.table, masks, s.baseline, v)
			if err != nil {
				t.Fatal(err)
			}
			for k := range layers {
				parts, err := Union(s.layout, v, layers[:k+1], 1)
				if err != nil {
					t.Fatal(err)
				}
				of := *s
				of.dropped = masks[k]
				whole, want := of.encode(t, v)
				parts.Baseline, parts.Words = whole.Baseline, whole.Words
				table, err := New(s.layout, v, parts)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.EqualFunc(rowsOf(table), rowsOf(want), func(x, y []float32) bool { return slices.EqualFunc(x, y, sameBits) }) {
					t.Fatalf("%s: %d layers differ from the tables with their mask", v, k+1)
				}
			}
		}
	}
	checkAll(t, check)
	for _, dim := range []int{2, 16, 20} {
		check(t, lists(dim))
		s := lists(dim)
		s.layout.Frozen = []int{0}
		clear(s.dropped[40*dim : 40*dim+15])
		for i := range 3 {
			clear(s.dropped[(5+i)*dim : (6+i)*dim])
		}
		check(t, withWords(s, 256, 1, 3))
	}
}

// Layers that drop an entry of the one before, and a union whose values end early or late, are errors.
func TestUnionErrors(t *testing.T) {
	a := plain(4, 50)
	s := &sample{layout: a, table: make([]float32, 200), dropped: make([]bool, 200), baseline: a.Zero()}
	masks := s.nested(2)
	if _, err := EncodeLayers(a, s.table, [][]bool{masks[1], masks[0]}, s.baseline, Float32); err == nil || !strings.Contains(err.Error(), "layer 1 drops entry") {
		t.Fatalf("%v", err)
	}
	layers, err := EncodeLayers(a, s.table, masks, s.baseline, Float32)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(l []Layer)
		text   string
	}{
		{func(l []Layer) { l[1].Values = l[1].Values[4:] }, "layer 1 ends before"},
		{func(l []Layer) { l[1].Values = append(slices.Clone(l[1].Values), 0) }, "layer 1 has 1 bytes after"},
		{func(l []Layer) { l[0] = Layer{} }, "expected at least 1 byte"},
	} {
		changed := slices.Clone(layers)
		c.change(changed)
		if _, err := Union(a, Float32, changed, 1); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Fatalf("%v, expected %q", err, c.text)
		}
	}
}

// Any bytes of layers are an error or a table.
func FuzzUnion(f *testing.F) {
	s := withWords(lists(16), 1)
	layers, err := EncodeLayers(s.layout, s.table, s.nested(2), s.baseline, Float16)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(layers[0].Values, layers[0].Positions, layers[1].Values, layers[1].Positions, false)
	f.Add([]byte{1}, []byte{255}, []byte{}, []byte{0, 7}, true)
	f.Fuzz(func(t *testing.T, values, positions, more, places []byte, wide bool) {
		a, v, factor := s.layout, Float16, float32(1)
		if wide {
			a, v, factor = plain(300, 70, 1), Float32, 1.5
		}
		parts, err := Union(a, v, []Layer{{values, positions}, {more, places}}, factor)
		if err != nil {
			return
		}
		parts.Baseline = a.Zero()
		if table, err := New(a, v, parts); err == nil {
			if n := table.Kept() * v.Size(); n != len(values)+len(more) {
				t.Fatalf("%d bytes of values, %d of layers", n, len(values)+len(more))
			}
			table.Rows(func([]float32, []bool) {})
		}
	})
}

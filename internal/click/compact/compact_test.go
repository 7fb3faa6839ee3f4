package compact

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"shaver/internal/click/model"
)

// sample is the pruned tables of a model.
type sample struct {
	layout   *model.Architecture
	table    []float32
	dropped  []bool
	baseline model.Baseline
}

// plain returns the layout of a single table.
func plain(dim int, sizes ...int) *model.Architecture {
	return &model.Architecture{FieldDims: sizes, Dim: dim}
}

// drawLayout draws a single table, or several tables of different widths. Fields may then
// share a table, read several tables or none, and be read in any order.
func drawLayout(t *rapid.T) *model.Architecture {
	dims := rapid.SampledFrom([]int{1, 2, 7, 8, 9, 16, 33, 127, 128, 129, 300})
	most := 16
	if rapid.Bool().Draw(t, "wide") {
		most = 300
	}
	a := plain(min(most, dims.Draw(t, "dim")))
	for range rapid.IntRange(1, 4).Draw(t, "fields") {
		a.FieldDims = append(a.FieldDims, rapid.IntRange(1, 1+3000/a.Dim).Draw(t, "size"))
	}
	if rapid.Bool().Draw(t, "plain") {
		return a
	}
	a.Dim = 0
	for i := range rapid.IntRange(1, 3).Draw(t, "tables") {
		table := model.Table{Name: string(rune('a' + i)), Dim: min(most, dims.Draw(t, "columns"))}
		for range rapid.IntRange(1, 3).Draw(t, "look-ups") {
			field := rapid.IntRange(0, a.Fields()-1).Draw(t, "field")
			a.LookUps = append(a.LookUps, model.LookUp{Field: field, Table: i, Offset: table.Rows})
			table.Rows += a.FieldDims[field]
		}
		a.Tables = append(a.Tables, table)
	}
	a.LookUps = rapid.Permutation(a.LookUps).Draw(t, "order")
	if err := a.ValidateLayout(); err != nil {
		t.Fatal(err)
	}
	return a
}

// draw draws tables with any numbers of columns. They have empty, full and mixed fields and
// rows, and zeros of both signs among their values.
func draw(t *rapid.T) *sample {
	s := &sample{layout: drawLayout(t)}
	value := rapid.OneOf(rapid.Float32Range(-3, 3), rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), 1e-7, 65504}))
	for _, span := range s.layout.Spans() {
		chances := rapid.SampledFrom([]float64{0.01, 0.05, 0.2, 0.6, 0.95, 1})
		filled, kept := chances.Draw(t, "rows filled"), chances.Draw(t, "kept in them")
		seed := rapid.Uint64().Draw(t, "seed")
		chance := func(p float64) bool {
			seed = seed*6364136223846793005 + 1442695040888963407
			return float64(seed>>11)/(1<<53) < p
		}
		all, none := rapid.IntRange(0, 9).Draw(t, "all") == 0, rapid.IntRange(0, 9).Draw(t, "none") == 0
		pool := rapid.SliceOfN(value, 17, 17).Draw(t, "values")
		for i := range span.Rows {
			row := chance(filled)
			for c := range span.Dim {
				s.dropped = append(s.dropped, none || !all && !(row && chance(kept)))
				s.table = append(s.table, pool[(i*span.Dim+c)%len(pool)])
			}
		}
	}
	s.baseline = drawBaseline(t, s.layout, value)
	return s
}

// checkAll calls check with random samples, and with 100 that are the same in every run, so that what check
// counts does not depend on chance.
func checkAll(t *testing.T, check func(t rapid.TB, s *sample)) {
	rapid.Check(t, func(r *rapid.T) { check(r, draw(r)) })
	fixed := rapid.Custom(draw)
	for i := range 100 {
		check(t, fixed.Example(i))
	}
}

// drawBaseline draws a baseline with one word for each span, or with several for some.
func drawBaseline(t *rapid.T, a *model.Architecture, value *rapid.Generator[float32]) model.Baseline {
	b, size := model.Baseline{}, a.BaselineSize()
	if rapid.Bool().Draw(t, "several words") {
		for _, span := range a.Spans() {
			words := rapid.SampledFrom([]int{1, 1, 2, 3, 16, 256}).Draw(t, "words")
			size += (words - 1) * span.Dim
			b.Words = append(b.Words, words)
			seed := rapid.Uint64().Draw(t, "seed of the numbers")
			for range span.Rows {
				seed = seed*6364136223846793005 + 1442695040888963407
				b.Numbers = append(b.Numbers, uint8(int(seed>>40)%words))
			}
		}
	}
	pool := rapid.SliceOfN(value, 17, 17).Draw(t, "values of words")
	for i := range size {
		b.Values = append(b.Values, pool[i%len(pool)])
	}
	for _, span := range a.Spans() {
		for _, r := range span.Sharers {
			copy(b.Values[r.Baseline:], b.Values[span.Baseline:][:span.Dim])
		}
	}
	return b
}

// read returns the baseline that a file of s has: rows that drop nothing have the number 0.
func (s *sample) read() model.Baseline {
	b := s.baseline
	if b.Numbers = nil; !slices.ContainsFunc(b.Words, func(n int) bool { return n > 1 }) {
		b.Words = nil
		return b
	}
	for _, span := range s.layout.Spans() {
		for i := range span.Rows {
			number := s.baseline.Numbers[span.Row+i]
			if !slices.Contains(s.dropped[span.Entry+i*span.Dim:][:span.Dim], true) {
				number = 0
			}
			b.Numbers = append(b.Numbers, number)
		}
	}
	return b
}

func (s *sample) encode(t rapid.TB, v Encoding) (*Parts, *Table) {
	parts, err := Encode(s.layout, s.table, s.dropped, s.baseline, v)
	if err != nil {
		t.Fatal(err)
	}
	table, err := New(s.layout, v, parts)
	if err != nil {
		t.Fatal(err)
	}
	return parts, table
}

// check compares a table with what was encoded. Dropped entries must be equal to the last
// bit. Kept entries must be within the error that the encoding allows; float32 values
// must be equal.
func (s *sample) check(t rapid.TB, table *Table) {
	spans := s.layout.Spans()
	field, row, book := 0, 0, s.layout.Book(s.baseline)
	if got, want := table.Baseline(), s.read(); !got.Equal(&want) {
		t.Fatalf("the baseline is %+v, expected %+v", got, want)
	}
	var whole []float32
	x := make([]float32, s.layout.Players())
	table.Rows(func(read []float32, dropped []bool) {
		for ; row == spans[field].Row+spans[field].Rows; field++ {
		}
		span := &spans[field]
		features := s.layout.Offsets()
		features[span.Field] = int32(span.Feature + row - span.Row)
		table.Embed(x, features)
		if own := x[span.Baseline : span.Baseline+span.Dim]; !slices.EqualFunc(own, read, sameBits) {
			t.Fatalf("row %d: Embed gives %v, Rows %v", row, own, read)
		}
		for c := range span.Dim {
			i := len(whole) + c
			if dropped[c] != s.dropped[i] {
				t.Fatalf("row %d, column %d: dropped %v", row, c, dropped[c])
			}
			want, most := book.Of(field, row-span.Row)[c], 0.0
			if !dropped[c] {
				want = s.table[i]
				most = s.error(table, field, want)
			}
			if err := math.Abs(float64(read[c]) - float64(want)); err > most || most == 0 && !sameBits(read[c], want) {
				t.Fatalf("row %d, column %d reads %v, written %v: error %g, at most %g allowed", row, c, read[c], want, err, most)
			}
		}
		whole = append(whole, read...)
		row++
	})
	if len(whole) != len(s.table) {
		t.Fatalf("Rows passed %d rows with %d entries", row, len(whole))
	}
	s.checkMany(t, table, whole)
}

// checkMany compares many embeddings read at once with whole, [Parameters].
func (s *sample) checkMany(t rapid.TB, table *Table, whole []float32) {
	const rows = 150
	var features []int32
	for i := range rows {
		for j, first := range s.layout.Offsets() {
			features = append(features, first+int32(i*(2*j+7)%s.layout.FieldDims[j]))
		}
	}
	x := make([]float32, rows*s.layout.Players())
	table.Embed(x, features)
	for i := range rows {
		row, read := features[i*s.layout.Fields():], x[i*s.layout.Players():]
		for _, span := range s.layout.Spans() {
			at := span.Entry + (int(row[span.Field])-span.Feature)*span.Dim
			if got, want := read[span.Baseline:span.Baseline+span.Dim], whole[at:at+span.Dim]; !slices.EqualFunc(got, want, sameBits) {
				t.Fatalf("look-up %d of row %d of a batch reads %v, but %v when read alone", span.LookUp, i, got, want)
			}
		}
	}
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// error returns the largest error that the documentation of Encoding allows.
func (s *sample) error(table *Table, field int, v float32) float64 {
	size := math.Abs(float64(v))
	switch table.Encoding() {
	case Float16:
		if size < 0x1p-14 {
			return 0x1p-25
		}
		return size * 0x1p-11
	case Int8:
		return float64(table.Steps()[field])/2 + size*0x1p-23 + math.SmallestNonzeroFloat32
	}
	return 0
}

func TestRoundTrip(t *testing.T) {
	forms := map[Form]int{}
	checkAll(t, func(t rapid.TB, s *sample) {
		for _, v := range Encodings() {
			parts, table := s.encode(t, v)
			s.check(t, table)
			for _, f := range parts.Fields {
				forms[f.Form]++
			}
		}
	})
	for _, form := range []Form{None, Dense, Bitmap, Columns} {
		if forms[form] == 0 {
			t.Errorf("no field was stored as %s; forms: %v", form, forms)
		}
	}
}

// The form columns is used up to 32768 columns, the limit of its two-byte numbers. Wider
// tables use bitmaps.
func TestWide(t *testing.T) {
	for dim, form := range map[int]Form{32768: Columns, 32769: Bitmap, 65536: Bitmap} {
		s := &sample{layout: plain(dim, 1, 3), table: make([]float32, 4*dim), dropped: make([]bool, 4*dim), baseline: plain(dim, 1, 1).Zero()}
		for i := range s.dropped {
			s.table[i] = float32(i)
			s.dropped[i] = i != dim-1 && i != 4*dim-1 && i != 3*dim
		}
		s.baseline.Values[dim] = -1
		parts, table := s.encode(t, Float32)
		if got := parts.Fields[1].Form; got != form {
			t.Errorf("%d columns are stored as %s, want %s", dim, got, form)
		}
		s.check(t, table)
	}
}

// Embed allocates no memory, for any width and encoding.
func TestEmbedAllocatesNothing(t *testing.T) {
	const rows = 300
	for _, dim := range []int{maxNarrow, maxNarrow + 1} {
		s := &sample{layout: plain(dim, 400, 30), table: make([]float32, 430*dim), dropped: make([]bool, 430*dim), baseline: plain(dim, 1, 1).Zero()}
		for i := range s.dropped {
			s.dropped[i] = i%7 != 0
		}
		features := make([]int32, 0, 2*rows)
		for i := range int32(rows) {
			features = append(features, i, 400+i%30)
		}
		x := make([]float32, 2*rows*dim)
		for _, v := range Encodings() {
			_, table := s.encode(t, v)
			if n := testing.AllocsPerRun(50, func() { table.Embed(x, features) }); n > 0 {
				t.Errorf("%d columns of %s: %v allocations", dim, v, n)
			}
		}
	}
}

// A row without kept entries takes one bit for any number of columns, within the limit of
// MaxInflation.
func TestEmptyRows(t *testing.T) {
	const size, dim = 80_000, 16
	dropped := slices.Repeat([]bool{true}, size*dim)
	for i := range 100 {
		dropped[i*12801] = false
	}
	f := Plan(plain(dim, size), dropped)[0]
	if rows, columns := f.Sizes(size, dim); f.Form != Columns || rows != size/8 || columns != 100 {
		t.Errorf("%+v takes %d bytes for rows and %d for columns", f, rows, columns)
	}
	for _, dim := range []int{16, 64, 1024} {
		dropped := slices.Repeat([]bool{true}, 1000*dim)
		dropped[5*dim] = false
		sizes := []int{500, 400, 100}
		bytes := 0
		for j, f := range Plan(plain(dim, sizes...), dropped) {
			bytes += f.bytes(sizes[j], dim) + f.Kept
		}
		if 4*1000*dim > MaxInflation*bytes {
			t.Errorf("%d columns: %d bytes for a table of %d", dim, bytes, 4*1000*dim)
		}
	}
}

// A Planner's fields equal those of Plan, and its bytes equal the size of Parts.
func TestPlanner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t)
		p := NewPlanner(s.layout)
		for i, gone := range s.dropped {
			if gone {
				p.Drop(i)
			}
		}
		for _, v := range Encodings() {
			parts, _ := s.encode(t, v)
			if bytes := len(parts.Rows) + len(parts.Columns) + len(parts.Values); p.Bytes(v) != bytes || !slices.Equal(p.Fields(), parts.Fields) {
				t.Fatalf("%+v with %d bytes, expected %+v with %d", p.Fields(), p.Bytes(v), parts.Fields, bytes)
			}
		}
	})
}

func TestEncodeRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, test := range map[string]struct {
		table, codebook []float32
		values          Encoding
		want            string
	}{
		"NaN":      {[]float32{0, 0, 0, nan}, []float32{0, 0}, Float32, "row 1 has the value NaN in column 1"},
		"codebook": {[]float32{0, 0, 0, 0}, []float32{0, inf}, Int8, "value 1 of the baseline is +Inf"},
		"half":     {[]float32{0, 65519, -65520, 0}, []float32{0, 0}, Float16, "row 1 has the value -65520 in column 0: float16 holds magnitudes up to 65504"},
	} {
		_, err := Encode(plain(2, 2), test.table, make([]bool, 4), model.Baseline{Values: test.codebook}, test.values)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
	if _, err := Encode(plain(2, 2), []float32{0, nan, 1, 2}, []bool{false, true, false, false}, plain(2, 2).Zero(), Float32); err != nil {
		t.Errorf("a dropped NaN: %v", err)
	}
}

// Find loses no information, and finds the dropped entries of fields that are mostly
// dropped.
func TestFind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t)
		_, table := s.encode(t, Float32)
		var dense []float32
		table.Rows(func(x []float32, _ []bool) { dense = append(dense, x...) })
		found := &sample{layout: s.layout, table: dense}
		found.dropped, found.baseline = Find(s.layout, dense)
		_, again := found.encode(t, Float32)
		i := 0
		again.Rows(func(x []float32, _ []bool) {
			if !slices.EqualFunc(x, dense[i:i+len(x)], sameBits) {
				t.Fatalf("the row of entry %d reads %v, was %v", i, x, dense[i:i+len(x)])
			}
			i += len(x)
		})
	})
}

// Int8 keeps its error bound for fields with one value, the widest range, or the
// narrowest range.
func TestSteps(t *testing.T) {
	for _, table := range [][]float32{
		{5, 5, 5}, {-math.MaxFloat32, 1, math.MaxFloat32}, {0, math.SmallestNonzeroFloat32, 0}, {1, math.Nextafter32(1, 2), 1},
		{0, 1e-44, 7e-45},
	} {
		s := &sample{layout: plain(1, 3), table: table, dropped: make([]bool, 3), baseline: plain(1, 1).Zero()}
		_, read := s.encode(t, Int8)
		s.check(t, read)
	}
}

// New accepts or rejects any bytes without a panic. An accepted table can be read. The bytes
// are those of one table, or of two tables in which one field reads rows.
func FuzzNew(f *testing.F) {
	f.Add([]byte{0xff, 1}, []byte{1, 2, 0x83, 4, 0x85}, []byte("valuesvaluesvaluesva"), uint8(2), uint16(9), uint16(3), uint16(2), uint16(5), uint16(16), []byte{})
	f.Add([]byte{}, []byte{0xff, 0xff, 0x0f, 0x0f}, []byte("valuesvaluesvaluesva"), uint8(1), uint16(2), uint16(2), uint16(2), uint16(20), uint16(16), []byte{1, 0, 0x80})
	f.Add([]byte{0x81, 0}, []byte{1, 2, 0x83, 4, 0x85}, []byte("value"), uint8(130), uint16(9), uint16(3), uint16(2), uint16(5), uint16(16), []byte{2, 1, 0x12, 0x34, 0x56})
	f.Fuzz(func(t *testing.T, rows, columns, values []byte, form uint8, size, other, listed, kept, dim uint16, words []byte) {
		sizes := []int{int(size), int(other)}
		if size == 0 || other == 0 || dim == 0 {
			return
		}
		forms := []Form{None, Bitmap, Columns, Dense}
		v := Encodings()[int(form/16)%3]
		parts := &Parts{
			Fields: []Field{{forms[form%4], int(listed), int(kept)}, {forms[form/4%4], int(other), int(other) * int(dim)}},
			Rows:   rows, Columns: columns, Values: values, Baseline: plain(int(dim), 1, 1).Zero(), Words: words, Steps: []float32{0, 1, -1, 0.5},
		}
		if forms[form/4%4] == None {
			parts.Fields[1] = Field{Form: None}
		}
		layout := plain(int(dim), sizes...)
		if form&128 != 0 {
			layout.Dim, layout.Tables = 0, []model.Table{{Name: "a", Rows: int(size), Dim: int(dim)}, {Name: "b", Rows: int(other), Dim: 1 + int(dim)/2}}
			layout.LookUps = []model.LookUp{{Field: 1, Table: 1}, {Field: 0, Table: 0}}
			parts.Baseline = layout.Zero()
			if parts.Fields[1].Kept = 0; parts.Fields[1].Form == Dense {
				parts.Fields[1].Kept = int(other) * layout.Tables[1].Dim
			}
		}
		for j, span := range layout.Spans() {
			if j < len(words) && len(words) > 1 {
				parts.Baseline.Values = append(parts.Baseline.Values, make([]float32, int(words[j])*span.Dim)...)
			}
		}
		table, err := New(layout, v, parts)
		if err != nil {
			return
		}
		if b := table.Baseline(); layout.CheckBaseline(&b) != nil {
			t.Fatalf("baseline %+v: %v", b, layout.CheckBaseline(&b))
		}
		kept0 := 0
		var whole []float32
		table.Rows(func(x []float32, dropped []bool) {
			if len(whole) < 1<<20 {
				whole = append(whole, x...)
			}
			for c, gone := range dropped {
				if !gone {
					kept0++
				}
				if !finite(x[c]) {
					t.Fatalf("Rows passes %v", x)
				}
			}
		})
		if kept0 != table.Kept() {
			t.Fatalf("%d entries are kept, expected %d", kept0, table.Kept())
		}
		if len(whole) == layout.Parameters() {
			(&sample{layout: layout}).checkMany(t, table, whole)
		}
	})
}

// Memory equals the memory of the slices that reading rows needs.
func TestMemory(t *testing.T) {
	listings, groups, blocks, words := 0, 0, 0, 0
	checkAll(t, func(t rapid.TB, s *sample) {
		for _, v := range Encodings() {
			parts, table := s.encode(t, v)
			want := len(table.entries) + 4*len(table.codebook) + 4*len(table.steps)
			for j := range table.fields {
				f := &table.fields[j]
				if f.numbers != nil {
					want += len(f.numbers) + 4*len(f.words)
					words++
				}
				want += len(f.listing)*int(unsafe.Sizeof(uint64(0))) + len(f.groups)*int(unsafe.Sizeof(group{})) + len(f.blocks)*int(unsafe.Sizeof(block{}))
				if f.blocks != nil {
					want += len(f.columns)
				}
				listings, groups, blocks = listings+len(f.listing), groups+len(f.groups), blocks+len(f.blocks)
			}
			if got := Memory(s.layout, parts.Fields, parts.Baseline.Words, v); got != int64(want) {
				t.Fatalf("%+v of %s: %d bytes, expected %d", s.layout, v, got, want)
			}
		}
	})
	if listings == 0 || groups == 0 || blocks == 0 || words == 0 {
		t.Errorf("%d listings, %d groups, %d blocks, %d fields with several words", listings, groups, blocks, words)
	}
}

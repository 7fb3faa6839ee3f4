package model_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/onnx/graph"
)

// A row of modeltest.Lists has the ids of item, user, history (3) and tags (2). The first
// feature of these fields is 0, 5, 8 and 13.
func listRow(item, user, first, second, third, tag, other int32) []int32 {
	return []int32{item, 5 + user, 8 + first, 8 + second, 8 + third, 13 + tag, 13 + other}
}

func TestListLayout(t *testing.T) {
	a := modeltest.Lists()
	if err := a.Validate(); err != nil {
		t.Fatal(err)
	}
	if a.Players() != 11 || a.BaselineSize() != 6 || a.Width() != 7 || a.Columns() != 7 {
		t.Errorf("%d elements, %d baselines, %d ids, %d columns, expected 11, 6, 7, 7", a.Players(), a.BaselineSize(), a.Width(), a.Columns())
	}
	spans := a.Spans()
	if len(spans) != 3 || spans[0].LookUp != 0 || !slices.Equal(spans[0].Sharers, []model.Reader{{LookUp: 1, Field: 2, Feature: 8, Baseline: 2}}) || spans[1].Baseline != 4 || spans[2].Baseline != 5 {
		t.Errorf("spans %+v", spans)
	}
	if got := a.FixedRows(); !slices.Equal(got, []int{0}) {
		t.Errorf("the pad rows are %v, expected row 0 of the items", got)
	}
	counts := []int64{1, 2, 3, 4, 5, 1, 1, 1, 10, 20, 30, 40, 50, 6, 7, 8, 9}
	if got := a.RowCounts(counts); !slices.Equal(got, []int64{0, 22, 33, 44, 55, 1, 1, 1, 6, 7, 8, 9}) {
		t.Errorf("the rows of the tables are read %v times", got)
	}
	if err := a.CheckBaseline(&model.Baseline{Values: []float32{1, 2, 1, 2, 3}}); err == nil || !strings.Contains(err.Error(), "5 values, expected 6") {
		t.Errorf("error %v for a short baseline", err)
	}
	if got := a.FeatureEntries(); !slices.Equal(got, []int{2, 1, 0, 1}) {
		t.Errorf("features have %v entries", got)
	}
	if got := a.Book(model.Baseline{Values: []float32{1, 2, 1, 2, 3, 4}}).Spread(nil, nil); !slices.Equal(got, []float32{1, 2, 1, 2, 1, 2, 1, 2, 3, 4, 4}) {
		t.Errorf("the baselines of the elements are %v", got)
	}
}

// A roster has the distinct entries of the row that are not of pad rows.
func TestRoster(t *testing.T) {
	a := modeltest.Lists()
	r := model.NewRoster(&a)
	for _, c := range []struct {
		row      []int32
		rows     []int32
		fields   []int
		elements [][]int32
	}{
		{listRow(2, 1, 2, 0, 3, 1, 1), []int32{2, 3, 6, 9}, []int{0, 0, 1, 3}, [][]int32{{0, 2}, {1, 3}, {6}, {7}, {8}, {9, 10}}},
		{listRow(0, 0, 0, 0, 0, 3, 2), []int32{5, 11, 10}, []int{1, 3, 3}, [][]int32{{8}, {9}, {10}}},
		{listRow(1, 2, 4, 4, 4, 0, 3), []int32{1, 4, 7, 8, 11}, []int{0, 0, 1, 3, 3}, [][]int32{{0}, {1}, {2, 4, 6}, {3, 5, 7}, {8}, {9}, {10}}},
	} {
		r.Set(c.row)
		if !r.Merged() || !slices.Equal(r.Rows(), c.rows) || !slices.Equal(r.Fields(), c.fields) || r.Players() != len(c.elements) {
			t.Errorf("row %v has %d players in the rows %v of fields %v, expected %d in %v of %v", c.row, r.Players(), r.Rows(), r.Fields(), len(c.elements), c.rows, c.fields)
		}
		by := slices.Repeat([]int32{-1}, a.Players())
		for i, want := range c.elements {
			if got := r.Elements(i); !slices.Equal(got, want) {
				t.Errorf("row %v: player %d has the elements %v, expected %v", c.row, i, got, want)
			}
			for _, k := range want {
				by[k] = int32(i)
			}
		}
		if !slices.Equal(r.ByElement(), by) {
			t.Errorf("row %v: the elements have the players %v, expected %v", c.row, r.ByElement(), by)
		}
	}
	rows := modeltest.Rows(a, 50, 3)
	at := 0
	if n := testing.AllocsPerRun(100, func() { r.Set(rows.Row(at % rows.Len())); at++ }); n != 0 {
		t.Errorf("%v allocations for a row", n)
	}
}

// For random lists, shared rows and pads, a roster agrees with a search through the entries
// that a row reads.
func TestRosterOfAnyLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := model.Architecture{Kind: model.Graph}
		for range rapid.IntRange(1, 5).Draw(t, "fields") {
			a.FieldDims = append(a.FieldDims, rapid.IntRange(1, 4).Draw(t, "size"))
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "tables") {
			table := model.Table{Name: string(rune('a' + i)), Dim: rapid.IntRange(1, 3).Draw(t, "dim")}
			for range rapid.IntRange(1, 3).Draw(t, "ranges") {
				size := rapid.SampledFrom(a.FieldDims).Draw(t, "rows")
				for j, n := range a.FieldDims {
					if n == size && rapid.Bool().Draw(t, "reads") || j == slices.Index(a.FieldDims, size) {
						a.LookUps = append(a.LookUps, model.LookUp{Field: j, Table: i, Offset: table.Rows})
					}
				}
				table.Rows += size
			}
			a.Tables = append(a.Tables, table)
		}
		a.LookUps = rapid.Permutation(a.LookUps).Draw(t, "order")
		for j, size := range a.FieldDims {
			if rapid.Bool().Draw(t, "list") {
				a.Lists = append(a.Lists, model.List{Field: j, Length: rapid.IntRange(1, 4).Draw(t, "length"), Pad: rapid.IntRange(-1, size-1).Draw(t, "pad")})
			}
		}
		if err := a.Validate(); err != nil {
			t.Fatal(err)
		}
		lengths, pads := a.Lengths(), slices.Repeat([]int{-1}, a.Fields())
		for _, l := range a.Lists {
			pads[l.Field] = l.Pad
		}
		ids, row := make([][]int, a.Fields()), []int32{} // ids are local
		for j, size := range a.FieldDims {
			for range lengths[j] {
				id := rapid.IntRange(0, size-1).Draw(t, "id")
				ids[j], row = append(ids[j], id), append(row, a.Offsets()[j]+int32(id))
			}
		}
		type entry struct{ table, row, column int }
		isPad := func(table, row int) bool {
			return slices.ContainsFunc(a.LookUps, func(l model.LookUp) bool {
				return pads[l.Field] >= 0 && l.Table == table && l.Offset+pads[l.Field] == row
			})
		}
		var players []entry
		elements := map[entry][]int32{}
		k := int32(0)
		for _, l := range a.LookUps {
			for _, id := range ids[l.Field] {
				for c := range a.Tables[l.Table].Dim {
					e := entry{l.Table, l.Offset + id, c}
					if !isPad(e.table, e.row) {
						if elements[e] == nil {
							players = append(players, e)
						}
						elements[e] = append(elements[e], k)
					}
					k++
				}
			}
		}
		if int(k) != a.Players() {
			t.Fatalf("%d elements, expected %d", a.Players(), k)
		}
		r := model.NewRoster(&a)
		r.Set(row)
		if r.Players() != len(players) {
			t.Fatalf("%d players, expected %d", r.Players(), len(players))
		}
		first := []int{0}
		for _, table := range a.Tables {
			first = append(first, first[len(first)-1]+table.Rows)
		}
		var rows []int32
		for i, e := range players {
			if !slices.Equal(r.Elements(i), elements[e]) {
				t.Fatalf("player %d has the elements %v, expected %v", i, r.Elements(i), elements[e])
			}
			if e.column == 0 {
				rows = append(rows, int32(first[e.table]+e.row))
			}
		}
		if !slices.Equal(r.Rows(), rows) {
			t.Fatalf("the players are in the rows %v, expected %v", r.Rows(), rows)
		}
		if !r.Merged() && len(players) != a.Players() {
			t.Fatal("the players are said to be the elements")
		}
	})
}

// A row with lists has an id of the field at each position.
func TestCheckRowWithLists(t *testing.T) {
	m := modeltest.ListModel("sum", 1)
	if err := m.CheckRow(listRow(0, 0, 4, 0, 1, 3, 3)); err != nil {
		t.Error(err)
	}
	for want, row := range map[string][]int32{
		"row has 4 ids, the model has 7":                           {0, 5, 8, 13},
		"field 2 has global id 13 at position 1, outside [8, 13)":  listRow(0, 0, 0, 5, 0, 0, 0),
		"field 3 has global id 12 at position 0, outside [13, 17)": listRow(0, 0, 0, 0, 0, -1, 0),
		"field 0 has global id 1000 at position 0, outside [0, 5)": listRow(1000, 0, 0, 0, 0, 0, 0),
	} {
		if err := m.CheckRow(row); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("row %v: error %v, expected %q", row, err, want)
		}
	}
}

// A walk lets all elements of a player appear together, and elements of pad rows have their
// own values in every state. The logits of a walk are those of its coalitions, computed from
// scratch, and those of package graph.
func TestWalksOfLists(t *testing.T) {
	for _, pooling := range modeltest.Poolings() {
		m := modeltest.ListModel(pooling, 4)
		rows := modeltest.Rows(m.Architecture, 30, 2)
		copy(rows.Row(3), listRow(0, 1, 0, 0, 0, 2, 2))
		book := m.Book(model.Baseline{Values: []float32{.1, -.2, .1, -.2, .3, -.1}})
		baseline := book.Spread(nil, nil)
		probe, roster := m.NewProbe(book), model.NewRoster(&m.Architecture)
		full, empties := make([]float64, rows.Len()), make([]float64, rows.Len())
		m.NewScorer().Logits(full, rows)
		m.NewProbe(book).Empties(empties, rows)
		r, entries := rand.New(rand.NewPCG(1, 1)), make([]float32, m.Players())
		for i := range rows.Len() {
			probe.Reset(rows, i)
			roster.Set(rows.Row(i))
			m.Embed(entries, rows.Row(i))
			players := roster.Players()
			order, present, logits := make([]int32, players), make([]bool, players), make([]float64, players+1)
			for k, p := range r.Perm(players) {
				order[k] = int32(p)
			}
			probe.Walk(order, logits)
			if logits[0] != empties[i] || logits[players] != full[i] {
				t.Errorf("%s, row %d: the walk goes from %v to %v, expected from %v to %v", pooling, i, logits[0], logits[players], empties[i], full[i])
			}
			sets := make([]float64, 1<<players)
			probe.Coalitions(0, sets)
			set := 0
			for k := range logits {
				if k > 0 {
					present[order[k-1]] = true
					set |= 1 << order[k-1]
				}
				x := slices.Clone(entries)
				for e, player := range roster.ByElement() {
					if player >= 0 && !present[player] {
						x[e] = baseline[e]
					}
				}
				want := run(t, m, x, rows.Row(i))
				if got := probe.Coalition(present); logits[k] != got || sets[set] != got || math.Abs(got-want) > 1e-5 {
					t.Errorf("%s, row %d: with %d players the walk has the logit %v, the coalition %v and %v, expected %v", pooling, i, k, logits[k], got, sets[set], want)
				}
			}
		}
	}
}

// run computes the logit of a modeltest.ListModel with package graph.
func run(t *testing.T, m *model.Model, x []float32, row []int32) float64 {
	t.Helper()
	in := []*graph.Tensor{graph.NewFloats(x[:2], 1, 2), graph.NewFloats(x[2:8], 1, 3, 2), graph.NewFloats(x[8:9], 1, 1), graph.NewFloats(x[9:], 1, 2, 1)}
	if m.Weights.Graph.IDs != nil {
		in = append(in, graph.NewFloats([]float32{float32(row[2] - 8), float32(row[3] - 8), float32(row[4] - 8)}, 1, 3))
	}
	out, err := m.Weights.Graph.Graph.Run(in)
	if err != nil {
		t.Fatal(err)
	}
	return float64(out.Floats[0])
}

// A table whose entries are not players is read for each position of a list.
func TestConstantsOfLists(t *testing.T) {
	b := new(modeltest.Builder)
	x, first := b.AddInput("x", graph.Float, []int{1, 3}), b.AddInput("first", graph.Float, []int{1, 3, 2})
	weights := b.Floats("", []float32{1, 10, 100, 1000, 1e4, 1e5}, 1, 3, 2)
	sum := func(v graph.Value, axes ...int64) graph.Value {
		return b.Node("ReduceSum", graph.Attributes{"keepdims": int64(0)}, v, b.Ints(axes...))
	}
	b.Output = b.Node("Add", nil, sum(x, 1), sum(b.Node("Mul", nil, first, weights), 1, 2))
	m, err := model.New(model.Architecture{
		Kind: model.Graph, FieldDims: []int{2}, Tables: []model.Table{{Name: "x", Rows: 2, Dim: 1}}, LookUps: []model.LookUp{{}},
		Lists: []model.List{{Length: 3, Pad: -1}},
	}, model.Weights{Embedding: []float32{.25, .5}, Graph: &model.GraphHead{
		Graph: &b.Graph, LookUps: []graph.Value{x}, Constants: []model.ConstantLookUp{{Name: "first", Dim: 2, Values: []float32{1, 2, 3, 4}, Input: first}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	rows := &model.Rows{Width: 3, Number: []int64{0}, Label: []float32{1}, Features: []int32{1, 0, 1}}
	got := make([]float64, 1)
	if m.NewScorer().Logits(got, rows); got[0] != 1.25+432143 {
		t.Errorf("the logit is %v, expected 432144.25", got[0])
	}
}

// The fields of a previous model may be smaller, but not its lists or shared rows others.
func TestTranslateLists(t *testing.T) {
	earlier := modeltest.Lists()
	grown := modeltest.Lists()
	grown.FieldDims = []int{7, 3, 7, 6}
	grown.Tables = []model.Table{{Name: "items", Rows: 7, Dim: 2}, {Name: "users", Rows: 3, Dim: 1}, {Name: "tags", Rows: 6, Dim: 1}}
	translator, err := model.NewTranslator(&grown, &earlier)
	if err != nil {
		t.Fatal(err)
	}
	into := make([]int32, 7)
	if err := translator.Translate(into, []int32{4, 7, 10, 14, 11, 17, 20}); err != nil || !slices.Equal(into, listRow(4, 0, 0, 4, 1, 0, 3)) && err == nil {
		t.Errorf("ids %v, error %v", into, err)
	}
	if err := translator.Translate(into, []int32{4, 7, 10, 15, 11, 17, 20}); err == nil || !strings.Contains(err.Error(), "field 2 has global id 15, the value 5 of the field") {
		t.Errorf("error %v for an id that the previous model lacks", err)
	}
	for want, spoil := range map[string]func(a *model.Architecture){
		"field 2 has 3 positions and the pad id 0 in the previous model, expected 4 positions and the pad id 0": func(a *model.Architecture) { a.Lists[0].Length = 4 },
		"expected 3 positions and the pad id -1": func(a *model.Architecture) { a.Lists[0].Pad = -1 },
		"look-up 1 of the previous model reads the rows of look-up 0, expected those of look-up 1": func(a *model.Architecture) {
			a.Tables[0].Rows, a.LookUps[1].Offset = 10, 5
		},
	} {
		a := modeltest.Lists()
		spoil(&a)
		if err := a.Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := model.NewTranslator(&a, &earlier); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
}

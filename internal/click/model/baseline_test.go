package model_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// The words of modeltest.Lists: two of the items, three of the users and one of the tags.
func words() model.Baseline {
	return model.Baseline{
		Values: []float32{1, 2, 1, 2, 3, 4, 10, 20, 30, 300}, Words: []int{2, 3, 1},
		Numbers: []uint8{0, 1, 0, 1, 0 /* items */, 2, 0, 1 /* users */, 0, 0, 0, 0 /* tags */},
	}
}

// A book reads what Baseline says: of a row of the tables, and of a row of data.
func TestBook(t *testing.T) {
	a := modeltest.Lists()
	b := words()
	if err := a.CheckBaseline(&b); err != nil {
		t.Fatal(err)
	}
	k := a.Book(b)
	for j, want := range [][][]float32{{{1, 2}, {10, 20}, {1, 2}, {10, 20}, {1, 2}}, {{300}, {3}, {30}}, {{4}, {4}, {4}, {4}}} {
		for i, w := range want {
			if got := k.Of(j, i); !slices.Equal(got, w) || !slices.Equal(got, k.Word(j, k.Number(j, i))) {
				t.Errorf("row %d of span %d reads %v, expected %v", i, j, got, w)
			}
		}
	}
	x := make([]float32, a.Players())
	// item 3 and history 1, 2, 3 read the same table.
	if got := k.Spread(x, listRow(3, 0, 1, 2, 3, 0, 3)); !slices.Equal(got, []float32{10, 20, 10, 20, 1, 2, 10, 20, 300, 4, 4}) || &got[0] != &x[0] || k.Constant() {
		t.Errorf("a row reads %v", got)
	}
	one := a.Book(model.Baseline{Values: b.Values[:6], Words: []int{1, 1, 1}, Numbers: make([]uint8, 12)})
	if got := one.Spread(nil, nil); !slices.Equal(got, []float32{1, 2, 1, 2, 1, 2, 1, 2, 3, 4, 4}) || !one.Constant() {
		t.Errorf("with one word a row reads %v", got)
	}
	for _, a := range []model.Architecture{a, modeltest.LookUps(), modeltest.Architectures()["deepfm"]} {
		for seed := range uint64(4) {
			b := modeltest.Words(&a, 3, seed)
			if err := a.CheckBaseline(&b); err != nil {
				t.Fatal(err)
			}
			k, rows, shape := a.Book(b), modeltest.Rows(a, 20, seed), a.Shape()
			roster, places, x, all := model.NewRoster(&a), make([]int32, a.Players()), make([]float32, a.Players()), make([]float32, a.Parameters())
			for j, s := range k.Spans {
				for i := range s.Rows {
					copy(all[s.Entry+i*s.Dim:], k.Of(j, i))
				}
			}
			for r := range rows.Len() {
				got := k.Spread(x, rows.Row(r))
				k.Places(places, rows.Row(r))
				for e, at := range places {
					if got[e] != b.Values[at] {
						t.Fatalf("element %d reads %v, but its place has %v", e, got[e], b.Values[at])
					}
				}
				roster.Set(rows.Row(r))
				player := 0
				for _, row := range roster.Rows() {
					from, to := shape.Row(int(row))
					for i := from; i < to; i++ {
						for _, e := range roster.Elements(player) {
							if got[e] != all[i] {
								t.Fatalf("element %d reads %v, but entry %d, which it is, %v", e, got[e], i, all[i])
							}
						}
						player++
					}
				}
			}
		}
	}
}

// CheckBaseline says what is wrong.
func TestCheckBaseline(t *testing.T) {
	a := modeltest.Lists()
	for want, change := range map[string]func(b *model.Baseline){
		"9 values, expected 10":                           func(b *model.Baseline) { b.Values = b.Values[1:] },
		"10 values, expected 11":                          func(b *model.Baseline) { b.Words[2] = 2 },
		"10 values, expected 6":                           func(b *model.Baseline) { b.Words, b.Numbers = nil, nil },
		"words for 2 ranges of rows, expected 3":          func(b *model.Baseline) { b.Words = b.Words[:2] },
		"words for 0 ranges of rows, expected 3":          func(b *model.Baseline) { b.Words = []int{} },
		"0 words for field 0, expected 1 to 256":          func(b *model.Baseline) { b.Words[0] = 0 },
		"257 words for field 1, expected 1 to 256":        func(b *model.Baseline) { b.Words[1] = 257 },
		"value 8 of the baseline is NaN":                  func(b *model.Baseline) { b.Values[8] = float32(math.NaN()) },
		"value 0 of the baseline is -Inf":                 func(b *model.Baseline) { b.Values[0] = float32(math.Inf(-1)) },
		"the words of 11 rows, expected 12":               func(b *model.Baseline) { b.Numbers = b.Numbers[1:] },
		"the words of 0 rows, expected 12":                func(b *model.Baseline) { b.Numbers = nil },
		"the words of 12 rows, expected 0":                func(b *model.Baseline) { b.Words, b.Values = nil, b.Values[:6] },
		"row 4 of field 0 reads word 2 of 2":              func(b *model.Baseline) { b.Numbers[4] = 2 },
		"row 0 of field 3 reads word 1 of 1":              func(b *model.Baseline) { b.Numbers[8] = 1 },
		"look-up 1 has another baseline than look-up 0, ": func(b *model.Baseline) { b.Values[2] = 7 },
	} {
		b := words()
		change(&b)
		if err := a.CheckBaseline(&b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
}

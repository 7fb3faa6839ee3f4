package path

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/value/tally"
)

// measured returns the terms that rows give at tables of one column, with weights of 1. Row r changes
// the logit by change[r][i] through entry i, and has the derivatives 1 and 1.
func measured(t *testing.T, shape layout.Shape, dropped layout.Mask, change [][]float64) *tally.Accumulator {
	t.Helper()
	b := tally.NewTermsBuilder(shape, dropped)
	features := make([]int32, shape.Rows())
	for i := range features {
		features[i] = int32(i)
	}
	for _, v := range change {
		if err := b.AddTerms(features, &tally.Terms{LossFull: 1 << 36, Change: v, First: 1, Second: 1}); err != nil {
			t.Fatal(err)
		}
	}
	p := b.Partial()
	sums := tally.NewAccumulator(shape, tally.Form{Path: true})
	if err := sums.Merge(p); err != nil {
		t.Fatal(err)
	}
	return sums
}

func onecolumn(features int) *model.Architecture {
	return &model.Architecture{Kind: model.FM, FieldDims: []int{features}, Dim: 1}
}

// A round drops the fifth with the lowest D/(2*eta) - G, and the last rounds' scores order the rest.
func TestCut(t *testing.T) {
	a := onecolumn(10)
	p := New(a, loss.Logistic, 1, 1)
	if n := Rounds(a, .36); n != 2 {
		t.Errorf("%d rounds, expected 2: they drop 2 and 2 of 10 entries", n)
	}
	change := [][]float64{{.9, -.1, .2, .3, -.2, .5, .6, .7, .8, .4}}
	weights := make([]float32, 10)
	p.Cut(measured(t, a.Shape(), p.Mask(), change), loss.Uncalibrated, weights)
	steep := 1 / (2 * eta) // all entries are left
	key := func(v float64) float64 { return steep*v*v - v }
	order := []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	slices.SortFunc(order, func(i, j int32) int { return int(math.Copysign(1, key(change[0][i])-key(change[0][j]))) })
	ranks := p.Ranks(weights)
	for rank, i := range order {
		if ranks[i] != int32(rank) {
			t.Errorf("entry %d has the rank %d, expected %d", i, ranks[i], rank)
		}
		if p.Mask().Dropped(int(i)) != (rank < 2) {
			t.Errorf("entry %d of rank %d: dropped %t", i, rank, rank >= 2)
		}
	}
	lost := change[0][order[0]] - change[0][order[0]]*change[0][order[0]]/2 + change[0][order[1]] - change[0][order[1]]*change[0][order[1]]/2
	if got := p.Fall(); math.Abs(got-lost) > 1e-9 {
		t.Errorf("the terms predict a fall by %v, expected %v", got, lost)
	}
	want := Round{Rows: 1, Kept: 10, Loss: 1, Calibration: loss.Uncalibrated}
	if p.Reach() != .2 || len(p.Rounds) != 1 || p.Rounds[0] != want {
		t.Errorf("reach %v after the rounds %+v, expected .2 and %+v", p.Reach(), p.Rounds, want)
	}
}

// Entries only lose their place to others that are dropped earlier: the ranks of dropped entries stay.
// Pad rows come last, and every entry has its own rank.
func TestRanksStay(t *testing.T) {
	a := &model.Architecture{
		Kind: model.Graph, FieldDims: []int{30, 20}, Tables: []model.Table{{Name: "x", Rows: 30, Dim: 3}, {Name: "z", Rows: 20, Dim: 2}},
		LookUps: []model.LookUp{{Field: 0, Table: 0}, {Field: 1, Table: 1}}, Lists: []model.List{{Field: 0, Length: 2, Pad: 4}},
	}
	r := rand.New(rand.NewPCG(1, 2))
	p, shape := New(a, loss.Logistic, 5, 1), a.Shape()
	weights := make([]float32, a.Parameters())
	for i := range weights {
		weights[i] = float32(r.NormFloat64())
	}
	before := make([]int32, a.Parameters())
	for round := range Rounds(a, .95) {
		change := make([][]float64, 5)
		for k := range change {
			change[k] = make([]float64, a.Parameters())
			for i := range change[k] {
				if change[k][i] = r.NormFloat64(); p.Mask().Dropped(i) {
					change[k][i] = 0
				}
			}
		}
		mask := p.Mask()
		p.Cut(measured(t, shape, mask, change), loss.Uncalibrated, weights)
		ranks := p.Ranks(weights)
		for i, rank := range ranks {
			if mask.Dropped(i) && rank != before[i] {
				t.Fatalf("round %d: entry %d has the rank %d, and had %d", round, i, rank, before[i])
			}
		}
		sorted := slices.Sorted(slices.Values(ranks))
		for i, rank := range sorted {
			if rank != int32(i) {
				t.Fatalf("round %d: no entry has the rank %d", round, i)
			}
		}
		for i := 12; i < 15; i++ { // row 4 of the first table
			if int(ranks[i]) != a.Parameters()-15+i {
				t.Fatalf("round %d: entry %d of the pad row has the rank %d", round, i, ranks[i])
			}
		}
		before = ranks
	}
	if p.Reach() < .95 {
		t.Errorf("%d rounds reach the sparsity %v, expected .95", len(p.Rounds), p.Reach())
	}

	var stored bytes.Buffer
	if err := p.Write(&stored); err != nil {
		t.Fatal(err)
	}
	data := bytes.Clone(stored.Bytes())
	again := New(a, loss.Logistic, 5, 1)
	if err := again.Read(&stored, p.Rounds); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, p) {
		t.Error("the state that was read differs from the one that was written")
	}
	for at := 0; at < len(data); at += 8 { // any word that is replaced by -2 is noticed
		bad := bytes.Clone(data)
		for k := range 8 {
			bad[at+k] = 0xff
		}
		bad[at] = 0xfe
		if err := New(a, loss.Logistic, 5, 1).Read(bytes.NewReader(bad), p.Rounds); !fault.IsInput(err) {
			t.Fatalf("word %d is -2: error %v, expected bad input", at/8, err)
		}
	}
	if err := New(a, loss.Logistic, 5, 1).Read(bytes.NewReader(data[:len(data)-8]), p.Rounds); !fault.IsInput(err) {
		t.Errorf("a state that ends early: error %v, expected bad input", err)
	}
	if err := New(a, loss.Logistic, 5, 1).Read(bytes.NewReader(data), p.Rounds[1:]); !fault.IsInput(err) {
		t.Errorf("a state with too few rounds: error %v, expected bad input", err)
	}
}

package path

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
	"shaver/internal/value/tallyio"
)

// walk is a path whose terms are in one range.
type walk struct {
	*Path
	terms *Terms
}

func newWalk(a *model.Architecture, to float64, kind loss.Kind, rows int64, by estimator.Weights, weights []float32) *walk {
	return &walk{New(a, to, kind, rows, by), NewTerms(a.Shape(), tally.Form{Path: true, Weighted: by.Rows > 0}, a.FixedRows(), weights)}
}

// round begins and ends a round with the partial of its rows.
func (w *walk) round(t *testing.T, p *tally.Partial) {
	t.Helper()
	w.terms.Begin(len(w.Rounds), w.Unmeasured(), w.Fade())
	if err := w.terms.Sums.Merge(p); err != nil {
		t.Fatal(err)
	}
	sums := w.terms.Sums.Summary()
	w.terms.End(w.Passes(sums))
	if err := w.End(sums, loss.Uncalibrated, w.terms.Order); err != nil {
		t.Fatal(err)
	}
}

func (w *walk) ranks(t *testing.T) []int32 {
	t.Helper()
	w.terms.Begin(len(w.Rounds)-1, w.Mask(), Fade{})
	ranks, err := w.Ranks(w.terms.Order)
	if err != nil {
		t.Fatal(err)
	}
	return ranks
}

// again returns what is read of what w writes.
func (w *walk) again(t *testing.T, fresh *walk) *walk {
	t.Helper()
	var stored bytes.Buffer
	if err := errors.Join(w.Write(&stored), w.terms.Write(&stored)); err != nil {
		t.Fatal(err)
	}
	h := tallyio.HeaderOf(w.terms.Sums)
	if err := errors.Join(fresh.Read(&stored, w.Rounds), fresh.terms.Read(&stored, &h, w.terms.Faded()), tallyio.ReadEnd(&stored)); err != nil {
		t.Fatal(err)
	}
	return fresh
}

// measured returns the terms that rows give at tables of one column, with weights of 1. Row r changes
// the logit by change[r][i] through entry i, and has the derivatives 1 and 1.
func measured(t *testing.T, shape layout.Shape, dropped layout.Mask, change [][]float64) *tally.Partial {
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
	return b.Partial()
}

func onecolumn(features int) *model.Architecture {
	return &model.Architecture{Kind: model.FM, FieldDims: []int{features}, Dim: 1}
}

// once are the weights of rows that all count once.
var once estimator.Weights

// A round drops the fifth with the lowest D/(2*eta) - G, and the last rounds' scores order the rest.
func TestCut(t *testing.T) {
	a := onecolumn(10)
	weights := make([]float32, 10)
	p := newWalk(a, .36, loss.Logistic, 1, once, weights)
	if drops, adds := Rounds(a, .36); drops != 2 || adds != 0 {
		t.Errorf("%d and %d rounds, expected 2 that drop 2 and 2 of 10 entries", drops, adds)
	}
	change := [][]float64{{.9, -.1, .2, .3, -.2, .5, .6, .7, .8, .4}}
	p.round(t, measured(t, a.Shape(), p.Mask(), change))
	steep := 1 / (2 * eta) // all entries are left
	key := func(v float64) float64 { return steep*v*v - v }
	order := []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	slices.SortFunc(order, func(i, j int32) int { return int(math.Copysign(1, key(change[0][i])-key(change[0][j]))) })
	ranks := p.ranks(t)
	for rank, i := range order {
		if ranks[i] != int32(rank) {
			t.Errorf("entry %d has the rank %d, expected %d", i, ranks[i], rank)
		}
		if p.Mask().Dropped(int(i)) != (rank < 2) {
			t.Errorf("entry %d of rank %d: dropped %t", i, rank, rank >= 2)
		}
	}
	added := slices.Clone(order) // in the order in which a round would add them
	slices.SortFunc(added, func(i, j int32) int {
		return cmp.Compare(steep*change[0][i]*change[0][i]+change[0][i], steep*change[0][j]*change[0][j]+change[0][j])
	})
	p.terms.Begin(0, layout.NewMask(10), Fade{})
	if got := p.terms.Lowest(Rank{steep, -1}, 0, 10); !slices.Equal(got, order) {
		t.Errorf("the order of drops is %v, expected %v", got, order)
	}
	if got := p.terms.Lowest(Rank{steep, 1}, 0, 10); !slices.Equal(got, added) {
		t.Errorf("the order of additions is %v, expected %v", got, added)
	}
	lost := change[0][order[0]] - change[0][order[0]]*change[0][order[0]]/2 + change[0][order[1]] - change[0][order[1]]*change[0][order[1]]/2
	want := Round{Rows: 1, Weight: 1, Kept: 10, Loss: 1, Calibration: loss.Uncalibrated}
	if p.Reach() != .2 || len(p.Rounds) != 1 || p.Rounds[0] != want {
		t.Errorf("reach %v after the rounds %+v, expected .2 and %+v", p.Reach(), p.Rounds, want)
	}
	if got := p.terms.Begin(1, p.Mask(), p.Fade()); math.Abs(got-lost) > 1e-9 {
		t.Errorf("the terms predict a fall by %v, expected %v", got, lost)
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
	shape, weights := a.Shape(), make([]float32, a.Parameters())
	for i := range weights {
		weights[i] = float32(r.NormFloat64())
	}
	fresh := func() *walk { return newWalk(a, .95, loss.Logistic, 5, once, weights) }
	p, before := fresh(), make([]int32, a.Parameters())
	drops, _ := Rounds(a, .95)
	for round := range drops {
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
		p.round(t, measured(t, shape, mask, change))
		ranks := p.ranks(t)
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

	again := p.again(t, fresh())
	if !reflect.DeepEqual(again.Path, p.Path) {
		t.Error("the state that was read differs from the one that was written")
	}
	again.terms.Begin(drops, p.Unmeasured(), p.Fade())
	p.terms.Begin(drops, p.Unmeasured(), p.Fade())
	if again.terms.lowest, p.terms.lowest = nil, nil; !reflect.DeepEqual(again.terms, p.terms) {
		t.Error("the terms that were read differ from those that were written")
	}
	var stored bytes.Buffer
	if err := p.Write(&stored); err != nil {
		t.Fatal(err)
	}
	data := stored.Bytes()
	for at := 0; at < len(data); at += 4 { // any word that is replaced by -2 is noticed
		bad := bytes.Clone(data)
		copy(bad[at:], "\xfe\xff\xff\xff")
		if at < 8*shape.Rows() {
			copy(bad[at/8*8+4:], "\xff\xff\xff\xff")
		}
		if err := fresh().Read(bytes.NewReader(bad), p.Rounds); !fault.IsInput(err) {
			t.Fatalf("word %d is -2: error %v, expected bad input", at/4, err)
		}
	}
	if err := fresh().Read(bytes.NewReader(data[:len(data)-4]), p.Rounds); !fault.IsInput(err) {
		t.Errorf("a state that ends early: error %v, expected bad input", err)
	}
	if err := fresh().Read(bytes.NewReader(data), p.Rounds[1:]); !fault.IsInput(err) {
		t.Errorf("a state with too few rounds: error %v, expected bad input", err)
	}
}

// After the drops, the path adds the entries between the seed and the turn: in each round those with the lowest D/(2*eta) + G, until the
// tables keep a fifth more. The last one that is added is dropped first. All others keep their ranks.
func TestAdd(t *testing.T) {
	const n = 3000
	a, r := onecolumn(n), rand.New(rand.NewPCG(3, 4))
	drops, adds := Rounds(a, .999)
	fresh := func() *walk { return newWalk(a, .999, loss.Logistic, 2, once, make([]float32, n)) }
	p := fresh()
	round := func() (first, second []float64) {
		unmeasured, change := p.Unmeasured(), [][]float64{make([]float64, n), make([]float64, n)}
		first, second = make([]float64, n), make([]float64, n)
		for k := range change {
			for i := range change[k] {
				if !unmeasured.Dropped(i) {
					v := math.Round(r.NormFloat64()) // many entries have equal keys
					change[k][i] = v
					first[i], second[i] = first[i]+v, second[i]+v*v
				}
			}
		}
		p.round(t, measured(t, a.Shape(), unmeasured, change))
		return first, second
	}
	for range drops {
		round()
	}
	before := p.ranks(t)
	entries := make([]int, n) // by rank
	for i, rank := range before {
		entries[rank] = i
	}
	kept, may := n*6/1000, slices.Clone(entries[n-n*45/1000:n-n*6/1000]) // those that may be added, in their order
	var added []int
	first, second, weight := make([]float64, n), make([]float64, n), make([]float64, n)
	for range adds {
		if dropped := p.Mask(); dropped.Count(0, n) != n-kept {
			t.Fatalf("the tables keep %d entries, expected %d", n-dropped.Count(0, n), kept)
		}
		for i := range n {
			inTables, may := !p.Mask().Dropped(i), slices.Contains(may, i)
			if inTables != (before[i] >= int32(n-n*6/1000) || slices.Contains(added, i)) || p.Unmeasured().Dropped(i) == may {
				t.Fatalf("%d entries are kept: entry %d is in the tables: %t, and is measured: %t", kept, i, inTables, !may)
			}
		}
		g, d := round()
		for i := range n {
			keep := 1 / (1 + second[i]/memory)
			first[i], second[i], weight[i] = keep*first[i]+g[i], keep*second[i]+d[i], keep*weight[i]+1
		}
		steep := 1 / (2 * min(mostEta, eta/math.Sqrt(float64(kept)/n)))
		key := func(i int) float64 { return (steep*second[i] + first[i]) / weight[i] }
		sorted := slices.Clone(may)
		slices.Reverse(sorted)
		slices.SortStableFunc(sorted, func(i, j int) int { return cmp.Compare(key(i), key(j)) })
		next := min(len(may), (kept+3)/4)
		next = min(next, n*45/1000-kept)
		for _, i := range sorted[:next] {
			added, may = append(added, i), slices.DeleteFunc(may, func(k int) bool { return k == i })
		}
		kept += next
	}
	slices.Reverse(added)
	copy(entries[n-n*45/1000:], added)
	for i, rank := range p.ranks(t) {
		if entries[rank] != i {
			t.Fatalf("rank %d is that of entry %d, expected %d", rank, i, entries[rank])
		}
	}
	if kept != n*45/1000 || len(may) != 0 || p.Reach() < .999 {
		t.Errorf("%d entries are kept in the end, %d were not added, and the reach is %v", kept, len(may), p.Reach())
	}
	if again := p.again(t, fresh()); !slices.Equal(again.ranks(t), p.ranks(t)) || !bytes.Equal(again.Mask(), p.Mask()) || !bytes.Equal(again.Unmeasured(), p.Unmeasured()) {
		t.Error("the state that was read differs from the one that was written")
	}
}

// Before a round adds its terms, those of the rounds before are multiplied by memory / (memory + D). Memory is 10; twice the mean loss times as much with the
// squared loss, and the ratio of the weights' squares to the weights times as much if rows have weights.
func TestFade(t *testing.T) {
	const features, rows = 12, 30
	a := onecolumn(features)
	for name, c := range map[string]struct {
		kind loss.Kind
		by   estimator.Weights
	}{"clicks": {loss.Logistic, once}, "numbers": {loss.Squared, once}, "weights": {loss.Logistic, estimator.Weights{Rows: 9}}} {
		p, r := newWalk(a, .6, c.kind, rows, c.by, make([]float32, features)), rand.New(rand.NewPCG(1, 2))
		first, second, passes := make([]float64, features), make([]float64, features), make([]float64, features)
		remember := 0.0
		for n := range 3 {
			for i := range features {
				keep := remember / (remember + second[i])
				if n == 0 {
					keep = 0
				}
				first[i], second[i], passes[i] = keep*first[i], keep*second[i], keep*passes[i]
			}
			b := tally.NewTermsBuilder(a.Shape(), p.Mask())
			b.Weigh(c.by)
			sum, squares, lost := 0., 0., 0.
			for row := range rows {
				i, weight, change, slope := r.IntN(features), 1., 5*r.NormFloat64(), r.NormFloat64()
				if c.by.Rows > 0 {
					weight = float64(1 + row%9)
				}
				if p.Mask().Dropped(i) {
					change = 0
				}
				terms := tally.Terms{LossFull: int64(1+n) << 36, Change: []float64{change}, First: slope, Second: .25}
				if c.by.Rows > 0 {
					terms.Weight = int64(weight)
				}
				if err := b.AddTerms([]int32{int32(i)}, &terms); err != nil {
					t.Fatal(err)
				}
				first[i], second[i] = first[i]+weight*change*slope, second[i]+weight*.25*change*change
				sum, squares, lost = sum+weight, squares+weight*weight, lost+weight*float64(1+n)
			}
			for i := range passes {
				passes[i] += sum / rows
			}
			if n == 0 && c.kind == loss.Squared {
				remember = 10 * 2 * lost / sum
			} else if c.kind != loss.Squared {
				remember = 10
			}
			if c.by.Rows > 0 {
				remember = 10 * squares / sum
			}
			p.round(t, b.Partial())
			for i := range features {
				g, d := p.terms.Sums.Term(i)
				d *= p.Fade().Unit
				for _, x := range [][2]float64{{g, first[i]}, {d, second[i]}, {float64(p.terms.passes[i]), passes[i]}} {
					if math.Abs(x[0]-x[1]) > 1e-6*(1+math.Abs(x[1])) {
						t.Fatalf("%s, round %d: entry %d has G, D or T %v, expected %v", name, n, i, x[0], x[1])
					}
				}
			}
		}
	}
}

// The unit of weights of rows does not matter: with weights that are 64 times as large, all sums of a path are, and its order is the same.
func TestUnitOfWeights(t *testing.T) {
	const features, unit = 12, 64
	a := onecolumn(features)
	var paths [2]*walk
	for k, times := range []int64{1, unit} {
		by := estimator.Weights{Rows: 9 * times}
		p := newWalk(a, .6, loss.Logistic, 30, by, make([]float32, features))
		r := rand.New(rand.NewPCG(1, 2))
		for range 4 {
			b := tally.NewTermsBuilder(a.Shape(), p.Mask())
			b.Weigh(by)
			for row := range int64(30) {
				terms := tally.Terms{LossFull: 1 << 36, Weight: times * (1 + row%9), Change: []float64{r.NormFloat64()}, First: r.NormFloat64(), Second: .25}
				if err := b.AddTerms([]int32{int32(r.IntN(features))}, &terms); err != nil {
					t.Fatal(err)
				}
			}
			p.round(t, b.Partial())
		}
		paths[k] = p
	}
	one, other := paths[0], paths[1]
	if !slices.Equal(one.rank, other.rank) || other.Rounds[0].Weight != unit*one.Rounds[0].Weight {
		t.Errorf("the ranks are %v and %v, the weights %d and %d", one.rank, other.rank, one.Rounds[0].Weight, other.Rounds[0].Weight)
	}
	for i := range features {
		g, d := one.terms.Sums.Term(i)
		wideG, wideD := other.terms.Sums.Term(i)
		d, wideD = one.Fade().Unit*d, other.Fade().Unit*wideD
		for _, x := range [][2]float64{{g, wideG}, {d, wideD}, {float64(one.terms.passes[i]), float64(other.terms.passes[i])}} {
			if off := math.Abs(unit*x[0] - x[1]); off > 1e-6*(1+math.Abs(x[1])) {
				t.Errorf("entry %d has the sums %v, expected a ratio of %d", i, x, unit)
			}
		}
	}
}

// A round is calibrated on 4096 rows, on a 64th of the rows if that is more, and never on more rows than there are.
func TestCalibrationRows(t *testing.T) {
	for rows, want := range map[int64]int64{0: 0, 1: 1, 4095: 4095, 4096: 4096, 5000: 4096, 64 * 4096: 4096, 64*4096 + 63: 4096, 64 * 5000: 5000, 1 << 40: 1 << 34} {
		if got := CalibrationRows(rows); got != want {
			t.Errorf("%d of %d rows, expected %d", got, rows, want)
		}
	}
}

// Whenever it is asked, Lowest returns the lowest entries by the terms as they then are, in a round and after it.
func TestLowestOfTerms(t *testing.T) {
	const n = 60
	a := onecolumn(n)
	weights := make([]float32, n) // equal keys are in the order of positions
	p, r, changed := newWalk(a, .9, loss.Logistic, 1, once, weights), rand.New(rand.NewPCG(3, 4)), 0
	for round := range 3 {
		var left []int32
		unmeasured := p.Unmeasured()
		for i := range int32(n) {
			if !unmeasured.Dropped(int(i)) {
				left = append(left, i)
			}
		}
		rank := Rank{Steep: 1 + r.Float64(), Sign: -1}
		p.terms.Begin(round, unmeasured, p.Fade())
		var before []int32
		for _, over := range []bool{false, true} {
			if over {
				change := make([]float64, n)
				for _, i := range left {
					change[i] = r.NormFloat64()
				}
				if err := p.terms.Sums.Merge(measured(t, a.Shape(), unmeasured, [][]float64{change})); err != nil {
					t.Fatal(err)
				}
				p.terms.End(1)
			}
			for _, by := range []Rank{rank, {Steep: 1, Sign: 1}, rank} {
				want := slices.Clone(left)
				slices.SortStableFunc(want, func(i, j int32) int {
					return cmp.Compare(keyOf(p, by, int(i)), keyOf(p, by, int(j)))
				})
				if got := p.terms.Lowest(by, 2, 9); !slices.Equal(got, want[2:9]) {
					t.Fatalf("round %d, over %t: %v, expected %v", round, over, got, want[2:9])
				}
				if got := p.terms.Lowest(by, len(want)-1, len(want)+5); !slices.Equal(got, want[len(want)-1:]) {
					t.Fatalf("round %d, over %t: the last is %v, expected %v", round, over, got, want[len(want)-1:])
				}
				if over && before != nil && !slices.Equal(want, before) {
					changed++
				}
				if before = want; over {
					before = nil
				}
			}
		}
		if err := p.End(p.terms.Sums.Summary(), loss.Uncalibrated, p.terms.Order); err != nil {
			t.Fatal(err)
		}
	}
	if changed == 0 {
		t.Error("no round changes the order")
	}
}

// keyOf returns (Steep*D + Sign*G) / T of an entry, which no round has measured if T is 0.
func keyOf(p *walk, by Rank, i int) float64 {
	g, d := p.terms.Sums.Term(i)
	return (float64(by.Steep*d) + float64(by.Sign*g)) / max(float64(p.terms.passes[i]), 1e-300)
}

// A round that adds measures at most MostAdded of the entries, and the first one nearly as many.
func TestMostAdded(t *testing.T) {
	const n = 100_000
	c := newCourse(onecolumn(n), .999)
	for round := c.drops; round < len(c.kept); round++ {
		measured := float64(c.most()-c.at(round)) / n
		if measured > MostAdded+1./n || round == c.drops && measured < MostAdded-1./n {
			t.Errorf("round %d measures %g of the entries to add some, expected at most %g", round, measured, MostAdded)
		}
	}
	if len(c.kept) == c.drops {
		t.Error("no round adds entries")
	}
}

// An order that has an entry which a round cannot drop or add ends the path with an error.
func TestOrdersOfOthers(t *testing.T) {
	const n = 1000
	a := onecolumn(n)
	p := newWalk(a, .999, loss.Logistic, 1, once, make([]float32, n))
	drops, adds := Rounds(a, .999)
	end := func(entry int32) error {
		again := New(a, .999, loss.Logistic, 1, once)
		var stored bytes.Buffer
		if err := errors.Join(p.Write(&stored), again.Read(&stored, p.Rounds)); err != nil {
			t.Fatal(err)
		}
		return again.End(tally.NewAccumulator(a.Shape(), tally.Form{Path: true}).Summary(), loss.Uncalibrated, func(Rank) Next {
			return func() (int32, float64, error) { return entry, 0, nil }
		})
	}
	for round := range drops + adds {
		before := p.Mask()
		bad := []int32{-1, n, math.MaxInt32, math.MinInt32}
		unmeasured := p.Unmeasured()
		from, to := p.waiting() // the ranks next to those that may be added
		for i := range n {
			if unmeasured.Dropped(i) && (i%97 == 0 || p.rank[i] == from-1 || p.rank[i] == to) {
				bad = append(bad, int32(i))
			}
		}
		for _, entry := range bad {
			if err := end(entry); err == nil {
				t.Fatalf("round %d: entry %d is taken, which may be neither dropped nor added; in the tables: %t", round, entry, entry >= 0 && entry < n && !before.Dropped(int(entry)))
			}
		}
		change := [][]float64{make([]float64, n)}
		for i := range n {
			if !unmeasured.Dropped(i) {
				change[0][i] = float64(i%17) / 8
			}
		}
		p.round(t, measured(t, a.Shape(), unmeasured, change))
	}
}

package mask

import (
	"math"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// entry says where an entry of a model with look-ups belongs.
type entry struct {
	field, lookUp, feature, player int // feature is a global id
	row                            int // row of the tables
}

// entriesOf lists the entries of a, table by table, as docs/internals/design.md numbers them.
func entriesOf(a *model.Architecture) (all []entry) {
	row := 0
	for i, t := range a.Tables {
		for r := range t.Rows {
			for c := range t.Dim {
				player := 0
				for k, l := range a.LookUps {
					if id := r - l.Offset; l.Table == i && id >= 0 && id < a.FieldDims[l.Field] {
						all = append(all, entry{l.Field, k, int(a.Offsets()[l.Field]) + id, player + c, row})
					}
					player += a.Tables[l.Table].Dim
				}
			}
			row++
		}
	}
	return all
}

// Every function of the package finds the entries of look-ups where they are.
func TestLookUps(t *testing.T) {
	a := modeltest.LookUps()
	entries := entriesOf(&a)
	n := len(entries)
	if n != a.Parameters() {
		t.Fatalf("%d entries, expected %d", n, a.Parameters())
	}
	table, mask, base, counts := make([]float32, n), make([]bool, n), a.Zero(), make([]int64, a.Features())
	for i := range table {
		table[i], mask[i] = float32(i*i%17), i%3 != 0
	}
	values := base.Values
	for p := range values {
		values[p] = 100 + float32(p)
	}
	for f := range counts {
		counts[f] = int64(f * f)
	}
	pruned, scores := Apply(&a, table, mask, base), Frequency(&a, table, base, counts)
	empty := map[int]bool{}
	for i, e := range entries {
		want := table[i]
		if mask[i] {
			want = values[e.player]
		}
		if pruned[i] != want {
			t.Errorf("entry %d becomes %v, expected %v", i, pruned[i], want)
		}
		if want := math.Abs(float64(table[i]-values[e.player])) * float64(e.feature); math.Abs(scores[i]-want) > 1e-9 {
			t.Errorf("entry %d has the score %v, expected %v", i, scores[i], want)
		}
		if _, ok := empty[e.feature]; !ok {
			empty[e.feature] = true
		}
		empty[e.feature] = empty[e.feature] && mask[i]
	}
	dropped := 0
	for _, gone := range empty {
		if gone {
			dropped++
		}
	}
	if got := EmptyFeatures(&a, mask); got != dropped || got == 0 {
		t.Errorf("%d features without kept entries, expected %d", got, dropped)
	}
	if got := Parameters(&a, 20, &base); got != n-20+9 {
		t.Errorf("%d parameters with the codebook, expected %d", got, n-20+9)
	}
}

// Bins counts the entries of a feature in all tables of its field, and so does AllBins.
func TestBinsOfLookUps(t *testing.T) {
	a := modeltest.LookUps()
	entries := entriesOf(&a)
	mask, features := make([]bool, len(entries)), []int64{3, 1, 7, 9, 8, 2, 2, 5, 4}
	kept := make([]int64, a.Features())
	for i, e := range entries {
		if mask[i] = i%4 == 1; !mask[i] {
			kept[e.feature]++
		}
	}
	counts := a.RowCounts(features)
	bins := Bins(&a, counts, mask, 9)
	for j, order := range [][]int{{1, 0}, {2, 4, 3}, {5, 6, 8, 7}} { // features, rarest first
		for k, f := range order {
			if want := (Bin{1, features[f], features[f], kept[f], float64(kept[f])}); bins[j][k] != want {
				t.Errorf("bin %d of field %d is %+v, expected %+v", k, j, bins[j][k], want)
			}
		}
	}
	all, sum := AllBins(&a, counts, mask, 2), int64(0)
	for _, n := range kept {
		sum += n
	}
	if len(all) != 2 || all[0].Features != 4 || all[1].Features != 5 || all[0].Most > all[1].Least || all[0].Kept+all[1].Kept != sum {
		t.Errorf("bins of all features %+v, expected %d kept entries", all, sum)
	}
}

// A grid per field is a grid per look-up, and a grid per row has the width of its table.
func TestQuantizeLookUps(t *testing.T) {
	a := modeltest.LookUps()
	entries := entriesOf(&a)
	table := make([]float32, len(entries))
	for i, e := range entries {
		table[i] = float32(math.Pow(10, float64(e.lookUp))) * float32(i%7+e.row)
	}
	for per, group := range map[string]func(entry) int{PerField: func(e entry) int { return e.lookUp }, PerRow: func(e entry) int { return e.row }} {
		low, high := map[int]float32{}, map[int]float32{}
		for i, e := range entries {
			g := group(e)
			if _, ok := low[g]; !ok {
				low[g], high[g] = table[i], table[i]
			}
			low[g], high[g] = min(low[g], table[i]), max(high[g], table[i])
		}
		for i, v := range Quantize(&a, table, 4, per) {
			g := group(entries[i])
			if step := (high[g] - low[g]) / 15; math.Abs(float64(v-table[i])) > float64(step)/2*(1+1e-5)+1e-6*float64(high[g]) {
				t.Errorf("a grid per %s, entry %d: %v becomes %v, expected at most half a step of %v", per, i, table[i], v, step)
			}
		}
	}
}

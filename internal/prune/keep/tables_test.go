package keep

import (
	"math/bits"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/mask"
)

// Of all masks that drop a number of entries, and with which each table keeps as much as it must and may, none drops entries
// of a smaller sum of worths. No mask drops a number outside those that Apply returns.
func TestTables(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{3, 2, 4}, Dim: 1}
	names, first := []string{"x", "y", "z"}, []int{0, 3, 5, 9}
	rapid.Check(t, func(t *rapid.T) {
		worths := rapid.SliceOfN(rapid.Float64Range(0, 1), 9, 9).Draw(t, "worths")
		order, err := mask.Order(mask.Abs, worths, make([]float32, 9))
		if err != nil {
			t.Fatal(err)
		}
		k, low, high := Rules{Minimum: .5}, []int{0, 0, 0}, []int{3, 2, 4} // the minimum is not one of fields with amounts of their own
		for j, name := range names {
			n, units := high[j], []string{"", portion, mask.Kept}
			b := table{name: name, least: amount{unit: rapid.SampledFrom(units).Draw(t, "unit")}, most: amount{unit: rapid.SampledFrom(units).Draw(t, "unit")}}
			least := rapid.IntRange(0, n).Draw(t, "least")
			most := rapid.IntRange(least, n).Draw(t, "most")
			if b.least.unit != "" {
				b.least.number, low[j] = map[string]float64{portion: (float64(least) - .5) / float64(n), mask.Kept: float64(least)}[b.least.unit], least
				b.least.number = max(b.least.number, 0)
			}
			if b.most.unit != "" {
				b.most.number, high[j] = map[string]float64{portion: (float64(most) + .5) / float64(n), mask.Kept: float64(most)}[b.most.unit], most
				b.most.number = min(b.most.number, map[bool]float64{true: 1, false: 99}[b.most.unit == portion])
			}
			k.Tables = append(k.Tables, b)
		}
		got, least, most, err := k.Apply(a, names, compact.Float32, order)
		if err != nil {
			t.Fatal(err)
		}
		best := map[int]float64{}
		for dropped := range 1 << 9 { // of dropped entries
			worth, allowed := 0., true
			for j := range names {
				kept := first[j+1] - first[j] - bits.OnesCount(uint(dropped>>first[j]&(1<<(first[j+1]-first[j])-1)))
				allowed = allowed && low[j] <= kept && kept <= high[j]
			}
			for i, w := range worths {
				worth += float64(dropped>>i&1) * w
			}
			n := bits.OnesCount(uint(dropped))
			if other, ok := best[n]; allowed && (!ok || worth < other) {
				best[n] = worth
			}
		}
		for n := range 10 {
			want, possible := best[n]
			if possible != (least <= n && n <= most) {
				t.Fatalf("%d to %d entries may be dropped, but with %d that is %t", least, most, n, possible)
			}
			if !possible {
				continue
			}
			worth := 0.
			for i, gone := range mask.Of(got, n) {
				if gone {
					worth += worths[i]
				}
			}
			if worth > want+1e-12 {
				t.Fatalf("%d dropped entries are worth %v, expected %v", n, worth, want)
			}
		}
	})
}

// A name is that of a field or of a table. What cannot be met is refused by name.
func TestNamesOfTables(t *testing.T) {
	a, names := modeltest.LookUps(), []string{"x", "y", "z"}
	order := make([]int32, a.Parameters())
	for i := range order {
		order[i] = int32(i)
	}
	shared := a.Tables[a.LookUps[0].Table].Name
	for _, c := range []struct {
		list, want string // part of the error
		keep       Rules
	}{
		{"y=..5", "", Rules{}},
		{shared + "=..5", "", Rules{}},
		{"w=..5", "the fields are x, y, z", Rules{}},
		{"y=9..5", `"y" keeps at least 9 and at most 5`, Rules{}},
		{"y=99..", `"y" keeps at least 99 and at most 15`, Rules{}},
		{"y=..5", `"y" and "y" have rows in common`, Rules{Fields: []string{"y"}}},
		{"y=..5,y=1..", `"y" and "y" have rows in common`, Rules{}},
		{"y=..1KiB", "expected portions or numbers of entries, not bytes", Rules{}},
	} {
		k, values := c.keep, compact.Float32
		if strings.Contains(c.list, "KiB") {
			values = compact.Mixed
		}
		if err := k.Tables.Set(c.list); err != nil {
			t.Fatal(err)
		}
		got, least, _, err := k.Apply(&a, names, values, order)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, expected %q", c.list, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var want []int32
		for _, i := range order {
			if s := spanOf(&a, i); names[s.Field] == k.Tables[0].name || a.Tables[s.Table].Name == k.Tables[0].name {
				want = append(want, i)
			}
		}
		if want = want[:len(want)-5]; !slices.Equal(got[:least], want) {
			t.Errorf("%s: the entries %v go, expected %v", c.list, got[:least], want)
		}
	}
}

// A portion has a point, a size has a unit, and a number of entries has neither.
func TestTablesOfAList(t *testing.T) {
	var got Tables
	if err := got.Set("a=.2..,b=c=..50MiB,d=.1...5,e=1.0..1"); err != nil {
		t.Fatal(err)
	}
	want := Tables{
		{"a", amount{portion, .2}, amount{}}, {"b=c", amount{}, amount{mask.Bytes, 50 << 20}}, {"d", amount{portion, .1}, amount{portion, .5}},
		{"e", amount{portion, 1}, amount{mask.Kept, 1}},
	}
	if !slices.Equal(got, want) {
		t.Errorf("tables %v, expected %v", got, want)
	}
	for _, list := range []string{"", "a", "a=", "a=..", "=1..", "a=5", "a=1.5..", "a=-1..", "a=..x", "a=1KiB..", "a=..MiB", "a=..-1KiB", "a=..9999999TiB", "a=..NaN", "a=..1e2.", "a=..1e99", "a=1..,"} {
		if err := new(Tables).Set(list); err == nil {
			t.Errorf("Set accepts %q", list)
		}
	}
}

// However many entries go, a table has at most its bytes, although one that lacks a few entries is larger than the whole one.
func TestBytesOfTables(t *testing.T) {
	const rows, dim = 64, 16 // 4096 bytes, and up to 136 of positions
	a := &model.Architecture{FieldDims: []int{rows, 9}, Dim: dim}
	order := make([]int32, a.Parameters())
	for i := range order {
		order[i] = int32(i * 5 % len(order))
	}
	for _, list := range []string{"x=..4KiB", "x=..3KiB", "x=..5KiB"} {
		var k Rules
		if err := k.Tables.Set(list); err != nil {
			t.Fatal(err)
		}
		got, least, most, err := k.Apply(a, []string{"x", "y"}, compact.Float32, order)
		if err != nil {
			t.Fatal(err)
		}
		for drop := least; drop <= most; drop++ {
			f := compact.Plan(a, mask.Of(got, drop))[0]
			r, c := f.Sizes(rows, dim)
			if size := r + c + 4*f.Kept; float64(size) > k.Tables[0].most.number {
				t.Fatalf("%s: with %d dropped entries the table has %d bytes", list, drop, size)
			}
		}
		if list == "x=..5KiB" && least > 0 {
			t.Errorf("%s: %d entries go", list, least)
		}
	}
}

package composed

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"shaver/internal/num/random"
)

// filled returns a table with random values.
func filled(s Shape, seed uint64) *Table {
	t := New(s)
	for k := range t.Tensors {
		fill(t.Tensors[k].Values, seed, uint64(k))
	}
	return t
}

func fill(values []float32, seed, k uint64) {
	stream := random.At(seed, random.Initial, k, 0)
	for i := range values {
		values[i] = float32(stream.Normal())
	}
}

func all(t *Table) []float32 {
	e := make([]float32, t.Shape.Features*t.Shape.Dim)
	t.All(e)
	return e
}

var schemes = map[string]Shape{
	"qr":       ForDivider(61, 5, 7),
	"tt":       ForRanks(61, 6, []int{3, 4}, 0),
	"tt2":      ForRanks(61, 6, []int{70}, 0),
	"tt4":      ForRanks(61, 8, []int{3, 4, 40}, 0),
	"tt-wide":  ForRanks(61, 8, []int{5, 75}, 0),
	"tt-cache": ForRanks(61, 6, []int{3, 4}, 4),
	"cerp":     ForBuckets(61, 5, 9),
}

// The pairs of rows that features read differ. Each row of Q serves the divider's number of features,
// and changing one changes exactly their embeddings.
func TestQuotientsAndRemainders(t *testing.T) {
	for _, q := range []int{1, 2, 5, 7, 61, 60} {
		table := filled(ForDivider(61, 3, q), 1)
		seen, quotients := map[[2]int]bool{}, map[int]int{}
		remainders := map[int]int{}
		for f := range 61 {
			at := table.rows(f)
			if seen[at] {
				t.Errorf("divider %d: two features read the rows %v", q, at)
			}
			seen[at] = true
			remainders[at[0]/3]++
			quotients[at[1]/3]++
		}
		for row, n := range quotients {
			if n != q && row != 60/q {
				t.Errorf("divider %d: %d features read row %d of Q", q, n, row)
			}
		}
		for row, n := range remainders {
			if n != 61/q && n != quotient(61, q) {
				t.Errorf("divider %d: %d features read row %d of R", q, n, row)
			}
		}
		before := all(table)
		const k = 0
		table.Tensors[1].Values[k*3] += 1
		for i, x := range all(table) {
			f := i / 3
			if changed := x != before[i]; changed != (i%3 == 0 && f >= k*q && f < (k+1)*q) {
				t.Errorf("divider %d: a change of row %d of Q, entry %d: %v", q, k, i, changed)
			}
		}
	}
}

// QR contains any table if one of its tensors has a row for each feature and the other is 1, and
// each of its tables has rank one in the rows and the columns of a quotient and a remainder.
func TestQuotientRemainderTables(t *testing.T) {
	want := make([]float32, 61*3)
	fill(want, 5, 0)
	for q, whole := range map[int]int{1: 1, 61: 0} { // the tensor with all rows
		table := New(ForDivider(61, 3, q))
		copy(table.Tensors[whole].Values, want)
		for i := range table.Tensors[1-whole].Values {
			table.Tensors[1-whole].Values[i] = 1
		}
		if !slices.Equal(all(table), want) {
			t.Errorf("the divider %d does not reproduce a table", q)
		}
	}
	table := filled(ForDivider(60, 3, 6), 1)
	e := all(table)
	at := func(a, r, c int) float64 { return float64(e[(a*6+r)*3+c]) }
	for a := range 9 {
		for r := range 5 {
			for c := range 3 {
				x, y := at(a, r, c)*at(a+1, r+1, c), at(a, r+1, c)*at(a+1, r, c)
				if math.Abs(x-y) > 1e-6*math.Max(math.Abs(x), 1e-3) {
					t.Errorf("quotients %d and %d, remainders %d and %d, column %d: %v and %v", a, a+1, r, r+1, c, x, y)
				}
			}
		}
	}
}

// A tensor train with full ranks contains any table, to the bit: with two cores, and with three if
// the first two are identities.
func TestFullRankTrains(t *testing.T) {
	want := make([]float32, 4*3*6)
	fill(want, 5, 0)
	// The table as a matrix [p1 q1, p2 q2], in the second core; the first is the identity.
	two := New(Shape{Scheme: TT, Features: 12, Dim: 6, Rows: []int{4, 3}, Columns: []int{2, 3}, Ranks: []int{8}})
	for p := range 4 {
		for q := range 2 {
			two.Tensors[0].Values[(p*2+q)*8+p*2+q] = 1
			for p2 := range 3 {
				for q2 := range 3 {
					two.Tensors[1].Values[(p2*8+p*2+q)*3+q2] = want[(p*3+p2)*6+q*3+q2]
				}
			}
		}
	}
	if !slices.Equal(all(two), want) {
		t.Error("two cores do not reproduce a table")
	}
	// Rows 2, 2, 3 and columns 1, 2, 3: rank 1 numbers (p1, q1), and rank 2 (p1, p2, q1, q2).
	three := New(Shape{Scheme: TT, Features: 12, Dim: 6, Rows: []int{2, 2, 3}, Columns: []int{1, 2, 3}, Ranks: []int{2, 8}})
	for p1 := range 2 {
		three.Tensors[0].Values[p1*2+p1] = 1
		for p2 := range 2 {
			for q2 := range 2 {
				state := (p1*2+p2)*2 + q2
				three.Tensors[1].Values[((p2*2+p1)*2+q2)*8+state] = 1
				for p3 := range 3 {
					for q3 := range 3 {
						three.Tensors[2].Values[(p3*8+state)*3+q3] = want[((p1*2+p2)*3+p3)*6+q2*3+q3]
					}
				}
			}
		}
	}
	if !slices.Equal(all(three), want) {
		t.Error("three cores do not reproduce a table")
	}
}

// trainRow returns the row of a feature of a tensor train in float64, by the sum over all ranks.
func trainRow(t *Table, feature int) []float64 {
	s := &t.Shape
	digits := make([]int, len(s.Rows))
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = feature % s.Rows[i]
		feature /= s.Rows[i]
	}
	row := make([]float64, s.Dim)
	for column := range row {
		rest := column
		q := make([]int, len(digits))
		for i := len(q) - 1; i >= 0; i-- {
			q[i] = rest % s.Columns[i]
			rest /= s.Columns[i]
		}
		state := []float64{1}
		for i, digit := range digits {
			next := make([]float64, s.rank(i+1))
			for r, x := range state {
				for r2 := range next {
					next[r2] += x * float64(t.Tensors[i].Values[((digit*s.rank(i)+r)*s.Columns[i]+q[i])*len(next)+r2])
				}
			}
			state = next
		}
		row[column] = state[0]
	}
	return row
}

// The rows of a tensor train are the products of its matrices. They are the same bits one by one, in
// any order and all at once. Rows of the cores that no feature has are never read.
func TestTrainRows(t *testing.T) {
	for name, s := range schemes {
		if s.Scheme != TT {
			continue
		}
		table := filled(s, 2)
		e, d := all(table), s.Dim
		order := make([]int32, s.Features)
		stream := random.At(3, random.Order, 0, 0)
		stream.Permute(order)
		shuffled := make([]float32, len(e))
		table.Embed(shuffled, order)
		for k, f := range order {
			one, want := make([]float32, d), trainRow(table, int(f))
			table.Embed(one, []int32{f})
			if !slices.Equal(one, e[int(f)*d:][:d]) || !slices.Equal(one, shuffled[k*d:(k+1)*d]) {
				t.Errorf("%s: feature %d has other bits alone", name, f)
			}
			for c, x := range one {
				if math.Abs(float64(x)-want[c]) > 1e-5*(1+math.Abs(want[c])) {
					t.Errorf("%s: feature %d has %v in column %d, expected %v", name, f, x, c, want[c])
				}
			}
		}
	}
	s := Shape{Scheme: TT, Features: 9, Dim: 4, Rows: []int{3, 4}, Columns: []int{2, 2}, Ranks: []int{3}}
	table := filled(s, 2) // features 9 to 11 would read row 2 of core 0 with rows 1 to 3 of core 1
	e := all(table)
	s.Rows = []int{4, 4}
	wider := New(s)
	nan := float32(math.NaN())
	for i := range wider.Tensors[0].Values {
		wider.Tensors[0].Values[i] = nan
	}
	copy(wider.Tensors[0].Values, table.Tensors[0].Values)
	copy(wider.Tensors[1].Values, table.Tensors[1].Values)
	if !slices.Equal(all(wider), e) {
		t.Error("a row of a core beyond the features is read")
	}
}

// Filling the cache changes no embedding. After that, a change of a cached row changes only the
// embedding of its feature, and a change of the cores does not change it.
func TestCache(t *testing.T) {
	table := filled(ForRanks(61, 6, []int{3, 4}, 4), 2)
	before := all(table)
	table.FillCache([]int32{0, 7, 8, 60})
	if !slices.Equal(all(table), before) {
		t.Error("filling the cache changes embeddings")
	}
	if err := table.Check(); err != nil {
		t.Error(err)
	}
	table.Tensors[3].Values[6] += 1 // of feature 7
	for i, x := range all(table) {
		if (x != before[i]) != (i == 7*6) {
			t.Errorf("a change of feature 7 changes entry %d", i)
		}
	}
	copy(table.Tensors[3].Values, before[:6])
	fill(table.Tensors[0].Values, 9, 0)
	if !slices.Equal(all(table)[:6], before[:6]) {
		t.Error("the cores change a cached feature")
	}
	for want, cache := range map[string][]int32{"4": {1, 2}, "ascending": {1, 3, 2, 4}, "below 61": {1, 2, 3, 61}} {
		table.Cache = cache
		if err := table.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("cache %v: %v", cache, err)
		}
	}
	if got := MostFrequent([]int64{3, 9, 3, 0, 9, 3}, 4); fmt.Sprint(got) != "[0 1 2 4]" {
		t.Errorf("the most frequent features are %v", got)
	}
}

// No two features of CERP share both rows, and all rows up to ReadRows are read. With a row for each
// feature, CERP contains any table.
func TestBucketRows(t *testing.T) {
	for n := 2; n < 80; n++ {
		for b := 1; b <= n; b++ {
			if quotient(n, b) > b {
				continue
			}
			table := New(ForBuckets(n, 1, b))
			seen, read := map[[2]int]bool{}, [2]map[int]bool{{}, {}}
			for f := range n {
				at := table.rows(f)
				if seen[at] {
					t.Fatalf("%d features with %d buckets: two read the rows %v", n, b, at)
				}
				seen[at], read[0][at[0]], read[1][at[1]] = true, true, true
				if at[0] >= b || at[1] >= table.Shape.ReadRows() {
					t.Fatalf("%d features with %d buckets: feature %d reads the rows %v", n, b, f, at)
				}
			}
			if len(read[0]) != b || len(read[1]) != table.Shape.ReadRows() {
				t.Fatalf("%d features with %d buckets read %d and %d rows", n, b, len(read[0]), len(read[1]))
			}
		}
	}
	if got := ForBuckets(criteo, 16, 140_000); got.ReadRows() != 135_852 {
		t.Errorf("Criteo reads %d rows, expected 135852", got.ReadRows())
	}
	table := New(ForBuckets(61, 3, 61))
	fill(table.Tensors[0].Values, 5, 0)
	if !slices.Equal(all(table), table.Tensors[0].Values) {
		t.Error("with Q = 0 the table is not P")
	}
	fill(table.Tensors[1].Values, 6, 0)
	for i, x := range all(table) {
		if x != table.Tensors[0].Values[i]+table.Tensors[1].Values[i] {
			t.Errorf("entry %d is %v", i, x)
		}
	}
}

// A mask sets the other entries to 0 and counts the kept ones. A value that is not kept is refused.
func TestKeep(t *testing.T) {
	table := filled(ForBuckets(61, 3, 9), 1)
	mask := make([]bool, 54)
	for i := range mask {
		mask[i] = i%3 == 1
	}
	table.Keep(mask)
	if table.Parameters() != 18 || table.Check() != nil {
		t.Errorf("%d parameters, %v", table.Parameters(), table.Check())
	}
	for i, in := range mask {
		if v := table.Tensors[i/27].Values[i%27]; (v != 0) != in {
			t.Errorf("entry %d is %v", i, v)
		}
	}
	table.Tensors[1].Values[0] = 1
	if err := table.Check(); err == nil || !strings.Contains(err.Error(), "not kept") {
		t.Error(err)
	}
}

// The gradients agree with central differences of a random linear function of the embeddings, and
// have the same bits on any number of cores.
func TestGradients(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for name, s := range schemes {
		table := filled(s, 3)
		if s.Cached > 0 {
			table.FillCache([]int32{2, 3, 40, 60})
		}
		lists := []Gradients{{Features: []int32{0, 1, 2, 9}}, {}, {Features: []int32{10, 11, 12, 30, 31, 40, 60}}}
		for i := range lists {
			lists[i].Embedding = make([]float32, len(lists[i].Features)*s.Dim)
			fill(lists[i].Embedding, 8, uint64(i))
		}
		value := func() (sum float64) {
			for _, list := range lists {
				e := make([]float32, len(list.Embedding))
				table.Embed(e, list.Features)
				for i, x := range e {
					sum += float64(x) * float64(list.Embedding[i])
				}
			}
			return sum
		}
		var first [][]float32
		for _, cores := range []int{1, 2, 7} {
			runtime.GOMAXPROCS(cores)
			into := make([][]float32, len(table.Tensors))
			for k := range into {
				into[k] = make([]float32, len(table.Tensors[k].Values))
			}
			table.AddGradients(into, lists)
			if first == nil {
				first = into
			}
			if fmt.Sprint(first) != fmt.Sprint(into) {
				t.Errorf("%s: other bits on %d cores", name, cores)
			}
		}
		nonzero := 0
		for k, g := range first {
			values := table.Tensors[k].Values
			for i := 0; i < len(g); i += 1 + len(g)/97 {
				const h = 1. / 16 // the function is linear in each value, so differences are exact up to rounding
				x := values[i]
				values[i] = x + h
				up := value()
				values[i] = x - h
				down := value()
				values[i] = x
				want := (up - down) / (2 * h)
				if want != 0 {
					nonzero++
				}
				if math.Abs(float64(g[i])-want) > 2e-4*(1+math.Abs(want)) {
					t.Errorf("%s: the gradient of %s at %d is %v, expected %v", name, table.Tensors[k].Name, i, g[i], want)
				}
			}
		}
		if nonzero < 20 {
			t.Errorf("%s: only %d gradients are not 0", name, nonzero)
		}
	}
}

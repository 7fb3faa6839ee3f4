package vector

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// compare runs call with and without the assembly. Both must give the same bits in all slices
// that call returns.
func compare(t *testing.T, name string, call func() []any) {
	t.Helper()
	got := call()
	accelerated = false
	want := call()
	accelerated = true
	for i := range got {
		if !equal(got[i], want[i]) {
			t.Errorf("%s: result %d is %v, want %v", name, i, got[i], want[i])
		}
	}
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case []float32:
		return slices.EqualFunc(a, b.([]float32), func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
	case []float64:
		return slices.EqualFunc(a, b.([]float64), func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
	case []int64:
		return slices.Equal(a, b.([]int64))
	case []uint64:
		return slices.Equal(a, b.([]uint64))
	case float64:
		return math.Float64bits(a) == math.Float64bits(b.(float64))
	}
	return a == b
}

// guard is what the elements after those of a result must still be afterwards.
const guard = 7

type source struct{ *rand.Rand }

func (s source) floats(n int, scale float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(s.NormFloat64()) * scale
	}
	return x
}

func (s source) doubles(n int, scale float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = s.NormFloat64() * scale
	}
	return x
}

func (s source) words(n int) []uint64 {
	x := make([]uint64, (n+63)/64+1)
	for i := range x {
		x[i] = s.Uint64()
	}
	return x
}

// The assembly gives the bits of the portable functions, for all lengths and with numbers that
// are special, and writes nothing after the results.
func TestAssembly(t *testing.T) {
	if !accelerated {
		t.Skip("this processor or this build has no assembly")
	}
	random := source{rand.New(rand.NewPCG(1, 2))}
	lengths := []int{200, 624}
	for n := range 70 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		baseline, entries := random.floats(n, 1), random.floats(n, 1)
		in, weights := random.words(n), random.floats(n, 1)
		if n > 3 {
			copy(entries[n/2:], baseline[n/2:n/2+1]) // a player that changes nothing
		}
		compare(t, "Split", func() []any {
			present, absent := make([]float32, n+1), make([]float32, n+1)
			present[n], absent[n] = guard, guard
			Split(present[:n], absent[:n], baseline, entries, in)
			return []any{present, absent}
		})
		compare(t, "Changes", func() []any {
			change, opposite := make([]float32, n+1), make([]float32, n+1)
			change[n], opposite[n] = guard, guard
			Changes(change[:n], opposite[:n], baseline, entries)
			return []any{change, opposite}
		})
		compare(t, "Complement", func() []any {
			dst := append(make([]float32, n), guard)
			Complement(dst[:n], baseline, entries, weights)
			return []any{dst}
		})
		table, rows := random.floats(9*n, 1), []int32{8, 0, 3, 3}
		compare(t, "Gather", func() []any {
			dst := append(make([]float32, len(rows)*n), guard)
			Gather(dst[:len(rows)*n], table, n, rows)
			return []any{dst}
		})
		state := func(scale float32) *State {
			s := &State{Slope: random.floats(n, scale), Bend: random.floats(n, scale/10)}
			copy(s.Loss[:], random.doubles(6, 1e9))
			return s
		}
		for _, scale := range []float32{.001, .06} {
			a, b := state(scale), state(scale)
			if n > 5 {
				a.Slope[n-1], b.Bend[n/3], b.Slope[1] = float32(math.NaN()), float32(math.Inf(1)), 0
			}
			compare(t, "Contributions", func() []any {
				values, far := make([]float64, n+1), make([]uint64, (n+63)/64+1)
				values[n], far[len(far)-1] = guard, guard
				beyond := Contributions(values[:n], a, b, in, baseline, entries, 1.0/16, far)
				return []any{values, far, beyond}
			})
		}
		x := random.doubles(n, 1e6)
		if n > 2 {
			x[0], x[n-1] = 0.5, -1.5
		}
		for _, limit := range []float64{1e9, 1e6} {
			compare(t, "Round", func() []any {
				dst := make([]int64, n+1)
				dst[n] = guard
				at := Round(dst[:n], x, limit)
				if at >= 0 {
					clear(dst) // has no meaning
				}
				return []any{dst, at}
			})
		}
		weight := random.doubles(n, 1)
		for i, v := range weight {
			weight[i] = v * v
		}
		compare(t, "Scores", func() []any {
			score := make([]float64, n+1)
			score[n] = guard
			total, largest := Scores(score[:n], entries, baseline, weight)
			sum, again := Sum(score[:n])
			if math.Float64bits(sum) != math.Float64bits(total) || again != largest {
				t.Errorf("Sum gives %v, %d, and Scores %v, %d", sum, again, total, largest)
			}
			return []any{score, total, largest}
		})
		for _, ties := range [][]float64{slices.Repeat([]float64{3}, n), slices.Repeat([]float64{1, 2, 2}, n/3), make([]float64, n), slices.Repeat([]float64{-1}, n)} {
			compare(t, "largestOf", func() []any { return []any{largestOf(ties)} })
		}
		sums := make([]int64, n)
		for i := range sums {
			sums[i] = random.Int64()
		}
		if n > 4 {
			compare(t, "Total", func() []any { total, zero := Total(sums); return []any{total, zero} })
			sums[n-2] = 0
		}
		compare(t, "Total", func() []any { total, zero := Total(sums); return []any{total, zero} })
		compare(t, "Share", func() []any {
			sum := append(slices.Clone(sums), guard)
			added := Share(sum[:n], x, 1.37)
			return []any{sum, added}
		})
		for _, rows := range []int{1, 3} {
			x := random.floats(n*rows, 1)
			var sum []float64
			compare(t, "Columns", func() []any {
				s, square := make([]float64, n+1), make([]float64, n+1)
				s[n], square[n] = guard, guard
				Columns(s[:n], square[:n], x)
				sum = s[:n]
				return []any{s, square}
			})
			slopes := append(random.floats(n*rows, 1), guard)
			compare(t, "AddOthers", func() []any {
				slope := slices.Clone(slopes)
				AddOthers(slope[:n*rows], x, sum)
				return []any{slope}
			})
		}
		if n == 0 {
			continue
		}
		for name, change := range map[string]func(cells, x []int64){
			"plain": func(_, _ []int64) {},
			"over":  func(cells, x []int64) { cells[0], x[n] = math.MaxInt64, 1 }, // of the second feature
			"large": func(_, x []int64) { x[0] = -1 << 50 },
			"least": func(_, x []int64) { x[len(x)-1] = math.MinInt64 },
		} {
			const features, room = 5, 7
			record := 3*n + 2
			cells, x := make([]int64, room*record), make([]int64, features*n)
			for i := range cells {
				cells[i] = int64(random.Uint64() >> 8)
			}
			for i := range x {
				x[i] = random.Int64()>>25 - 1<<37
			}
			change(cells, x)
			at := []int32{6, 0, 3, 2, 5}
			compare(t, "AddRow "+name, func() []any {
				into := slices.Clone(cells)
				total, check, over, large := AddRow(into, at, record, n, x, &Sums{Scale: .5, Unit: 0x1p-28, Limit: 1 << 45}, []uint64{1, 3, 5, 1 << 63, 9})
				if !large && over != (name == "over") || large != (name == "large" || name == "least") {
					t.Errorf("%s, d = %d: overflow %t, too large %t", name, n, over, large)
				}
				if large {
					clear(into)
				}
				return []any{into, total, check, over || large, large}
			})
		}
	}
}

// AddTerms adds what its comment says, and the assembly gives the same bits.
func TestAddTerms(t *testing.T) {
	random := source{rand.New(rand.NewPCG(3, 4))}
	inf := math.Inf(1)
	for _, d := range []int{1, 2, 7, 8, 9, 16, 24, 33} {
		at, record := []int32{4, 0, 2}, 2*d+1
		for name, c := range map[string]struct {
			value  float64 // of one number
			sum    int64   // of one sum before
			over   bool
			finite bool
		}{
			"usual": {.5, 0, false, true}, "clipped": {1e9, 0, false, true}, "clipped below": {-1e9, 0, false, true},
			"infinite": {-inf, 0, false, false}, "not a number": {math.NaN(), 0, false, false}, "overflow": {1, math.MaxInt64 - 3, true, true},
		} {
			v := random.doubles(3*d, .3)
			v[d+d/2] = c.value
			terms := Terms{First: 1000, Second: 1e6, MostFirst: 1 << 20, MostSecond: 1 << 40}
			run := func() []any {
				cells := make([]int64, 5*record)
				cells[d/2] = c.sum
				check, over, finite := AddTerms(cells, at, record, d, v, &terms, []uint64{1, 3, 1 << 40})
				if over != c.over && c.finite || finite != c.finite {
					t.Errorf("%s, %d columns: overflow %t, finite %t", name, d, over, finite)
				}
				if !finite {
					return nil
				}
				return []any{cells, check}
			}
			if accelerated {
				compare(t, name, run)
			}
			cells := make([]int64, 5*record)
			AddTerms(cells, at, record, d, v, &terms, make([]uint64, 3))
			for i, a := range at {
				for k, x := range v[i*d : (i+1)*d] {
					first := max(-terms.MostFirst, min(terms.MostFirst, 1000*x))
					second := min(terms.MostSecond, 1e6*x*x)
					got := cells[int(a)*record+k:]
					if c.finite && (math.Abs(float64(got[0])-first) > .5 || math.Abs(float64(got[d])-second) > .5+1e-15*second) {
						t.Errorf("%s, %d columns: %v gives %d and %d, expected %v and %v", name, d, x, got[0], got[d], first, second)
					}
				}
			}
			if cells[record-1] != 0 {
				t.Errorf("%s, %d columns: AddTerms writes after a record", name, d)
			}
		}
	}
}

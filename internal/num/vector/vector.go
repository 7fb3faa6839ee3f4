// Package vector has the loops over a row's players that are neither matrix products nor
// random numbers: how a coalition becomes an embedding, how derivatives become contributions,
// and how contributions are rounded and added up. The Go functions in portable.go define the
// results. The functions for AVX-512 give the same bits, so results do not depend on the
// processor.
//
// All slices of a call have the length of its first slice, or at least that length, unless the
// comment of the function says otherwise. Slices that a call writes must not overlap its other
// slices. No function allocates memory.
package vector

// lanes is the number of partial sums of a sum of floating-point numbers. Number i is added to
// partial sum i%lanes.
const lanes = 8

// Split sets the embeddings of a coalition and of its complement. in has one bit for each element,
// bit i%64 of word i/64. Where it is 1, present gets the entry and absent the baseline, and
// elsewhere the other way round.
func Split(present, absent, baseline, entries []float32, in []uint64) {
	n := len(present)
	if n == 0 {
		return
	}
	_, _, _, _ = absent[n-1], baseline[n-1], entries[n-1], in[(n-1)/64]
	if accelerated {
		splitAVX512(&present[0], &absent[0], &baseline[0], &entries[0], &in[0], n)
		return
	}
	splitPortable(present, absent[:n], baseline[:n], entries[:n], in)
}

// Changes sets change to b - a, and opposite to a - b.
func Changes(change, opposite, a, b []float32) {
	n := len(change)
	if n == 0 {
		return
	}
	_, _, _ = opposite[n-1], a[n-1], b[n-1]
	if accelerated {
		changesAVX512(&change[0], &opposite[0], &a[0], &b[0], n)
		return
	}
	changesPortable(change, opposite[:n], a[:n], b[:n])
}

// Complement sets dst to (whole + baseline) - part.
func Complement(dst, whole, baseline, part []float32) {
	n := len(dst)
	if n == 0 {
		return
	}
	_, _, _ = whole[n-1], baseline[n-1], part[n-1]
	if accelerated {
		complementAVX512(&dst[0], &whole[0], &baseline[0], &part[0], n)
		return
	}
	complementPortable(dst, whole[:n], baseline[:n], part[:n])
}

// Gather copies rows of d elements from table to dst, one after the other.
func Gather(dst, table []float32, d int, rows []int32) {
	if len(rows) == 0 || d == 0 {
		return
	}
	_ = dst[len(rows)*d-1]
	last := uint32(0)
	for _, r := range rows {
		last = max(last, uint32(r)) // a negative number is too large
	}
	_ = table[int(last)*d+d-1]
	if accelerated {
		gatherAVX512(&dst[0], &table[0], d, &rows[0], len(rows))
		return
	}
	for i, r := range rows {
		copy(dst[i*d:(i+1)*d], table[int(r)*d:])
	}
}

// Series holds the coefficients of v, v^2, ..., v^6 in the expansion of a loss about a logit.
type Series [6]float64

// State is one of the two states of a pair, and what is known about its players.
type State struct {
	Loss  Series    // of the row's loss about the logit of the state
	Slope []float32 // derivatives of the logit with respect to the players' entries
	Bend  []float32 // kink terms of the players
}

// Contributions sets t to the mean of each player's contributions to a coalition, a, and to its
// complement, b. in has one bit for each player, as in Split, which is 1 if the player is in the
// coalition. A player moves the logit of a state by
//
//	u = slope*(entry - baseline) - bend if it is present, + bend if it is not
//
// and contributes l(-u) - l(0) if it is present, and l(0) - l(u) if it is not, where l(v) - l(0) is
// the series of the state. If |u| exceeds limit in one of the states, Contributions sets the bit
// of the player in far. It clears all other bits in the first (len(t)+63)/64 words of far. It
// reports whether it has set a bit.
func Contributions(t []float64, a, b *State, in []uint64, baseline, entries []float32, limit float64, far []uint64) bool {
	n := len(t)
	if n == 0 {
		return false
	}
	words := (n + 63) / 64
	_, _, _, _ = in[words-1], far[words-1], baseline[n-1], entries[n-1]
	_, _, _, _ = a.Slope[n-1], a.Bend[n-1], b.Slope[n-1], b.Bend[n-1]
	clear(far[:words])
	if accelerated {
		return contributionsAVX512(&t[0], (*[6]float64)(&a.Loss), (*[6]float64)(&b.Loss), &a.Slope[0], &b.Slope[0], &a.Bend[0], &b.Bend[0], &in[0], &baseline[0], &entries[0], n, limit*limit, &far[0]) != 0
	}
	return contributionsPortable(t, a, b, in, baseline[:n], entries[:n], limit*limit, far)
}

// Columns sets sum and square to the sums of the columns of x, which has rows of len(sum)
// elements, and to the sums of their squares. The rows are added in order.
func Columns(sum, square []float64, x []float32) {
	d := len(sum)
	clear(sum)
	clear(square[:d])
	if d == 0 || len(x) == 0 {
		return
	}
	if len(x)%d != 0 {
		panic("vector: Columns: x does not consist of whole rows")
	}
	if accelerated {
		columnsAVX512(&sum[0], &square[0], &x[0], d, len(x)/d)
		return
	}
	columnsPortable(sum, square[:d], x)
}

// AddOthers adds to each element of slope the sum of its column without the element of x. x and
// slope have rows of len(sum) elements. This is the derivative of FM's second-order term.
func AddOthers(slope, x []float32, sum []float64) {
	d := len(sum)
	if d == 0 || len(slope) == 0 {
		return
	}
	if len(slope)%d != 0 {
		panic("vector: AddOthers: slope does not consist of whole rows")
	}
	_ = x[len(slope)-1]
	if accelerated {
		addOthersAVX512(&slope[0], &x[0], &sum[0], d, len(slope)/d)
		return
	}
	addOthersPortable(slope, x[:len(slope)], sum)
}

// Round sets dst to x, rounded to integers, ties to even. It returns the position of the first
// number whose magnitude is not at most limit, or -1. limit must be at most 2^62.
func Round(dst []int64, x []float64, limit float64) int {
	n := len(dst)
	if n == 0 {
		return -1
	}
	_ = x[n-1]
	if accelerated {
		if roundAVX512(&dst[0], &x[0], n, limit) == 0 {
			return -1
		}
	}
	return roundPortable(dst, x[:n], limit)
}

// Scores sets score to (entry - baseline)^2 * weight. It returns the sum of the scores, and the
// position of the largest one, which is the first if there are several, or 0 if none is above 0.
func Scores(score []float64, entries, baseline []float32, weight []float64) (total float64, largest int) {
	n := len(score)
	if n == 0 {
		return 0, 0
	}
	_, _, _ = entries[n-1], baseline[n-1], weight[n-1]
	var sums [lanes]float64
	if accelerated {
		scoresAVX512(&score[0], &entries[0], &baseline[0], &weight[0], n, &sums)
	} else {
		scoresPortable(score, entries[:n], baseline[:n], weight[:n], &sums)
	}
	return addLanes(&sums), largestOf(score)
}

// Sum returns the sum of x in the order of package vector, and the position of the largest
// element, as Scores does.
func Sum(x []float64) (total float64, largest int) {
	var sums [lanes]float64
	for i, v := range x {
		sums[i%lanes] += v
	}
	return addLanes(&sums), largestOf(x)
}

// addLanes adds partial sums.
func addLanes(s *[lanes]float64) float64 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// largestOf returns the position of the first of the largest elements, or 0 if none is above 0.
func largestOf(x []float64) int {
	if !accelerated || len(x) == 0 {
		return largestPortable(x)
	}
	var most [lanes]float64
	var index [lanes]int64
	largestAVX512(&x[0], len(x), &most, &index)
	largest := 0
	for lane := range most {
		if most[lane] > most[largest] || most[lane] == most[largest] && index[lane] < index[largest] {
			largest = lane
		}
	}
	return int(index[largest])
}

// Total returns the sum of x, which wraps around, and whether one of its elements is 0.
func Total(x []int64) (total int64, zero bool) {
	if accelerated && len(x) > 0 {
		total, zeros := totalAVX512(&x[0], len(x))
		return total, zeros != 0
	}
	return totalPortable(x)
}

// Share adds rate*score, rounded to integers, ties to even, to sum. It returns the sum of what it
// has added. The products must be below 2^62 in magnitude.
func Share(sum []int64, score []float64, rate float64) int64 {
	n := len(sum)
	if n == 0 {
		return 0
	}
	_ = score[n-1]
	if accelerated {
		return shareAVX512(&sum[0], &score[0], n, rate)
	}
	return sharePortable(sum, score[:n], rate)
}

// Mix is an odd number, 2^64 divided by the golden ratio, by which checks tell numbers of one column apart.
const Mix = 0x9e3779b97f4a7c15

// Check adds up the numbers of columns. The last of them has the weight 1, the one before it 3, and so on.
type Check struct{ run, weighted uint64 }

// Add adds the number of the next column.
func (c *Check) Add(v uint64) { c.run, c.weighted = c.run+v, c.weighted+c.run+v }

// Sum returns the weighted sum.
func (c *Check) Sum() uint64 { return 2*c.weighted - c.run }

// Sums says how AddRow adds contributions.
type Sums struct {
	Scale float64 // factor of a contribution before it is squared
	Unit  float64 // unit of squares, divided by that of scaled contributions squared
	Limit int64   // upper bound of the magnitude of contributions, at least 0
}

// AddRow adds the contributions x of a row to records of sums. Each of the features at[i] has d
// contributions, and its record begins at cells[at[i]*record]. A record begins with d sums, d sums
// of magnitudes and d sums of squares, (x*Scale)^2*Unit, rounded by adding 0.5 and truncating.
// AddRow returns the sum of x, the check of what it adds, whether a sum overflowed, and whether a magnitude exceeds Limit. In
// the last case the sums have no meaning. The check is computed apart from the sums, modulo 2^64. It is the sum over i of
// weights[i] times the sum over the columns c of 2*(d-c)-1 times (x + Mix*(magnitude + Mix*square)).
func AddRow(cells []int64, at []int32, record, d int, x []int64, s *Sums, weights []uint64) (total int64, check uint64, over, large bool) {
	if len(at) == 0 || d == 0 {
		return 0, 0, false, false
	}
	_ = x[len(at)*d-1]
	last := uint32(0)
	for _, a := range at {
		last = max(last, uint32(a)) // a negative number is too large
	}
	_ = cells[int(last)*record+3*d-1]
	check = s.check(d, x, weights[:len(at)])
	if accelerated {
		total, signs, beyond := addRowAVX512(&cells[0], &at[0], len(at), record*8, d, &x[0], s.Scale, s.Unit, s.Limit)
		return total, check, signs < 0, beyond != 0
	}
	total, over, large = addRowPortable(cells, at, record, d, x, s)
	return total, check, over, large
}

// Terms are the factors of AddTerms.
type Terms struct {
	First  float64 // of v
	Second float64 // of v^2
	// Bounds of the magnitude of a number that is added, at most 2^61. Larger ones are clipped.
	MostFirst, MostSecond float64
}

// AddTerms adds the terms of a row to records of sums. Each of the features at[i] has d numbers v,
// and its record begins at cells[at[i]*record]. A record begins with d sums of First*v and d sums
// of Second*v^2. Both terms are clipped and then rounded to integers, ties to even. AddTerms returns the check of
// these, as AddRow does, whose columns have first + Mix*second. It reports whether a
// sum overflowed, and whether all v are finite. If not, the sums have no meaning. Second must not be negative.
func AddTerms(cells []int64, at []int32, record, d int, v []float64, t *Terms, weights []uint64) (check uint64, over, finite bool) {
	if len(at) == 0 || d == 0 {
		return 0, false, true
	}
	_, _ = v[len(at)*d-1], weights[len(at)-1]
	last := uint32(0)
	for _, a := range at {
		last = max(last, uint32(a)) // a negative number is too large
	}
	_ = cells[int(last)*record+2*d-1]
	if accelerated {
		signs, broken := addTermsAVX512(&cells[0], &at[0], len(at), record*8, d, &v[0], t.First, t.Second, t.MostFirst, t.MostSecond)
		return termsCheck(d, v, t, weights[:len(at)]), signs < 0, broken == 0
	}
	return addTermsPortable(cells, at, record, d, v, t, weights)
}

// square returns (x*scale)^2 in the unit of s, as AddRow adds it.
func (s *Sums) square(x int64) int64 {
	v := float64(float64(x) * s.Scale)
	return int64(float64(float64(v*v)*s.Unit) + .5)
}

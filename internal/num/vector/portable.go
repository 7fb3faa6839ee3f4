package vector

import "math"

func splitPortable(present, absent, baseline, entries []float32, in []uint64) {
	for i, v := range baseline { // has no branch, because the processor could not predict it
		bit := -uint32(in[i/64] >> (i % 64) & 1)
		b, e := math.Float32bits(v), math.Float32bits(entries[i])
		swap := (b ^ e) & bit
		present[i], absent[i] = math.Float32frombits(b^swap), math.Float32frombits(e^swap)
	}
}

func changesPortable(change, opposite, a, b []float32) {
	for i, v := range a {
		c := b[i] - v
		change[i], opposite[i] = c, -c
	}
}

func complementPortable(dst, whole, baseline, part []float32) {
	for i, v := range whole {
		dst[i] = (v + baseline[i]) - part[i]
	}
}

func contributionsPortable(t []float64, a, b *State, in []uint64, baseline, entries []float32, limit float64, far []uint64) bool {
	a0, a1, a2, a3, a4, a5 := a.Loss[0], a.Loss[1], a.Loss[2], a.Loss[3], a.Loss[4], a.Loss[5]
	b0, b1, b2, b3, b4, b5 := b.Loss[0], b.Loss[1], b.Loss[2], b.Loss[3], b.Loss[4], b.Loss[5]
	slopeA, slopeB, bendA, bendB := a.Slope[:len(t)], b.Slope[:len(t)], a.Bend[:len(t)], b.Bend[:len(t)]
	bits, any := uint64(0), false
	for i := range t {
		if i%64 == 0 {
			bits = in[i/64]
		}
		bit := bits & 1
		bits >>= 1
		delta := float64(entries[i]) - float64(baseline[i])
		// If the player is present, the kink term lowers what its entry adds to the logit.
		kinkA, kinkB := math.Float32bits(bendA[i])^uint32(bit)<<31, math.Float32bits(bendB[i])^uint32(1-bit)<<31
		u := float64(float64(slopeA[i])*delta) + float64(math.Float32frombits(kinkA))
		v := float64(float64(slopeB[i])*delta) + float64(math.Float32frombits(kinkB))
		x, y := float64(u*u), float64(v*v)
		if !(x <= limit && y <= limit) {
			far[i/64] |= 1 << (i % 64)
			any = true
		}
		odd := float64(u*(a0+float64(x*(a2+float64(x*a4))))) + float64(v*(b0+float64(y*(b2+float64(y*b4)))))
		even := float64(x*(a1+float64(x*(a3+float64(x*a5))))) - float64(y*(b1+float64(y*(b3+float64(y*b5)))))
		even = math.Float64frombits(math.Float64bits(even) ^ (1-bit)<<63) // positive if present in a
		t[i] = (even - odd) / 2
	}
	return any
}

func columnsPortable(sum, square []float64, x []float32) {
	for from := 0; from < len(x); from += len(sum) {
		for c, v := range x[from:][:len(sum)] {
			e := float64(v)
			sum[c] += e
			square[c] += float64(e * e)
		}
	}
}

func addOthersPortable(slope, x []float32, sum []float64) {
	for from := 0; from < len(slope); from += len(sum) {
		part, entries := slope[from:][:len(sum)], x[from:][:len(sum)]
		for c, total := range sum {
			part[c] = float32(float64(part[c]) + (total - float64(entries[c])))
		}
	}
}

func roundPortable(dst []int64, x []float64, limit float64) int {
	for i, v := range x {
		if !(math.Abs(v) <= limit) {
			return i
		}
		dst[i] = int64(math.RoundToEven(v))
	}
	return -1
}

func scoresPortable(score []float64, entries, baseline []float32, weight []float64, sums *[lanes]float64) {
	for i := range score {
		delta := float64(entries[i]) - float64(baseline[i])
		v := float64(float64(delta*delta) * weight[i])
		score[i] = v
		sums[i%lanes] += v
	}
}

func largestPortable(x []float64) int {
	most, largest := 0.0, 0
	for i, v := range x {
		if v > most {
			most, largest = v, i
		}
	}
	return largest
}

func totalPortable(x []int64) (total int64, zero bool) {
	for _, v := range x {
		total += v
		zero = zero || v == 0
	}
	return total, zero
}

func sharePortable(sum []int64, score []float64, rate float64) (added int64) {
	for i, v := range score {
		part := int64(math.RoundToEven(float64(rate * v)))
		sum[i] += part
		added += part
	}
	return added
}

func addTermsPortable(cells []int64, at []int32, record, d int, v []float64, t *Terms, weights []uint64) (check uint64, over, finite bool) {
	left, sum := int64(0), 0.0
	mostFirst, mostSecond := min(t.MostFirst, exact), min(t.MostSecond, exact)
	for i, a := range at {
		from := int(a) * record
		firsts, seconds := cells[from:][:d], cells[from+d:][:d]
		var feature Check
		for c, v := range v[i*d:][:d] {
			sum += float64(v * 0) // NaN after a number that is not finite
			p, q := float64(t.First*v), float64(float64(t.Second*v)*v)
			x, y := near(p), near(q)
			if !(math.Abs(p) < mostFirst && q < mostSecond) {
				x, y = t.clip(p, q)
			}
			before := firsts[c]
			after := before + x
			firsts[c] = after
			seconds[c] += y
			left |= (before^after)&(x^after) | seconds[c]
			feature.Add(uint64(x) + Mix*uint64(y))
		}
		check += weights[i] * feature.Sum()
	}
	return check, left < 0, sum == 0
}

// exact is the bound of near.
const exact = 1 << 51

// near returns x rounded to an integer, ties to even, if its magnitude is below exact.
func near(x float64) int64 {
	const whole, bits = 3 << 51, 0x4338 << 48 // the floats near whole are the integers, so adding it rounds
	return int64(math.Float64bits(x+whole) - bits)
}

// clip returns the terms x and y, clipped and rounded.
func (t *Terms) clip(x, y float64) (first, second int64) {
	return int64(math.RoundToEven(max(-t.MostFirst, min(t.MostFirst, x)))), int64(math.RoundToEven(min(t.MostSecond, y)))
}

// termsCheck returns the check of AddTerms.
func termsCheck(d int, v []float64, t *Terms, weights []uint64) (sum uint64) {
	a, b, mostFirst, mostSecond := t.First, t.Second, min(t.MostFirst, exact), min(t.MostSecond, exact)
	for i, w := range weights {
		var check Check
		for _, v := range v[i*d:][:d] {
			p, q := float64(a*v), float64(float64(b*v)*v)
			x, y := near(p), near(q)
			if !(math.Abs(p) < mostFirst && q < mostSecond) {
				x, y = t.clip(p, q)
			}
			check.Add(uint64(x) + Mix*uint64(y))
		}
		sum += w * check.Sum()
	}
	return sum
}

func addRowPortable(cells []int64, at []int32, record, d int, x []int64, s *Sums) (total int64, over, large bool) {
	left, beyond := int64(0), int64(0)
	for i, a := range at {
		from := int(a) * record
		sums, magnitudes, squares := cells[from:][:d], cells[from+d:][:d], cells[from+2*d:][:d]
		for c, v := range x[i*d:][:d] {
			total += v
			before := sums[c]
			sum := before + v
			sums[c] = sum
			left |= (before ^ sum) & (v ^ sum)
			size := (v ^ v>>63) - v>>63
			beyond |= size | (s.Limit - size)
			magnitudes[c] += size
			squares[c] += s.square(v)
			left |= magnitudes[c] | squares[c] // both only grow, so they are negative only after an overflow
		}
	}
	return total, left < 0, beyond < 0
}

// check returns the check of AddRow.
func (s *Sums) check(d int, x []int64, weights []uint64) (sum uint64) {
	for i, w := range weights {
		sum += w * rowCheck(x[i*d:][:d], s.Scale, s.Unit)
	}
	return sum
}

// rowCheck returns the check of a feature. It is not inlined, because its variables would then not be in registers.
//
//go:noinline
func rowCheck(x []int64, scale, unit float64) uint64 {
	run, weighted := uint64(0), uint64(0) // as in Check
	for _, v := range x {
		root := float64(float64(v) * scale)
		square := int64(float64(float64(root*root)*unit) + .5)
		run += uint64(v) + Mix*(uint64((v^v>>63)-v>>63)+Mix*uint64(square))
		weighted += run
	}
	return 2*weighted - run
}

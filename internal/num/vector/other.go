//go:build !amd64 || purego

package vector

// The functions of the assembly are never called in this build.

var accelerated = false

func splitAVX512(present *float32, absent *float32, baseline *float32, entries *float32, in *uint64, n int) {
	panic("vector: no assembly")
}

func changesAVX512(change *float32, opposite *float32, a *float32, b *float32, n int) {
	panic("vector: no assembly")
}

func complementAVX512(dst *float32, whole *float32, baseline *float32, part *float32, n int) {
	panic("vector: no assembly")
}

func gatherAVX512(dst *float32, table *float32, d int, rows *int32, n int) {
	panic("vector: no assembly")
}

func contributionsAVX512(t *float64, lossA *[6]float64, lossB *[6]float64, slopeA *float32, slopeB *float32, bendA *float32, bendB *float32, in *uint64, baseline *float32, entries *float32, n int, limit float64, far *uint64) (any uint64) {
	panic("vector: no assembly")
}

func columnsAVX512(sum *float64, square *float64, x *float32, d int, rows int) {
	panic("vector: no assembly")
}

func addOthersAVX512(slope *float32, x *float32, sum *float64, d int, rows int) {
	panic("vector: no assembly")
}

func roundAVX512(dst *int64, x *float64, n int, limit float64) (beyond uint64) {
	panic("vector: no assembly")
}

func scoresAVX512(score *float64, entries *float32, baseline *float32, weight *float64, n int, sums *[8]float64) {
	panic("vector: no assembly")
}

func largestAVX512(x *float64, n int, most *[8]float64, index *[8]int64) {
	panic("vector: no assembly")
}

func totalAVX512(x *int64, n int) (total int64, zeros uint64) { panic("vector: no assembly") }

func shareAVX512(sum *int64, score *float64, n int, rate float64) (added int64) {
	panic("vector: no assembly")
}

func addTermsAVX512(cells *int64, at *int32, features int, record int, d int, v *float64, factor float64, second float64, mostFirst float64, mostSecond float64) (signs int64, broken uint64) {
	panic("vector: no assembly")
}

func addRowAVX512(cells *int64, at *int32, features int, record int, d int, x *int64, scale float64, unit float64, limit int64) (total int64, signs int64, beyond uint64) {
	panic("vector: no assembly")
}

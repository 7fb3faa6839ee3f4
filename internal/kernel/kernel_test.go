package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// fill returns n values, a third of them 0, surrounded by NaN that no primitive
// may read or write.
func fill(r *rand.Rand, n int) (whole, inner []float32) {
	whole = make([]float32, n+8)
	for i := range whole {
		whole[i] = float32(math.NaN())
	}
	inner = whole[4 : 4+n : 4+n]
	for i := range inner {
		inner[i] = float32(r.NormFloat64()) * float32(r.IntN(3))
	}
	return whole, inner
}

func intact(t *testing.T, whole []float32) {
	t.Helper()
	for i := range 4 {
		if whole[i] == whole[i] || whole[len(whole)-1-i] == whole[len(whole)-1-i] {
			t.Fatal("wrote outside its slice")
		}
	}
}

// Affine and Axpy equal the loops of their doc comments, to the bit.
func TestAffineIsItsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for in := range 10 {
		for out := range 35 {
			guard, y := fill(r, out)
			_, x := fill(r, in)
			_, w := fill(r, in*out)
			_, b := fill(r, out)
			Affine(y, x, w, b)
			for o := range out {
				want := b[o]
				for i := range in {
					if x[i] != 0 {
						want += float32(x[i] * w[i*out+o])
					}
				}
				if math.Float32bits(y[o]) != math.Float32bits(want) {
					t.Fatalf("in %d out %d: y[%d] = %v, want %v", in, out, o, y[o], want)
				}
			}
			intact(t, guard)
		}
	}
}

func TestPackTransposes(t *testing.T) {
	packed := Pack([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	for i, want := range []float32{1, 4, 2, 5, 3, 6} {
		if packed[i] != want {
			t.Fatalf("packed %v", packed)
		}
	}
}

func BenchmarkAffine400(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	x, w, y := make([]float32, 400), make([]float32, 400*400), make([]float32, 400)
	for i := range w {
		w[i] = r.Float32()
	}
	for i := range x {
		x[i] = 1
	}
	b.SetBytes(int64(len(w) * 4))
	for b.Loop() {
		Affine(y, x, w, x)
	}
}

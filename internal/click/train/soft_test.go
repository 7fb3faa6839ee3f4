package train

import (
	"math"
	"slices"
	"testing"

	"shaver/internal/num/kernel"
	"shaver/internal/num/random"
)

// A raw threshold of -150 changes no bit of the values and has no gradient, and one of 100
// removes every value and gradient. No value is NaN or subnormal at any threshold.
func TestSoftLimits(t *testing.T) {
	v := []float32{1, -1, 1e-30, -.02, 0, .5}
	g := []float32{1, 2, 3, -4, 5, 6}
	e, dv, ds := make([]float32, len(v)), make([]float32, len(v)), make([]float32, len(v))
	low, high := slices.Repeat([]float32{-150}, len(v)), slices.Repeat([]float32{100}, len(v))
	soften(e, v, low)
	softenBackward(dv, ds, g, v, low)
	for i := range v {
		want := g[i]
		if v[i] == 0 {
			want = 0
		}
		if math.Float32bits(e[i]) != math.Float32bits(v[i]) || dv[i] != want || ds[i] != 0 {
			t.Errorf("threshold -150: %v becomes %v with the gradients %v and %v", v[i], e[i], dv[i], ds[i])
		}
	}
	soften(e, v, high)
	softenBackward(dv, ds, g, v, high)
	for i := range v {
		if e[i] != 0 || dv[i] != 0 || ds[i] != 0 {
			t.Errorf("threshold 100: %v becomes %v with the gradients %v and %v", v[i], e[i], dv[i], ds[i])
		}
	}
	for s := float32(-200); s < 200; s += .5 {
		if x := threshold(s); !(x >= 0 && x <= 1) || x > 0 && x < 0x1p-126 || s < leastSoft && x != 0 {
			t.Errorf("the threshold of %v is %v", s, x)
		}
	}
}

// A softened value has the sign of the value and at most its magnitude. Its support is what
// alive, outlasts and margins say, and its gradients agree with central differences.
func TestSoften(t *testing.T) {
	stream := random.At(1, random.Initial, 1, 0)
	const n = 20000
	v, s, g := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range v {
		v[i] = float32(math.Exp(-30*stream.Float64()) * (2*stream.Float64() - 1))
		s[i] = float32(5 - 100*stream.Float64())
		if i%2 == 0 { // close to the value
			s[i] = float32(math.Log(math.Abs(float64(v[i]))) + .2*stream.Normal())
		}
		g[i] = float32(stream.Normal())
	}
	e, m, dv, ds := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	soften(e, v, s)
	margins(m, v, s)
	softenBackward(dv, ds, g, v, s)
	support := 0
	exact := func(v, s float64) float64 {
		return math.Copysign(max(math.Abs(v)-1/(1+math.Exp(-s)), 0), v)
	}
	for i := range v {
		if e[i] != 0 {
			support++
			if e[i] > 0 != (v[i] > 0) || math.Abs(float64(e[i])) > math.Abs(float64(v[i])) {
				t.Fatalf("%v becomes %v", v[i], e[i])
			}
		}
		if keeps := outlasts(v[i], s[i]); keeps != (e[i] != 0) || keeps != (m[i] > 0) {
			t.Fatalf("value %v at %v: softened to %v, margin %v, kept %v", v[i], s[i], e[i], m[i], keeps)
		}
		x, y, h := float64(v[i]), float64(s[i]), 1e-6
		if math.Abs(float64(m[i])) < 1e-4 { // a difference may cross the kink
			continue
		}
		wantV := float64(g[i]) * (exact(x+h, y) - exact(x-h, y)) / (2 * h)
		wantS := float64(g[i]) * (exact(x, y+h) - exact(x, y-h)) / (2 * h)
		if math.Abs(float64(dv[i])-wantV) > 1e-5 || math.Abs(float64(ds[i])-wantS) > 1e-5 {
			t.Fatalf("value %v at %v: gradients %v and %v, expected %v and %v", v[i], s[i], dv[i], ds[i], wantV, wantS)
		}
	}
	if n := alive(v, s); n != support {
		t.Errorf("%d values are kept, expected %d", n, support)
	}
}

// The greatest numbers are as many as asked for, no other number is greater, and of equal
// numbers the first are chosen.
func TestGreatest(t *testing.T) {
	stream := random.At(1, random.Initial, 2, 0)
	numbers := make([]float32, 200)
	for i := range numbers {
		numbers[i] = float32(stream.Below(20))
	}
	for n := range len(numbers) + 1 {
		chosen, count, least, most := greatest(numbers, n), 0, float32(math.Inf(1)), float32(-1)
		lastIn, firstOut := -1, len(numbers)
		for i, in := range chosen {
			if in {
				count++
				least = min(least, numbers[i])
			} else {
				most = max(most, numbers[i])
			}
		}
		for i, in := range chosen {
			if in && numbers[i] == least {
				lastIn = i
			} else if !in && numbers[i] == least {
				firstOut = min(firstOut, i)
			}
		}
		if count != n || n > 0 && n < len(numbers) && (most > least || lastIn > firstOut) {
			t.Fatalf("%d of %d are chosen: least %v, greatest other %v, last chosen at %d, first other at %d", count, n, least, most, lastIn, firstOut)
		}
	}
}

// Without a gradient of the loss, raw thresholds grow by at most the learning rate, reach the
// target after the warm-up, and stay without weight decay.
func TestWarmUp(t *testing.T) {
	for _, c := range []struct {
		steps int
		rate  float64
		decay float64
	}{{384, 4. / 128, 1e-5}, {1, 1, 1e-5}, {0, 1, 1e-5}, {3000, 1e-3, 1e-3}, {20, .5, 1e-7}} {
		const target = -3.56
		start := warmUp(target, c.steps, c.rate, c.decay)
		w, m, v := []float32{start}, []float32{0}, []float32{0}
		for k := range c.steps {
			before := w[0]
			kernel.Adam(w, nil, m, v, adamStep(int64(k+1), c.rate, c.decay))
			if step := float64(w[0] - before); !(step > 0 && step <= c.rate*(1+1e-3)) {
				t.Fatalf("%+v: step %d moves the threshold by %v", c, k+1, step)
			}
		}
		if math.Abs(float64(w[0])-target) > 1e-4 {
			t.Errorf("%+v: the threshold goes from %v to %v, expected %v", c, start, w[0], target)
		}
	}
	w := []float32{-5}
	if kernel.Adam(w, nil, []float32{0}, []float32{0}, adamStep(1, .1, 0)); w[0] != -5 {
		t.Errorf("without weight decay the threshold moves to %v", w[0])
	}
}

// The slope of the step function has the values of OptEmbed, on both sides of 0.
func TestStepSlope(t *testing.T) {
	for u, want := range map[float32]float32{0: 2, .2: 1.2, .4: .4, .7: .4, 1: .4, 1.5: 0} {
		for _, x := range []float32{u, -u} {
			if got := stepSlope(x); math.Abs(float64(got-want)) > 1e-6 {
				t.Errorf("the slope at %v is %v, expected %v", x, got, want)
			}
		}
	}
}

// The slope of CERP's pruning loss agrees with central differences, and is 0 where the entries of
// both tables are 0.
func TestPruneSlope(t *testing.T) {
	of := func(x float64) float64 { return -math.Pow(math.Tanh(100*x), 2) }
	for _, x := range []float64{-.2, -.03, -.01, -1e-4, 1e-3, .005, .02, .1, 3} {
		const h = 1e-7
		want := (of(x+h) - of(x-h)) / (2 * h)
		if got := float64(pruneSlope(float32(x))); math.Abs(got-want) > 1e-4*(1+math.Abs(want)) {
			t.Errorf("the slope at %v is %v, expected %v", x, got, want)
		}
	}
	if got := pruneSlope(0); got != 0 {
		t.Errorf("the slope at 0 is %v", got)
	}
}

package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A matrix whose weights were set computes what a new one computes, and one whose rows were
// set is its transpose. Resized matrices have fewer inputs.
func TestSetMatrix(t *testing.T) {
	defer func(before *level) { current = before }(current)
	for _, current = range levels() {
		random := rand.New(rand.NewPCG(1, 2))
		for _, shape := range [][2]int{{1, 1}, {5, 16}, {17, 33}, {48, 7}} {
			in, out := shape[0], shape[1]
			weight, bias := make([]float32, in*out), make([]float32, out)
			for i := range weight {
				weight[i] = random.Float32()*2 - 1
			}
			for i := range bias {
				bias[i] = random.Float32()
			}
			const rows = 13
			x, y := NewTile(rows, in), NewTile(rows, out)
			for i := range rows {
				for k := range in {
					x.Row(i)[k] = random.Float32()
				}
			}
			check := func(name string, m *Matrix, bias []float32) {
				t.Helper()
				m.Layer(y, x, rows, nil, false, nil)
				for i := range rows {
					for o := range out {
						want := 0.0
						if bias != nil {
							want = float64(bias[o])
						}
						for k, v := range x.Row(i)[:in] {
							want += float64(v) * float64(weight[o*in+k])
						}
						if got := float64(y.Row(i)[o]); math.Abs(got-want) > 1e-5 {
							t.Fatalf("%s: %s, %d inputs: output %d of row %d is %v, expected %v", current.name, name, in, o, i, got, want)
						}
					}
				}
			}
			m := NewBlankMatrix(in, out)
			for from := 0; from < out; from += Columns {
				m.Set(weight, bias, from, min(from+Columns, out))
			}
			check("Set", m, bias)
			turned := NewTile(in, out)
			for o := range out {
				for k := range in {
					turned.Row(k)[o] = weight[o*in+k]
				}
			}
			m = NewBlankMatrix(in+4, out)
			m.Resize(in)
			m.SetRows(turned, 0, out)
			check("SetRows", m, nil)
		}
	}
}

// Transpose exchanges rows and columns.
func TestTranspose(t *testing.T) {
	defer func(before *level) { current = before }(current)
	for _, current = range levels() {
		in, out := NewTile(40+Columns, 50), NewTile(64, 40+Columns)
		for i := range in.Values {
			in.Values[i] = float32(i)
		}
		Transpose(out, in, 37, 0, 32)
		Transpose(out, in, 37, 32, 50)
		for i := range 37 {
			for o := range 50 {
				if out.Row(o)[i] != in.Row(i)[o] {
					t.Fatalf("%s: element %d, %d is %v", current.name, i, o, out.Row(o)[i])
				}
			}
		}
	}
}

// Adam agrees with its formulas in float64, and forgets second moments that are tiny.
func TestAdam(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const n = 100
	w, g, m, v := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range w {
		w[i], g[i], m[i], v[i] = float32(random.NormFloat64()), float32(random.NormFloat64()), float32(random.NormFloat64()), random.Float32()
	}
	s := &AdamStep{Decay: .01, First: .1, Second: .001, Keep: .999, Rate: .02, Root: .5, Epsilon: 1e-8}
	for _, gradient := range [][]float32{g, nil} {
		before := [3][]float32{append([]float32{}, w...), append([]float32{}, m...), append([]float32{}, v...)}
		Adam(w, gradient, m, v, s)
		for i := range w {
			d := .01 * float64(before[0][i])
			if gradient != nil {
				d += float64(gradient[i])
			}
			first := float64(before[1][i]) + (d-float64(before[1][i]))*.1
			second := float64(before[2][i])*.999 + .001*d*d
			want := float64(before[0][i]) - .02*first/(math.Sqrt(second)/.5+1e-8)
			if math.Abs(float64(w[i])-want) > 1e-5 {
				t.Fatalf("weight %d is %v, expected %v", i, w[i], want)
			}
		}
	}
	w, m, v = []float32{0}, []float32{0}, []float32{1e-31}
	if Adam(w, nil, m, v, s); v[0] != 0 {
		t.Errorf("a second moment of 1e-31 becomes %v, expected 0", v[0])
	}
}

// Package kernel holds the float32 primitives of the hot loop. Each is defined
// by the portable loop in this package; products are rounded to float32 before
// they are added, so that no compiler fuses them and the definition is one.
//
// Matrices are packed [in, out], row-major: row i holds what input i adds to
// every output, so a zero input skips its row.
package kernel

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// Name identifies the arithmetic: two machines with the same Name give the same
// bits. It is part of every job's identity. The processor is in it because
// math.Exp, which the losses need, has its own code per architecture, and on
// amd64 another for processors without FMA.
func Name() string {
	if runtime.GOARCH == "amd64" && !cpu.X86.HasFMA {
		return "portable-amd64-nofma"
	}
	return "portable-" + runtime.GOARCH
}

// Pack returns the [out, in] matrix w as [in, out].
func Pack(w []float32, in, out int) []float32 {
	if len(w) != in*out {
		panic("kernel: Pack: matrix has the wrong length")
	}
	packed := make([]float32, len(w))
	for o := range out {
		for i := range in {
			packed[i*out+o] = w[o*in+i]
		}
	}
	return packed
}

// Affine sets y = b + x W, W packed [len(x), len(y)]:
//
//	y[o] = b[o]; for i ascending, if x[i] != 0: y[o] += x[i]*w[i*len(y)+o]
//
// y must not overlap the others.
func Affine(y, x, w, b []float32) {
	copy(y, b[:len(y)])
	AddProduct(y, x, w)
}

// AddProduct adds x W to y, in Affine's order. Rows go four at a time, which
// reads and writes y a quarter as often and rounds the same.
func AddProduct(y, x, w []float32) {
	out := len(y)
	if len(w) != len(x)*out {
		panic("kernel: AddProduct: matrix has the wrong length")
	}
	var value [4]float32
	var row [4][]float32
	filled := 0
	for i, v := range x {
		if v == 0 {
			continue
		}
		value[filled], row[filled] = v, w[i*out:(i+1)*out]
		if filled++; filled == 4 {
			axpy4(y, value, row)
			filled = 0
		}
	}
	for k := range filled {
		Axpy(y, value[k], row[k])
	}
}

func axpy4(y []float32, a [4]float32, x [4][]float32) {
	x0, x1, x2, x3 := x[0][:len(y)], x[1][:len(y)], x[2][:len(y)], x[3][:len(y)]
	a0, a1, a2, a3 := a[0], a[1], a[2], a[3]
	for o := range y {
		y[o] = y[o] + float32(a0*x0[o]) + float32(a1*x1[o]) + float32(a2*x2[o]) + float32(a3*x3[o])
	}
}

// Axpy adds a*x to y: y[o] += a*x[o].
func Axpy(y []float32, a float32, x []float32) {
	x = x[:len(y)]
	for o := range y {
		y[o] += float32(a * x[o])
	}
}

// Dot returns the sum of x[i]*y[i], products and sum in float64, i ascending.
func Dot(x, y []float32) float64 {
	y = y[:len(x)]
	sum := 0.0
	for i, v := range x {
		sum += float64(float64(v) * float64(y[i]))
	}
	return sum
}

// ReLU sets negative values to 0.
func ReLU(x []float32) {
	for i, v := range x {
		x[i] = max(v, 0)
	}
}

package kernel

import "math"

// The functions of this file have the same steps and constants as the assembly.

// The constants of e^x = 2^e * e^r with r = x - e*ln(2). ln(2) is the sum of two parts. The
// first part has so few bits that its product with e is exact.
const (
	expLargest  = 89       // e^89 overflows
	expSmallest = -87.3365 // e^x of a smaller x is below 2^-126
	ln2High     = 0.693145751953125
	ln2Low      = 1.428606765330187e-06
)

// exponential returns e^x.
func exponential(x float32) float32 {
	switch {
	case x != x:
		return x
	case x < expSmallest:
		return 0
	case x > expLargest:
		x = expLargest
	}
	e := float32(math.RoundToEven(float64(float32(x * math.Log2E))))
	r := x + float32(e*-ln2High)
	r += float32(e * -ln2Low)
	// The polynomial is the one in expf of the Cephes library.
	s := float32(r * r)
	q := float32(1.9875691500e-4*r) + 1.3981999507e-3
	q = float32(q*s) + (float32(8.3334519073e-3*r) + 4.1665795894e-2)
	q = float32(q*s) + (float32(1.6666665459e-1*r) + 5.0000001201e-1)
	q = float32(q*s) + r
	q++
	half := int(e) >> 1 // 2^e may overflow although the result does not
	q *= float32(math.Ldexp(1, half))
	return q * float32(math.Ldexp(1, int(e)-half))
}

// polynomial evaluates a polynomial at x. The coefficient of the highest power comes
// first.
func polynomial(x float32, c []float32) float32 {
	q := c[0]
	for _, v := range c[1:] {
		q = float32(q*x) + v
	}
	return q
}

// logPolynomial is P in log(1+f) = 2*s*(1 + s^2*P(s^2)) with s = f/(2+f), for |s| up to
// 1/3. It was fitted for a small relative error.
var logPolynomial = [...]float32{0.14013687, 0.1399925, 0.2001087, 0.33333206}

// logOnePlus returns log(1+f) for f between sqrt(1/2)-1 and 1.
func logOnePlus(f float32) float32 {
	s := f / (2 + f)
	z := float32(s * s)
	s += s
	return float32(float32(polynomial(z, logPolynomial[:])*z)*s) + s
}

// logarithm returns log(x), from x = 2^e * m with m between sqrt(1/2) and sqrt(2).
func logarithm(x float32) float32 {
	switch {
	case x != x || x > math.MaxFloat32:
		return x
	case x < 0:
		return float32(math.NaN())
	case x == 0:
		return float32(math.Inf(-1))
	}
	const sqrtHalf = 0x3f3504f3 // bits
	shift := float32(0)
	if x < 0x1p-126 {
		x, shift = x*0x1p23, 23
	}
	bits := int32(math.Float32bits(x)) - sqrtHalf
	e := float32(bits>>23) - shift
	m := math.Float32frombits(uint32(bits&(1<<23-1) + sqrtHalf))
	y := logOnePlus(m-1) + float32(e*ln2Low)
	return y + float32(e*ln2High)
}

// sigmoid returns 1/(1+e^-x).
func sigmoid(x float32) float32 { return 1 / (1 + exponential(-x)) }

// softplus returns log(1+e^x).
func softplus(x float32) float32 {
	return logOnePlus(exponential(-absoluteOf(x))) + larger(x, 0)
}

// absoluteOf returns |x|.
func absoluteOf(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// erfMiddle separates the two formulas of errorFunction.
const erfMiddle = 0.927734375

// The polynomials of errorFunction, fitted for a small error of the result:
//
//	erf(x) = x + x*P(x^2)                          for |x| up to erfMiddle
//	erf(x) = 1 - e^(-x + x*Q(x)) for larger x      erf(-x) = -erf(x)
var (
	erfNear = [...]float32{-0.0005969914, 0.004989366, -0.026764316, 0.11281767, -0.37612492, 0.12837915}
	erfFar  = [...]float32{0.00021327379, -0.0032091571, 0.022871599, -0.10523359, -0.63573945, -0.12850821}
)

// errorFunction returns erf(x).
func errorFunction(x float32) float32 {
	y := absoluteOf(x)
	if !(y > erfMiddle) {
		return float32(polynomial(float32(x*x), erfNear[:])*x) + x
	}
	if y > 4 { // erf rounds to 1 here
		y = 4
	}
	y = 1 - exponential(float32(polynomial(y, erfFar[:])*y)-y)
	if x < 0 {
		y = -y
	}
	return y
}

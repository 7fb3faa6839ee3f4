//go:build amd64.v3

package kernel

// built is what this build's level names end with. With GOAMD64=v3 the compiler fuses
// products with sums where nobody rounds between, as in math.Log1p.
const built = "-v3"

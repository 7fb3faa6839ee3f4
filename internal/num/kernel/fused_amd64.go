//go:build amd64.v3

package kernel

// built is the suffix of this build's level names. With GOAMD64=v3 the compiler fuses a
// product with a sum unless the code rounds the product explicitly, which math.Log1p does
// not do.
const built = "-v3"

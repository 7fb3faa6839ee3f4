//go:build !amd64 || purego

package vector

const accelerated = false

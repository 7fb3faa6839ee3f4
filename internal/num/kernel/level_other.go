//go:build !amd64 || purego

package kernel

func accelerated() []*level { return nil }

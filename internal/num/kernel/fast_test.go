//go:build !purego

package kernel

const pure = false

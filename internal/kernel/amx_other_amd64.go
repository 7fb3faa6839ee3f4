//go:build !purego && !linux

package kernel

// permitAMX is for Linux only: elsewhere nothing is known to save the tiles.
func permitAMX() bool { return false }

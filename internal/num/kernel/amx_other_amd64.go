//go:build !purego && !linux

package kernel

// permitAMX returns false, because no system except Linux is known to save the tile
// registers.
func permitAMX() bool { return false }

//go:build !purego

package kernel

import (
	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// permitAMX asks Linux for permission to use the tile registers. Linux saves and restores
// them only for processes that have asked. Go's signal stacks have room for them.
func permitAMX() bool {
	if x := &cpu.X86; !x.HasAMXTile || !x.HasAMXInt8 || !x.HasAVX512VBMI {
		return false
	}
	const permit, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
	_, _, failed := unix.RawSyscall(unix.SYS_ARCH_PRCTL, permit, tileData, 0)
	return failed == 0
}

package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup puts the process into its own group and lets Linux kill it when this program
// dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limitMemory limits the address space of the process. An error only means that the
// process has ended.
func (p *process) limitMemory(bytes uint64) {
	_ = unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: bytes, Max: bytes}, nil)
}

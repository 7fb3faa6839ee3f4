package main

import (
	"os"
	"syscall"
)

const canStart = true

// namespaces gives a process a network, mounts and processes of its own. The process is
// killed if this program dies.
func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Unshareflags: syscall.CLONE_NEWNS, // also keeps its mounts from spreading
		Setpgid:      true,
		Pdeathsig:    syscall.SIGKILL,
	}
}

func terminate(p *os.Process) { _ = p.Signal(syscall.SIGTERM) } // an error only means that it has ended

// ending are the signals that end this program.
var ending = []os.Signal{os.Interrupt, syscall.SIGTERM}

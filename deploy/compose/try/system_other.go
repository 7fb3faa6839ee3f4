//go:build !linux

package main

import (
	"os"
	"syscall"
)

const canStart = false

func namespaces() *syscall.SysProcAttr { return nil }

func terminate(p *os.Process) { _ = p.Kill() }

// ending are the signals that end this program.
var ending = []os.Signal{os.Interrupt}

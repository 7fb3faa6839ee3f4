//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
)

const supported = true

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// groupLeft reports whether any process of the group still exists.
func groupLeft(pid int) bool { return !errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) }

// The signals of the faults. An error only means that the process has ended.
func (p *process) term()   { _ = p.cmd.Process.Signal(syscall.SIGTERM) }
func (p *process) stop()   { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) goOn()   { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
func (p *process) reload() { _ = p.cmd.Process.Signal(syscall.SIGHUP) }

// ending are the signals that end the campaign.
var ending = []os.Signal{os.Interrupt, syscall.SIGTERM}

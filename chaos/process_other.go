//go:build unix && !linux

package main

import "syscall"

// ownGroup puts the process into its own group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func (p *process) limitMemory(uint64) {}

package main

import "syscall"

// ownGroup puts the process into its own group and lets Linux kill it when this program
// dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

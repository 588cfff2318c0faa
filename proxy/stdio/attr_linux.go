package stdio

import "syscall"

// processAttr puts a child into a process group of its own, so that what it starts
// can be ended with it, and lets the kernel end it when this process is killed.
// SIGTERM, since wrappers such as npx pass it on to what they started.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

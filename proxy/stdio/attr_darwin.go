package stdio

import "syscall"

// processAttr puts a child into a process group of its own, so that what it starts
// can be ended with it.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

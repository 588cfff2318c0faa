//go:build linux || darwin

package stdio

import "syscall"

// signalGroup sends a signal to a process and to all that it has started.
func signalGroup(pid int, sig syscall.Signal) {
	_ = syscall.Kill(-pid, sig) // nobody left is what is wanted
}

func terminate(pid int) { signalGroup(pid, syscall.SIGTERM) }

func kill(pid int) { signalGroup(pid, syscall.SIGKILL) }

//go:build unix

package health

import (
	"os"
	"strconv"
	"syscall"
)

// fileID tells a file from another one at the same path.
func fileID(info os.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return strconv.FormatUint(s.Ino, 36)
	}
	return ""
}

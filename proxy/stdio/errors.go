package stdio

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// ErrUnavailable says that there is no process to serve a request and that none can
// be started at the moment: the last ones failed, or the bridge isn't running. The
// request had no effect. It wraps [syscall.ECONNREFUSED], since it means the same.
var ErrUnavailable = fmt.Errorf("no process of the stdio server can be had: %w", syscall.ECONNREFUSED)

// errBroken is what a request gets whose process ended before it had answered.
var errBroken = fmt.Errorf("the process of the stdio server ended: %w", io.ErrUnexpectedEOF)

var (
	// errGone: the process takes no more requests, and this one never reached it.
	errGone = errors.New("the process of the stdio server takes no more requests")
	// errTooMany: another process would be one too many.
	errTooMany = errors.New("too many processes")
	errTooLong = errors.New("a line is longer than allowed")
)

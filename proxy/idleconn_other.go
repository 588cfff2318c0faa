//go:build !unix

package proxy

// watchIdle does nothing where it isn't known how to look at a connection.
func watchIdle(t *transport) *transport { return t }

// Package http1 serves HTTP/1.1 to clients with less work for each request than the
// server of net/http: requests are served on the goroutine of their connection, are
// answered with one write where that is possible, and what is the same in all
// requests of a connection is read once.
//
// It reads only what leaves no doubt: a head in strict form, and a body whose length
// is announced. A connection that sends anything else, be it chunks, an expectation,
// an upgrade, another version or nonsense, is handed to net/http from there on, with
// what was read of it. So nothing is refused here, and no rule about malformed
// requests exists twice.
package http1

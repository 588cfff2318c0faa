// Package admin is the admin API of the sidecar: its HTTP handlers and the
// client that the command line uses.
//
// There are two handlers. [New] makes that of the admin listener, which is the
// operator's. [NewRegister] makes that of the registration listener, on which an
// agent server, known by its token, may register and remove its own
// conversations and nothing else. Errors of both are RFC 9457 problems.
//
// What the API shows and changes comes through the interfaces in this package.
package admin

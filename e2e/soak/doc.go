// Package soak lets a sidecar work for a long time, with all that clients do and
// a new backend process every few seconds, and fails when anything grows: make soak.
package soak

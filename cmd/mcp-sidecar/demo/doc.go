// Package demo shows a redeployment from start to end in one terminal: a backend process, an embedded agent server with
// some conversations whose agents call tools all the time, and the sidecar between them, each real. The backend is killed
// and replaced twice: by a version with other tools, and by the same version again.
package demo

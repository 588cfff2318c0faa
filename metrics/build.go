package metrics

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// unknown stands for a fact that the binary doesn't carry.
const unknown = "unknown"

// version overrides what the Go toolchain recorded. It is for builds without the
// repository at hand (an image built from an archive) and set by the linker only:
//
//	-ldflags "-X github.com/mcp-sidecar/mcp-sidecar/metrics.version=v1.2.3"
var version string

// Build says which program this is. Unknown facts are "unknown", never empty.
type Build struct {
	// Version is the module version, e.g. "v1.2.3", or a pseudo-version between
	// two tags.
	Version string
	// Revision is the commit that was built.
	Revision string
	// Date is when that commit was made, in RFC 3339. A program that was built from
	// the same commit twice is the same, so it doesn't say when it was built.
	Date string
	// GoVersion is the toolchain's version, e.g. "go1.26.0".
	GoVersion string
}

// ReadBuild returns the facts that the Go toolchain recorded in the running
// binary.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}

	return readBuild(info, version)
}

func readBuild(info *debug.BuildInfo, override string) Build {
	b := Build{Version: override}
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}

	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Date = s.Value
		}
	}

	b.Version = cmp.Or(b.Version, unknown)
	b.Revision = cmp.Or(b.Revision, unknown)
	b.Date = cmp.Or(b.Date, unknown)
	b.GoVersion = cmp.Or(info.GoVersion, runtime.Version())

	return b
}

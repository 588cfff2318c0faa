package metrics

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadBuild(t *testing.T) {
	t.Parallel()

	stamped := &debug.BuildInfo{
		GoVersion: "go1.26.0",
		Main:      debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs", Value: "git"},
			{Key: "vcs.revision", Value: "0123abcd"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		},
	}

	tests := []struct {
		name     string
		info     *debug.BuildInfo
		override string
		want     Build
	}{
		{
			name: "stamped",
			info: stamped,
			want: Build{Version: "v1.2.3", Revision: "0123abcd", Date: "2026-01-02T03:04:05Z", GoVersion: "go1.26.0"},
		},
		{
			name:     "linker override",
			info:     stamped,
			override: "v9.9.9",
			want:     Build{Version: "v9.9.9", Revision: "0123abcd", Date: "2026-01-02T03:04:05Z", GoVersion: "go1.26.0"},
		},
		{
			name: "work tree without stamping",
			info: &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}},
			want: Build{Version: "unknown", Revision: "unknown", Date: "unknown", GoVersion: "go1.26.0"},
		},
		{
			name: "nothing recorded",
			info: &debug.BuildInfo{},
			want: Build{Version: "unknown", Revision: "unknown", Date: "unknown", GoVersion: runtime.Version()},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			if diff := cmp.Diff(tt.want, readBuild(tt.info, tt.override)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestReadBuildOfThisBinary(t *testing.T) {
	t.Parallel()

	b := ReadBuild()
	if b.Version == "" || b.Revision == "" || b.GoVersion != runtime.Version() {
		t.Errorf("got %+v", b)
	}
}

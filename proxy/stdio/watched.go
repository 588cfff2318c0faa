package stdio

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/proxy/filewatch"
)

// recheck is how often the watched files are looked at without any event.
const recheck = 10 * time.Second

// watcher looks at what is to be watched. It returns nil if nothing is.
func (b *Bridge) watcher() *filewatch.Watcher {
	paths := watched(&b.cfg)
	if len(paths) == 0 {
		return nil
	}

	return filewatch.New(func() []string { return paths }, recheck, b.log)
}

// watched returns the paths to watch.
func watched(cfg *Config) []string {
	var roots []string

	if cfg.Watch != nil {
		for _, path := range cfg.Watch {
			roots = append(roots, inDir(cfg.Dir, path))
		}

		return roots
	}

	if path, err := program(cfg); err == nil {
		roots = append(roots, path)
	}

	for _, arg := range cfg.Command[1:] {
		if path := inDir(cfg.Dir, arg); !strings.HasPrefix(arg, "-") && isProgram(path) {
			roots = append(roots, path)
		}
	}

	return roots
}

// isProgram reports whether a path is that of a script, which may be missing while
// it is being deployed, or of an executable file. Other files are left out: the
// program may write to them.
func isProgram(path string) bool {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return false
	}

	switch filepath.Ext(path) {
	case ".cjs", ".jar", ".js", ".lua", ".mjs", ".php", ".pl", ".py", ".pyz", ".rb", ".sh", ".ts":
		return true
	default:
		return err == nil && info.Mode()&0o111 != 0
	}
}

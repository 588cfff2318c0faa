package stdio

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

type pipe struct{ read, write *os.File }

func pipes() (all [3]pipe, err error) {
	for i := range all {
		if all[i].read, all[i].write, err = os.Pipe(); err != nil {
			for _, q := range all[:i] {
				_, _ = q.read.Close(), q.write.Close()
			}

			return all, fmt.Errorf("starting the stdio server: %w", err)
		}
	}

	return all, nil
}

// program returns the path of the program to run.
func program(cfg *Config) (string, error) {
	name := cfg.Command[0]
	if filepath.Base(name) == name {
		return exec.LookPath(name) //nolint:wrapcheck // it says all
	}

	return inDir(cfg.Dir, name), nil
}

// inDir returns a path that begins at dir, unless it is absolute.
func inDir(dir, path string) string {
	if filepath.IsAbs(path) || dir == "" {
		return path
	}

	return filepath.Join(dir, path)
}

// environment returns the environment of a child: that of this process, without
// what is meant for this process alone, and what is configured.
func environment(own []string, added map[string]string) []string {
	var env []string

	for _, v := range own {
		name, _, _ := strings.Cut(v, "=")
		if _, replaced := added[name]; !replaced && !strings.HasPrefix(name, "MCP_SIDECAR_") {
			env = append(env, v)
		}
	}

	for name, value := range added {
		env = append(env, name+"="+value)
	}

	return env
}

// spawner starts children from one thread that lasts as long as they may: the
// kernel takes the end of the thread that started a child for the end of its
// parent.
type spawner struct {
	requests chan spawn
}

type spawn struct {
	cmd    *exec.Cmd
	result chan error
}

func (s *spawner) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	for r := range s.requests {
		r.result <- r.cmd.Start()
	}
}

func (s *spawner) start(cmd *exec.Cmd) error {
	r := spawn{cmd, make(chan error, 1)}
	s.requests <- r

	return <-r.result
}

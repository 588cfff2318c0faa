package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// Names of what is measured. The ratios are to the reverse proxy.
const (
	nameDirect  = "direct"
	nameReverse = "ReverseProxy"
	nameNginx   = "nginx"
	nameSidecar = "mcp-sidecar"
)

// bench is one run.
type bench struct {
	options

	out     io.Writer
	self    string
	dir     string
	wrk     string // "" where it isn't installed
	nginx   string
	backend *program
}

// mode is one thing to measure.
type mode struct {
	name string
	run  func(context.Context, *bench) error
}

func modes() []mode {
	return []mode{
		{"small", calls("small JSON tools/call in a session", toolSmall, false)},
		{"sse", calls("tools/call answered by an event stream", toolStream, false)},
		{"100k", calls("result of 100 KB", tool100K, false)},
		{"1m", calls("result of 1 MB", tool1M, false)},
		{"stateless", calls("small JSON tools/call, 2026-07-28 without a session", toolSmall, true)},
		{"streams", idleStreams},
		{"latency", eventLatency},
		{"start", starts},
		{"swap", swaps},
		{"hash", hashes},
	}
}

func modeNames() []string {
	var names []string
	for _, m := range modes() {
		names = append(names, m.name)
	}

	return names
}

func newBench(ctx context.Context, o options, out io.Writer) (*bench, error) {
	b := &bench{options: o, out: out}

	for _, name := range strings.FieldsFunc(o.only, func(r rune) bool { return r == ',' }) {
		if !slices.Contains(modeNames(), name) {
			return nil, fmt.Errorf("mode %q is unknown: use %s", name, strings.Join(modeNames(), ", "))
		}
	}

	var err error
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}

	b.nginx, _ = exec.LookPath("nginx")
	if o.generator != "go" {
		b.wrk, err = exec.LookPath("wrk")
	}

	if err != nil && o.generator == "wrk" {
		return nil, err
	}

	if b.dir, err = os.MkdirTemp("", "mcp-sidecar-bench"); err != nil {
		return nil, err
	}

	if b.sidecar == "" {
		b.sidecar = filepath.Join(b.dir, "mcp-sidecar")

		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.sidecar, "github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")

		if text, err := build.CombinedOutput(); err != nil {
			b.close()
			return nil, fmt.Errorf("building the sidecar: %w\n%s", err, text)
		}
	}

	addr, err := freeAddr()
	if err == nil {
		b.backend, err = start(ctx, "backend", addr, b.self, "backend", addr)
	}

	if err != nil {
		b.close()
		return nil, err
	}

	return b, nil
}

func (b *bench) close() {
	if b.backend != nil {
		b.backend.stop()
	}

	_ = os.RemoveAll(b.dir)
}

func (b *bench) run(ctx context.Context) error {
	generator := "wrk"
	if b.wrk == "" {
		generator = "the Go generator"
	}

	var uts syscall.Utsname

	_ = syscall.Uname(&uts)

	load, _ := os.ReadFile("/proc/loadavg")

	fmt.Fprintf(b.out, "%s %s/%s, %d CPUs, load before %s; %d rounds of %v, %d connections, load by %s\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		strings.Join(strings.Fields(string(load))[:min(3, len(strings.Fields(string(load))))], " "), b.rounds, b.time, b.connections, generator)

	if b.nginx == "" {
		fmt.Fprintln(b.out, "nginx is not installed: its rows are left out")
	}

	for _, m := range modes() {
		if b.only != "" && !slices.Contains(strings.Split(b.only, ","), m.name) {
			continue
		}

		if err := m.run(ctx, b); err != nil {
			return fmt.Errorf("measuring %s: %w", m.name, err)
		}
	}

	return nil
}

// startAll starts everything that is measured, afresh. The first is the backend
// itself, without anything between.
func (b *bench) startAll(ctx context.Context) ([]*program, func(), error) {
	all := []*program{{name: nameDirect, addr: b.backend.addr}}
	stop := func() {
		for _, p := range all[1:] {
			p.stop()
		}
	}

	for _, name := range []string{nameReverse, nameNginx, nameSidecar} {
		if name == nameNginx && b.nginx == "" {
			continue
		}

		p, err := b.start(ctx, name)
		if err != nil {
			stop()
			return nil, nil, err
		}

		all = append(all, p)
	}

	return all, stop, nil
}

func (b *bench) start(ctx context.Context, name string) (*program, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}

	switch name {
	case nameReverse:
		return start(ctx, name, addr, b.self, "reverse", addr, "http://"+b.backend.addr)
	case nameNginx:
		conf := filepath.Join(b.dir, "nginx.conf")
		if err := os.WriteFile(conf, nginxConf(b.dir, addr, b.backend.addr), 0o600); err != nil {
			return nil, err
		}

		return start(ctx, name, addr, b.nginx, "-c", conf, "-p", b.dir, "-e", filepath.Join(b.dir, "nginx.log"))
	default:
		state := filepath.Join(b.dir, "state.db")
		_ = os.Remove(state)

		return start(ctx, name, addr, b.sidecar, "run", "--upstream", "http://"+b.backend.addr+"/mcp", "--listen", addr,
			"--ops-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--state", state, "--log-format", "json")
	}
}

func nginxConf(dir, addr, backend string) []byte {
	return fmt.Appendf(nil, `daemon off;
worker_processes auto;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx.log crit;
worker_rlimit_nofile 20000;
events { worker_connections 20000; }
http {
  access_log off;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  keepalive_requests 1000000000;
  upstream backend { server %[3]s; keepalive 512; keepalive_requests 1000000000; }
  server {
    listen %[2]s backlog=4096;
    location / {
      proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 1h;
    }
  }
}
`, dir, addr, backend)
}

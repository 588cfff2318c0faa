package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
)

// sidecar is the sidecar's process and what the demo asks it.
type sidecar struct {
	*process

	url, ops, adminURL string
	client             *admin.Client
}

// startSidecar starts a sidecar with its state in dir and returns once it is ready.
func startSidecar(ctx context.Context, exe, dir, backend string, a *agents) (*sidecar, error) {
	addrs, err := freeAddresses(ctx, 3)
	if err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "agent-server.key")
	if err := os.WriteFile(key, []byte(a.key), 0o600); err != nil {
		return nil, fmt.Errorf("writing the agent server's key: %w", err)
	}
	p, err := startProcess(ctx, exe, "run",
		"--upstream", "http://"+backend+"/mcp",
		"--agent-server", a.url, "--agent-api-key-file", key,
		"--listen", addrs[0], "--ops-listen", addrs[1], "--admin-listen", addrs[2],
		"--state", filepath.Join(dir, "mcp-sidecar.db"))
	if err != nil {
		return nil, err
	}
	s := &sidecar{process: p, url: "http://" + addrs[0], ops: "http://" + addrs[1], adminURL: "http://" + addrs[2]}
	if s.client, err = admin.NewClient(s.adminURL, ""); err != nil {
		return nil, err
	}
	err = eventually(ctx, 10*time.Second, func() (bool, error) {
		resp, err := get(ctx, s.ops+"/readyz")
		if err != nil {
			return false, nil
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("waiting for the sidecar to be ready: %w\n%s", err, p.lastLog())
	}
	return s, nil
}

// events hands the sidecar's events to see, one after the other, until ctx ends.
func (s *sidecar) events(ctx context.Context, see func(admin.Event)) error {
	resp, err := get(ctx, s.adminURL+"/v1/events")
	if err != nil {
		return fmt.Errorf("reading the sidecar's events: %w", err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e admin.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("reading the sidecar's events: %w", err)
		}
		see(e)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the sidecar's events ended: %w", lines.Err())
}

// metric adds up the samples of a metric whose labels contain all given pairs, such as result="success".
func (s *sidecar) metric(ctx context.Context, name string, labels ...string) (int, error) {
	resp, err := get(ctx, s.ops+"/metrics")
	if err != nil {
		return 0, fmt.Errorf("reading the sidecar's metrics: %w", err)
	}
	defer resp.Body.Close()
	sum := 0.0
	lines := bufio.NewScanner(resp.Body)
next:
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "mcp_sidecar_"+name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("reading the sidecar's metrics: %w", err)
		}
		sum += v
	}
	return int(sum), lines.Err()
}

func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req) //nolint:forbidigo // nothing to configure
}

// eventually asks until the answer is yes. An error of ask ends the wait.
func eventually(ctx context.Context, within time.Duration, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("still not so after %s", within))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ask(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

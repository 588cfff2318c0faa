package main

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
)

// sidecar is a sidecar that is measured by itself.
type sidecar struct {
	*program

	began time.Time // just before it was started
	ops   string    // address
	admin string    // address
	api   *admin.Client
}

// launchSidecar starts a sidecar in front of a backend.
func (b *bench) launchSidecar(ctx context.Context, backend string, args ...string) (*sidecar, error) {
	var addrs [3]string
	for i := range addrs {
		var err error
		if addrs[i], err = freeAddr(); err != nil {
			return nil, err
		}
	}

	s := &sidecar{ops: addrs[1], admin: addrs[2]}

	var err error
	if s.api, err = admin.NewClient(addrs[2], ""); err != nil {
		return nil, err
	}

	s.began = time.Now()
	s.program, err = launch(ctx, nameSidecar, addrs[0], b.sidecar, append([]string{
		"run", "--upstream", "http://" + backend + "/mcp", "--listen", addrs[0], "--ops-listen", addrs[1], "--admin-listen", addrs[2], "--log-format", "json",
	}, args...)...)

	return s, err
}

func (s *sidecar) stop() {
	s.api.Close()
	s.program.stop()
}

// waitReady waits until the sidecar says that it is ready.
func (s *sidecar) waitReady(ctx context.Context) error {
	return s.wait(ctx, "it isn't ready", func() bool {
		status, _, err := s.get(ctx, "/readyz")
		return err == nil && status == http.StatusOK
	})
}

// waitSettled waits until the tools of the backend are known.
func (s *sidecar) waitSettled(ctx context.Context) (found admin.Server, err error) {
	err = s.wait(ctx, "the tools don't settle", func() bool {
		servers, err := s.api.Servers(ctx)
		if err != nil || len(servers) != 1 {
			return false
		}

		found = servers[0]

		return found.State == "settled" && found.Generation > 0
	})

	return found, err
}

// get asks the ops listener.
func (s *sidecar) get(ctx context.Context, path string) (status int, body string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.ops+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}

	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()

	b, err := io.ReadAll(resp.Body)

	return resp.StatusCode, string(b), err
}

// metric reads one series, as it is written.
func (s *sidecar) metric(ctx context.Context, series string) (float64, error) {
	_, page, err := s.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(page) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}

	return 0, nil
}

package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// mode is what an agent server offers for a refresh.
type mode int

const (
	modeUnknown   mode = iota
	modeRefresh        // the refresh action
	modeReconnect      // only reconnect_mcp
	modeNone           // neither
)

const (
	// infoInterval is how long a verdict other than modeRefresh is used without
	// asking whether the agent server was replaced.
	infoInterval = time.Minute
	// probeInterval is how long it is used at all.
	probeInterval = 10 * time.Minute
	// startSlack is what two readings of one start time may differ by.
	startSlack = 5 * time.Second
)

// support remembers what an agent server offers, so that not every conversation
// has to find out.
type support struct {
	mu       sync.Mutex
	mode     mode
	probedAt time.Time
	infoAt   time.Time
	started  time.Time // when the agent server started, zero when unknown
	version  string
}

func (s *support) current() mode {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.mode
}

func (s *support) set(m mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != m {
		s.infoAt = time.Time{} // learn the baseline before the verdict is used
	}
	s.mode = m
	s.probedAt = time.Now()
}

// infoDue tells, to one caller per interval, to ask for the server's info.
func (s *support) infoDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != modeReconnect && s.mode != modeNone {
		return false
	}
	if time.Since(s.probedAt) >= probeInterval {
		s.mode = modeUnknown

		return false
	}
	if time.Since(s.infoAt) < infoInterval {
		return false
	}
	s.infoAt = time.Now()

	return true
}

// learn forgets the verdict when the info is that of another process or version.
func (s *support) learn(i serverInfo) {
	started := time.Now().Add(-time.Duration(i.Uptime * float64(time.Second)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started.IsZero() && (i.Version != s.version || started.Sub(s.started) > startSlack) {
		s.mode = modeUnknown
	}
	s.started, s.version = started, i.Version
}

// serverInfo is what we read of GET /server_info.
type serverInfo struct {
	Uptime  float64 `json:"uptime"` // seconds
	Version string  `json:"version"`
}

// info asks an agent server about itself, without the need for a key.
func (c *client) info(ctx context.Context) (serverInfo, *Error) {
	a, err := c.do(ctx, http.MethodGet, c.server.URL.JoinPath("/server_info"))
	if err != nil {
		return serverInfo{}, err
	}
	var i serverInfo
	if a.cut || json.Unmarshal(a.body, &i) != nil {
		return serverInfo{}, &Error{Reason: ReasonOther, Status: a.status, Err: errors.New("server_info is not the expected JSON")}
	}

	return i, nil
}

// recheck asks now and then whether an agent server without the refresh action
// was replaced by one that may have it.
func (c *client) recheck(ctx context.Context) {
	if !c.support.infoDue() {
		return
	}
	if i, err := c.info(ctx); err == nil {
		c.support.learn(i)
	}
}

// reconnected is the answer of reconnect_mcp.
type reconnected struct {
	Servers []reconnectedServer `json:"servers"`
}

type reconnectedServer struct {
	Server    string          `json:"server"`
	Connected *bool           `json:"connected"`
	Error     json.RawMessage `json:"error"`
}

// failed tells whether the agent server has no connection to this MCP server. A
// report without the members counts as none.
func (s reconnectedServer) failed() bool {
	if s.Connected != nil && !*s.Connected {
		return true
	}
	e := string(s.Error)

	return e != "" && e != "null" && e != `""`
}

// reconnect is the second best action: it makes new connections, and tells about
// each.
func (c *client) reconnect(ctx context.Context, cl call) error {
	a, absent, err := c.act(ctx, cl.id, reconnectPath, modeReconnect)
	switch {
	case absent:
		c.support.set(modeNone)

		return errUnsupported()
	case err != nil:
		return err
	default:
		return a.connected(cl.servers)
	}
}

// connected reads an answer of reconnect_mcp. The names in it are those of the
// agent's configuration: where one of them is ours, only ours matter, else all.
func (a *answer) connected(ours []string) error {
	var r reconnected
	_ = json.Unmarshal(a.body, &r) // 2xx without a report is as good as any other 2xx
	matters := func(s reconnectedServer) bool { return slices.Contains(ours, s.Server) }
	if !slices.ContainsFunc(r.Servers, matters) {
		matters = func(reconnectedServer) bool { return true }
	}
	for _, s := range r.Servers {
		if matters(s) && s.failed() {
			return &Error{
				Reason: ReasonNotConnected, Status: a.status,
				Err: fmt.Errorf("the agent server has no connection to its MCP server %s: %s",
					redactText(s.Server, a.secrets...), redactText(string(s.Error), a.secrets...)),
			}
		}
	}

	return nil
}

package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	testPath      = "/api/conversations/" + testID
	testRefresh   = testPath + "/refresh_mcp_tools"
	testReconnect = testPath + "/reconnect_mcp"
)

func TestWhatA404Means(t *testing.T) {
	tests := map[string]struct {
		answers map[string]func(http.ResponseWriter, *http.Request)
		want    Reason
		asked   []string
	}{
		"gone": {
			answers: map[string]func(http.ResponseWriter, *http.Request){"GET " + testRefresh: status(405, `{"detail":"Method Not Allowed"}`)},
			want:    ReasonGone,
			asked:   []string{"POST " + testRefresh, "GET " + testRefresh, "GET " + testPath},
		},
		"conversation's 404 is an ingress page": {
			answers: map[string]func(http.ResponseWriter, *http.Request){
				"GET " + testRefresh: status(405, ""), "GET " + testPath: status(404, "<html>"),
			},
			want: ReasonIngress,
		},
		"lease held elsewhere": {
			answers: map[string]func(http.ResponseWriter, *http.Request){
				"GET " + testRefresh: status(405, ""), "GET " + testPath: status(200, `{"id":"x"}`),
			},
			want: ReasonLeaseHeld,
		},
		"conversation unreadable": {
			answers: map[string]func(http.ResponseWriter, *http.Request){
				"GET " + testRefresh: status(405, ""), "GET " + testPath: status(401, `{"detail":"Unauthorized"}`),
			},
			want: ReasonAuth,
		},
		"everything behind a page": {
			answers: map[string]func(http.ResponseWriter, *http.Request){"POST " + testRefresh: status(404, "404 page not found")},
			want:    ReasonIngress,
			asked:   []string{"POST " + testRefresh},
		},
		"GET on the action says nothing": {
			answers: map[string]func(http.ResponseWriter, *http.Request){"GET " + testRefresh: status(200, `{}`)},
			want:    ReasonNotFound,
		},
		"410": {
			answers: map[string]func(http.ResponseWriter, *http.Request){
				"POST " + testRefresh: status(410, `{"detail":"Gone"}`), "GET " + testRefresh: status(405, ""),
			},
			want: ReasonGone,
		},
		"no action at all": {
			want:  ReasonUnsupported,
			asked: []string{"POST " + testRefresh, "GET " + testRefresh, "POST " + testReconnect, "GET " + testReconnect},
		},
		"only reconnect": {
			answers: map[string]func(http.ResponseWriter, *http.Request){
				"POST " + testReconnect: status(200, `{"servers":[{"server":"default","connected":true,"error":null}]}`),
			},
			asked: []string{"POST " + testRefresh, "GET " + testRefresh, "POST " + testReconnect},
		},
		"reconnect without a connection": {
			answers: map[string]func(http.ResponseWriter, *http.Request){
				"POST " + testReconnect: status(200, `{"servers":[{"server":"default","connected":false,"error":"boom"}]}`),
			},
			want: ReasonNotConnected,
		},
		"reconnect, another server has none": {
			answers: map[string]func(http.ResponseWriter, *http.Request){
				"POST " + testReconnect: status(200, `{"servers":[{"server":"default","connected":true},{"server":"other","connected":false}]}`),
			},
		},
		"reconnect, no name is ours": {
			answers: map[string]func(http.ResponseWriter, *http.Request){
				"POST " + testReconnect: status(200, `{"servers":[{"server":"tools","connected":true,"error":"x"}]}`),
			},
			want: ReasonNotConnected,
		},
		"reconnect knows no such conversation": {
			answers: map[string]func(http.ResponseWriter, *http.Request){"GET " + testReconnect: status(405, "")},
			want:    ReasonGone,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakeAgentServer(t)
			for line, answer := range tt.answers {
				f.on(line, answer)
			}
			c := newTestClient(t, f.URL)
			err := c.refresh(t.Context(), call{id: testID, servers: []string{"default"}})
			if got := ReasonOf(err); got != tt.want {
				t.Errorf("got %q, want %q (%v)", got, tt.want, err)
			}
			if asked := f.taken(); tt.asked != nil {
				if diff := cmp.Diff(tt.asked, asked); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestSupportIsRemembered(t *testing.T) {
	f := newFakeAgentServer(t)
	f.on("GET /server_info", status(200, `{"uptime":1000,"version":"1.43.1"}`))
	c := newTestClient(t, f.URL)
	refresh := func() Reason { return ReasonOf(c.refresh(t.Context(), call{id: testID})) }

	if got := refresh(); got != ReasonUnsupported {
		t.Fatalf("first: %q", got)
	}
	f.taken()
	refresh() // learns the baseline
	if diff := cmp.Diff([]string{"GET /server_info"}, f.taken()); diff != "" {
		t.Errorf("second (-want +got):\n%s", diff)
	}
	if got := refresh(); got != ReasonUnsupported || len(f.taken()) != 0 {
		t.Errorf("third: %q, and it asked", got)
	}

	// The agent server is replaced by one that has the action.
	f.on("GET /server_info", status(200, `{"uptime":2,"version":"1.58.2"}`))
	f.on("POST "+testRefresh, status(200, `{"success":true}`))
	c.support.mu.Lock()
	c.support.infoAt = time.Now().Add(-2 * infoInterval)
	c.support.mu.Unlock()
	if got := refresh(); got != "" {
		t.Errorf("after the update: %q", got)
	}
	if diff := cmp.Diff([]string{"GET /server_info", "POST " + testRefresh}, f.taken()); diff != "" {
		t.Errorf("after the update (-want +got):\n%s", diff)
	}

	// Somebody who asks for a refresh gets one, whatever is remembered.
	c.support.set(modeNone)
	if err := c.refresh(t.Context(), call{id: testID, forced: true}); err != nil {
		t.Errorf("forced: %v", err)
	}
}

func TestSupportEndsByItself(t *testing.T) {
	s := &support{}
	s.set(modeNone)
	if s.infoDue() != true || s.infoDue() != false {
		t.Error("info is due once, right after the verdict")
	}
	s.probedAt = time.Now().Add(-probeInterval)
	if s.infoDue() || s.current() != modeUnknown {
		t.Error("an old verdict is not forgotten")
	}
}

func TestKeyIsReadOnEveryAttempt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old-key\n")
	f := newFakeAgentServer(t)
	var seen []string
	f.on("POST "+testRefresh, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get(keyHeader))
		if r.Header.Get(keyHeader) == "new-key" {
			status(200, "")(w, r)

			return
		}
		write(" new-key\r\n") // rotated between the attempts
		status(401, `{"detail":"Unauthorized"}`)(w, r)
	})
	c := newTestClient(t, f.URL, withKey(func() (string, error) {
		b, err := os.ReadFile(file)

		return string(b), err
	}))
	if err := c.refresh(t.Context(), call{id: testID}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"old-key", "new-key"}, seen); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestUnusableKeys(t *testing.T) {
	tests := map[string]struct {
		key      string
		err      error
		contains string
	}{
		"empty":      {key: " \n", contains: "is empty: write the key into its file"},
		"unreadable": {err: os.ErrNotExist, contains: "file does not exist"},
		"two lines":  {key: "k3y-one\nk3y-two", contains: "must hold the key alone"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakeAgentServer(t)
			c := newTestClient(t, f.URL, withKey(func() (string, error) { return tt.key, tt.err }))
			err := c.refresh(t.Context(), call{id: testID})
			if ReasonOf(err) != ReasonCredential || !strings.Contains(err.Error(), tt.contains) || strings.Contains(err.Error(), "k3y") {
				t.Errorf("got %q: %v", ReasonOf(err), err)
			}
			if asked := f.taken(); len(asked) != 0 {
				t.Errorf("asked without a key: %v", asked)
			}
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer other.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		f := newFakeAgentServer(t)
		f.on("POST "+testRefresh, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/x?q=canary", code)
		})
		c := newTestClient(t, f.URL, withKey(func() (string, error) { return "key", nil }))
		err := c.refresh(t.Context(), call{id: testID})
		if ReasonOf(err) != ReasonRedirect || strings.Contains(err.Error(), "canary") {
			t.Errorf("%d: got %q: %v", code, ReasonOf(err), err)
		}
		if n := len(f.taken()); n != 1 {
			t.Errorf("%d: %d requests", code, n)
		}
	}
	if reached.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestTransportFailures(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	hijack := func(answer string, linger int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)

				return
			}
			_, err = io.WriteString(conn, answer)
			if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
				err = tcp.SetLinger(linger)
			}
			if err = errors.Join(err, conn.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	tests := map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		url    string
		want   Reason
	}{
		"refused":         {url: closed.URL, want: ReasonNetwork},
		"reset":           {answer: hijack("", 0), want: ReasonNetwork},
		"closed":          {answer: hijack("", -1), want: ReasonNetwork},
		"not HTTP":        {answer: hijack("SSH-2.0-canary\r\n", -1), want: ReasonNetwork},
		"unknown name":    {url: "http://agent-server.invalid", want: ReasonNetwork},
		"body breaks off": {answer: hijack("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", -1)},
		"malformed redirect": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://[canary-in-query")
			w.WriteHeader(http.StatusFound)
		}, want: ReasonOther},
		"metadata address": {url: "http://169.254.169.254", want: ReasonForbiddenAddress},
		"mapped":           {url: "http://[::ffff:a9fe:a9fe]", want: ReasonForbiddenAddress},
		"unspecified":      {url: "http://0.0.0.0:1", want: ReasonForbiddenAddress},
		"TLS to plain":     {url: strings.Replace(newFakeAgentServer(t).URL, "http", "https", 1), want: ReasonTLS},
		"hangs": {answer: func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}, want: ReasonTimeout},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAgentServer(t)
			if tt.answer != nil {
				f.on("POST "+testRefresh, tt.answer)
			}
			if tt.url == "" {
				tt.url = f.URL
			}
			c := newTestClient(t, tt.url+"?k=canary-in-query", withKey(func() (string, error) { return "canary-key", nil }))
			ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errCallTimeout)
			if tt.want != ReasonTimeout {
				cancel()
				ctx, cancel = context.WithTimeoutCause(t.Context(), time.Minute, errCallTimeout)
			}
			defer cancel()
			err := c.refresh(ctx, call{id: testID})
			if got := ReasonOf(err); got != tt.want {
				t.Errorf("got %q, want %q (%v)", got, tt.want, err)
			}
			if err != nil && (strings.Contains(err.Error(), "canary-") || strings.Contains(err.Error(), testRefresh)) {
				t.Errorf("the text tells too much: %v", err)
			}
		})
	}
}

func TestEndlessBodiesAreCut(t *testing.T) {
	f := newFakeAgentServer(t)
	var sent atomic.Int64
	f.on("POST "+testRefresh, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		chunk := []byte(strings.Repeat("y", 32<<10))
		for r.Context().Err() == nil {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	c := newTestClient(t, f.URL)
	err := c.refresh(t.Context(), call{id: testID})
	if ReasonOf(err) != ReasonServerError || len(err.Error()) > maxErrorText+100 {
		t.Errorf("got %q: %.100v", ReasonOf(err), err)
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	var peers sync.Map
	f := newFakeAgentServer(t)
	f.on("POST "+testRefresh, func(w http.ResponseWriter, r *http.Request) {
		peers.Store(r.RemoteAddr, true)
		status(200, `{"success":true}`)(w, r)
	})
	c := newTestClient(t, f.URL)
	for range 20 {
		if err := c.refresh(t.Context(), call{id: testID}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	peers.Range(func(any, any) bool { n++; return true })
	if n > 1 {
		t.Errorf("%d connections for 20 calls in a row", n)
	}
}

func TestRetryAfterInsideACall(t *testing.T) {
	for _, tt := range []struct {
		after    string
		requests int
		atLeast  time.Duration
	}{
		{after: "60", requests: 1},
		{after: "1", requests: 2, atLeast: time.Second},
	} {
		f := newFakeAgentServer(t)
		f.on("POST "+testRefresh, func(w http.ResponseWriter, r *http.Request) {
			f.on("POST "+testRefresh, status(200, ""))
			w.Header().Set("Retry-After", tt.after)
			status(503, `{"detail":"busy"}`)(w, r)
		})
		c := newTestClient(t, f.URL)
		began := time.Now()
		err := c.refresh(t.Context(), call{id: testID})
		if took := time.Since(began); took < tt.atLeast {
			t.Errorf("Retry-After %s: only %v", tt.after, took)
		}
		if n := len(f.taken()); n != tt.requests {
			t.Errorf("Retry-After %s: %d requests, want %d", tt.after, n, tt.requests)
		}
		if tt.requests == 1 && asError(err).RetryAfter != time.Minute {
			t.Errorf("the wait is not handed on: %v", err)
		}
	}
}

func TestGateEndsACall(t *testing.T) {
	f := newFakeAgentServer(t)
	f.on("POST "+testRefresh, status(500, `{"detail":"x"}`))
	c := newTestClient(t, f.URL)
	superseded := &Error{Reason: ReasonSuperseded, Err: errors.New("newer")}
	asked := 0
	err := c.refresh(t.Context(), call{id: testID, gate: func() error {
		asked++
		if asked > 1 {
			return superseded
		}

		return nil
	}})
	if ReasonOf(err) != ReasonSuperseded || len(f.taken()) != 1 {
		t.Errorf("got %q: %v", ReasonOf(err), err)
	}
}

func TestCheckAddress(t *testing.T) {
	for _, s := range []string{
		"169.254.169.254", "169.254.0.1", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe",
		"2002:a9fe:a9fe::1", "::a9fe:a9fe", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fd20:ce::254", "0.0.0.0", "::", "::ffff:0.0.0.0",
		"224.0.0.1", "ff02::1", "255.255.255.255", "100.100.100.200", "168.63.129.16", "::ffff:100.100.100.200",
	} {
		if err := CheckAddress(netip.MustParseAddr(s)); !errors.Is(err, ErrForbiddenAddress) {
			t.Errorf("%s is allowed", s)
		}
	}
	for _, s := range []string{"127.0.0.1", "::1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "fd00::1", "203.0.113.7", "2001:db8::1", "::ffff:10.0.0.1"} {
		if err := CheckAddress(netip.MustParseAddr(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	if CheckAddress(netip.Addr{}) == nil {
		t.Error("no address is allowed")
	}
}

func TestAgentServerValidate(t *testing.T) {
	valid := DefaultAgentServer("default", mustURL(t, "http://127.0.0.1:8000/prefix?k=v"))
	if err := valid.validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*AgentServer){
		"name":     func(s *AgentServer) { s.Name = "" },
		"no url":   func(s *AgentServer) { s.URL = nil },
		"scheme":   func(s *AgentServer) { s.URL = mustURL(t, "gopher://host/") },
		"host":     func(s *AgentServer) { s.URL = mustURL(t, "http:///x") },
		"userinfo": func(s *AgentServer) { s.URL = mustURL(t, "http://me@host/") },
		"metadata": func(s *AgentServer) { s.URL = mustURL(t, "http://169.254.169.254/") },
		"bound":    func(s *AgentServer) { s.Concurrency = 0 },
		"path":     func(s *AgentServer) { s.RefreshPath = "/refresh" },
	} {
		s := valid
		change(&s)
		if s.validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	c := newTestClient(t, "http://host/prefix/?k=v")
	if got, want := c.action("a.b", c.server.RefreshPath).String(), "http://host/prefix/api/conversations/a.b/refresh_mcp_tools?k=v"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestReasonOf(t *testing.T) {
	wrapped := fmt.Errorf("refreshing: %w", &Error{Reason: ReasonAuth, Err: os.ErrPermission})
	if ReasonOf(wrapped) != ReasonAuth || !errors.Is(wrapped, os.ErrPermission) {
		t.Error("a wrapped reason is lost")
	}
	if ReasonOf(nil) != "" || ReasonOf(os.ErrExist) != ReasonOther || ReasonOf(&Error{Reason: "invented"}) != ReasonOther {
		t.Error("the set is not closed")
	}
}

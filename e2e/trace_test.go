//go:build unix

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// spans is who receives spans over OTLP.
type spans struct {
	t   *testing.T
	url string

	mu   sync.Mutex
	raw  []byte // everything that was sent, decompressed
	all  []*v1.Span
	name string // of the service
	key  string
}

func receiveSpans(t *testing.T) *spans {
	t.Helper()
	s := &spans{t: t}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// ServeHTTP implements the OTLP/HTTP receiver.
func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			s.t.Error(err)
			return
		}
		in = z
	}
	raw, err := io.ReadAll(in)
	var export v1.TracesData // the same as an ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(raw, &export) != nil {
		s.t.Errorf("%s isn't an export: %v", r.URL.Path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw, s.key = append(s.raw, raw...), r.Header.Get("X-Key")
	for _, rs := range export.GetResourceSpans() {
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				s.name = a.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			s.all = append(s.all, ss.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// find returns the spans of a name whose attributes contain these.
func (s *spans) find(name string, attributes map[string]string) []*v1.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*v1.Span
	for _, span := range s.all {
		matches := 0
		for _, a := range span.GetAttributes() {
			if want, ok := attributes[a.GetKey()]; ok && want == a.GetValue().GetStringValue() {
				matches++
			}
		}
		if span.GetName() == name && matches == len(attributes) {
			found = append(found, span)
		}
	}
	return found
}

// headers collects the trace headers that somebody gets.
type headers struct {
	mu  sync.Mutex
	all []string
}

func (h *headers) note(r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, r.Header.Get("Traceparent"))
}

func (h *headers) has(span *v1.Span) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.all {
		if strings.HasPrefix(v, "00-"+hex.EncodeToString(span.GetTraceId())+"-"+hex.EncodeToString(span.GetSpanId())) {
			return true
		}
	}
	return false
}

// TestSpans sends spans of a call, a swap and a refresh, which continue the
// client's trace and are continued by the backend and the agent server. No secret
// and no id is in them.
func TestSpans(t *testing.T) {
	t.Parallel()
	receiver := receiveSpans(t)
	b := startBackend(t)
	a := startAgents(t)
	var atBackend, atAgents headers
	target, err := url.Parse("http://" + b.addr)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		atBackend.note(r.In)
	}})
	t.Cleanup(front.Close)
	a.intercept(func(_ http.ResponseWriter, r *http.Request, _ string) bool { atAgents.note(r); return false })

	s := newSidecar(t, "--upstream", front.URL+"/mcp", "--agent-server", a.url())
	cmd := exec.Command(sidecarPath, s.flags()...)
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.url, "OTEL_EXPORTER_OTLP_HEADERS=x-key=of-the-receiver",
		"OTEL_SERVICE_NAME=tools", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip")
	s.p = proc.StartWith(t, cmd)
	proc.WaitListening(t, s.listen)
	s.waitSettled(1)
	a.converse(id(0), s.url(), nil)
	s.register(id(0))
	s.waitCurrent(1)

	c := connect(t, s.url())
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c.header.Set("Traceparent", parent)
	c.header.Set("Authorization", "Bearer hush-hush")
	if _, err := c.call(t.Context(), "echo", map[string]string{"text": "hush-hush"}); err != nil {
		t.Fatal(err)
	}
	c.header.Del("Traceparent")
	b.kill()
	b.start("v2")
	s.waitSettled(2)
	s.waitCurrent(1)
	if code := s.p.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	calls := receiver.find("tools/call", map[string]string{"mcp.method.name": "tools/call", "mcp_sidecar.server": "default", "mcp_sidecar.outcome": "ok"})
	if len(calls) != 1 {
		t.Fatalf("%d spans of one call", len(calls))
	}
	if got := hex.EncodeToString(calls[0].GetTraceId()) + "-" + hex.EncodeToString(calls[0].GetParentSpanId()); !strings.Contains(parent, got) {
		t.Errorf("the call's span has the parent %s", got)
	}
	if !atBackend.has(calls[0]) {
		t.Error("the backend can't continue the trace")
	}
	if n := len(receiver.find("swap", map[string]string{"mcp_sidecar.server": "default", "mcp_sidecar.outcome": "settled"})); n != 1 {
		t.Errorf("%d spans of one swap", n)
	}
	refreshes := receiver.find("refresh", map[string]string{"mcp_sidecar.agent_server": "default"})
	if len(refreshes) == 0 || !atAgents.has(refreshes[len(refreshes)-1]) {
		t.Errorf("%d spans of refreshes, which the agent server can't continue", len(refreshes))
	}
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	if receiver.name != "tools" || receiver.key != "of-the-receiver" {
		t.Errorf("the spans are of %q, with the key %q", receiver.name, receiver.key)
	}
	for _, secret := range []string{"hush-hush", c.session, id(0), a.addr, b.addr} {
		if bytes.Contains(receiver.raw, []byte(secret)) {
			t.Errorf("%q is in the spans", secret)
		}
	}
}

// TestSpansAreOff: without the variables nothing is added to requests.
func TestSpansAreOff(t *testing.T) {
	t.Parallel()
	receiver := receiveSpans(t)
	b := startBackend(t)
	s := newSidecar(t, "--upstream", b.url())
	cmd := exec.Command(sidecarPath, s.flags()...)
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.url, "OTEL_SDK_DISABLED=true")
	s.p = proc.StartWith(t, cmd)
	proc.WaitListening(t, s.listen)
	s.waitSettled(1)
	connect(t, s.url()).tools()
	if code := s.p.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	if len(receiver.raw) > 0 {
		t.Error("spans are sent")
	}
}

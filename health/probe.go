package health

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// signals are what a prober reports by itself. Its functions are safe for concurrent use and return at once.
type signals struct {
	lost        func() // a connection that should have stayed ended
	ended       func() // the probe's stream ended, or something else that is worth a look
	listChanged func() // the backend said that its tools changed
}

// answer is what any good answer of the backend tells.
type answer struct {
	identity string // value of the configured header; empty if there is none
}

// hello is what a handshake tells.
type hello struct {
	answer
	name, version string // serverInfo
}

// probe asks one backend over HTTP. Only run may run concurrently with the other methods, which are called one at a time.
type probe struct {
	cfg     *Config
	metrics *Metrics
	log     *slog.Logger
	signals signals

	client *http.Client
	rpc    transport.Interface // streamable HTTP, or the SSE stream of the moment
	stream *sseStream          // with TransportSSE, once connected
	ids    atomic.Int64
	link   atomic.Pointer[link] // nil until the first handshake

	sentinel *sentinel // nil where connections aren't ours
	watcher  *watcher  // nil where nobody listens
}

// newProbe returns a probe that opens connections only when it is asked. With watching, it also keeps a connection and a
// stream open while run runs.
func newProbe(cfg *Config, d Deps, m *Metrics, log *slog.Logger, s signals, watching bool) (*probe, error) {
	p := &probe{cfg: cfg, metrics: m, log: log, signals: s}
	headers := &headerSource{ask: cfg.Headers, log: log}
	wrap := func(next http.RoundTripper) http.RoundTripper {
		return &wire{next: next, headers: headers, origin: cfg.URL, identity: cfg.IdentityHeader, limit: cfg.MaxListBytes}
	}
	newClient := func() *http.Client {
		base := d.Transport
		if base == nil {
			base = newTransport(d, cfg)
		}
		return &http.Client{Transport: wrap(base), CheckRedirect: sameOrigin}
	}
	p.client = newClient()
	if watching && cfg.Transport != TransportSSE {
		// When a process on its way out ends the stream, the connection is free again. The next handshake must not get it.
		p.watcher = newWatcher(newClient(), cfg, log, s)
		if d.Transport == nil {
			p.sentinel = newSentinel(d, cfg, wrap, p.cheapRequest, s)
		}
	}
	if cfg.Transport != TransportSSE {
		rpc, err := transport.NewStreamableHTTP(cfg.URL.String(), transport.WithHTTPBasicClient(p.client),
			// Its messages may hold URLs and bodies. What matters is in our errors.
			transport.WithHTTPLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return nil, err
		}
		rpc.SetNotificationHandler(p.notified)
		rpc.SetRequestHandler(answerRequest)
		p.rpc = rpc
	}
	return p, nil
}

// run keeps the sentinel and the watch going until ctx ends.
func (p *probe) run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p.sentinel != nil {
			p.sentinel.run(ctx)
		}
	}()
	if p.watcher != nil {
		p.watcher.run(ctx)
	}
	<-done
}

func (p *probe) notified(n mcp.JSONRPCNotification) {
	if n.Method == mcp.MethodNotificationToolsListChanged {
		p.signals.listChanged()
	}
}

// answerRequest answers the server's requests: a ping must be answered, and nothing else was offered.
func answerRequest(_ context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	if req.Method == string(mcp.MethodPing) {
		return transport.NewJSONRPCResultResponse(req.ID, json.RawMessage("{}")), nil
	}
	return transport.NewJSONRPCErrorResponse(req.ID, mcp.METHOD_NOT_FOUND, "not offered by this client", nil), nil
}

// call sends one request over l. The error is an [*Error].
func (p *probe) call(ctx context.Context, l *link, probe, method string, params map[string]any) (json.RawMessage, outcome, error) {
	for again := false; ; again = true {
		x := l.exchange()
		req := transport.JSONRPCRequest{
			JSONRPC: mcp.JSONRPC_VERSION,
			ID:      mcp.NewRequestId(p.ids.Add(1)),
			Method:  method,
			Header:  l.headers(method),
		}
		if all := l.params(params); all != nil {
			req.Params = all
		}
		resp, err := p.rpc.SendRequest(withExchange(ctx, x), req)
		var rpc *rpcError
		if err == nil && resp.Error != nil {
			rpc = &rpcError{Code: resp.Error.Code, Message: resp.Error.Message}
		}
		if p.stream.over() {
			return nil, x.result(), failure(probe, ReasonReset, "%w", errStreamEnded)
		}
		if e := classify(ctx, probe, x, err, rpc); e != nil {
			if o := x.result(); e.Reason == ReasonReset && o.reused && !again {
				p.drop() // it was a connection that had ended meanwhile
				continue
			}
			return nil, x.result(), e
		}
		return resp.Result, x.result(), nil
	}
}

// drop closes the connections that wait for use.
func (p *probe) drop() { p.client.CloseIdleConnections() }

// timed runs one probe within its time, and counts it.
func (p *probe) timed(ctx context.Context, probe string, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	p.metrics.probed(p.cfg.Server, probe, time.Since(began), err)
	return err
}

// health asks the HTTP health path.
func (p *probe) health(ctx context.Context) (answer, error) {
	var a answer
	err := p.timed(ctx, ProbeHealth, p.cfg.ProbeTimeout, func(ctx context.Context) error {
		x := &exchange{}
		req, err := http.NewRequestWithContext(withExchange(ctx, x), http.MethodGet, p.cfg.HealthURL.String(), http.NoBody)
		if err != nil {
			return failure(ProbeHealth, ReasonInvalid, "making the request: %w", err)
		}
		resp, err := p.client.Do(req)
		if err == nil {
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, headLimit))
		}
		o := x.result()
		a.identity = o.identity
		switch {
		case err != nil:
			return classify(ctx, ProbeHealth, x, err, nil)
		case o.status < http.StatusOK || o.status >= http.StatusMultipleChoices:
			return failure(ProbeHealth, ReasonNotReady, "the health path answered %d %s", o.status, http.StatusText(o.status))
		default:
			return nil
		}
	})
	return a, err
}

// ping asks the process of the last handshake for a sign of life. Any JSON-RPC answer is one. That a session is unknown is
// reported only after a second ping said the same.
func (p *probe) ping(ctx context.Context) (answer, error) {
	var a answer
	err := p.timed(ctx, ProbePing, p.cfg.ProbeTimeout, func(ctx context.Context) error {
		for confirm := false; ; confirm = true {
			l := p.link.Load()
			_, o, err := p.call(ctx, l, ProbePing, l.pingMethod(), nil)
			a.identity = o.identity
			switch reason := reasonOf(err); {
			case reason == "" || reason == ReasonRPCError:
				p.arm()
				return nil
			case reason != ReasonSessionLost || confirm:
				return err
			}
		}
	})
	return a, err
}

func (p *probe) arm() {
	if p.sentinel != nil {
		p.sentinel.arm()
	}
}

// held reports whether the process of that time certainly still serves.
func (p *probe) held(ctx context.Context, at time.Time) bool {
	switch {
	case p.stream != nil:
		_, err := p.ping(ctx)
		return err == nil
	case p.sentinel != nil:
		return p.sentinel.held(ctx, at)
	default:
		return false
	}
}

// cheapRequest makes the request that the sentinel's connection serves.
func (p *probe) cheapRequest(ctx context.Context) (*http.Request, error) {
	if h := p.cfg.HealthURL; h != nil && h.Host == p.cfg.URL.Host {
		return http.NewRequestWithContext(ctx, http.MethodGet, h.String(), http.NoBody)
	}
	l := p.link.Load()
	if l == nil {
		l = &link{era: eraLegacy} // it wants credentials; any answer will do
	}
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		x.session, x.version = l.session, l.version
	}
	return l.request(ctx, p.cfg.URL.String(), l.pingMethod(), p.ids.Add(1), nil)
}

// close ends the session, if there is one, and every connection.
func (p *probe) close(ctx context.Context) {
	if l := p.link.Swap(nil); l != nil {
		p.endSession(ctx, l)
	}
	p.stream.close()
	if p.rpc != nil {
		_ = p.rpc.Close() // it has no session to end
	}
	p.drop()
	if p.watcher != nil {
		p.watcher.client.CloseIdleConnections()
	}
}

// endSession tells the backend that a session isn't needed any more. It may not care (405), or be gone.
func (p *probe) endSession(ctx context.Context, l *link) {
	if l.session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ProbeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(withExchange(ctx, l.exchange()), http.MethodDelete, p.cfg.URL.String(), http.NoBody)
	if err != nil {
		return
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.log.Debug("could not end the probe's session", "reason", reasonOf(classify(ctx, ProbeConnect, l.exchange(), err, nil)))
		return
	}
	_ = resp.Body.Close()
}

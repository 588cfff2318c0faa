package health

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/client/transport"
)

var errStreamEnded = errors.New("the event stream ended, and the session with it")

// sseStream is a connection of the transport of 2024-11-05: a session that lives as long as its stream. The methods work on
// nil too.
type sseStream struct {
	*transport.SSE
	ended atomic.Bool
}

func (s *sseStream) over() bool { return s != nil && s.ended.Load() }

func (s *sseStream) close() {
	if s != nil {
		s.ended.Store(true)
		_ = s.Close()
	}
}

// dialSSE opens a stream in place of the one of before, and does the handshake on it.
func (p *probe) dialSSE(ctx context.Context, h *hello) (*link, error) {
	p.stream.close()
	p.stream, p.rpc = nil, nil
	t, err := transport.NewSSE(p.cfg.URL.String(),
		transport.WithHTTPClient(p.client),
		transport.WithEndpointTimeout(p.cfg.ProbeTimeout),
		transport.WithSSELogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, failure(ProbeConnect, ReasonInvalid, "making the stream: %w", err)
	}
	s := &sseStream{SSE: t}
	t.SetNotificationHandler(p.notified)
	t.SetConnectionLostHandler(func(error) {
		if !s.over() {
			s.close() // so that nothing waits for answers that can't come
			p.signals.ended()
		}
	})
	// The stream outlives the handshake, but may not block it.
	stop := context.AfterFunc(ctx, s.close)
	defer stop()
	x := &exchange{stream: true, endpoint: true}
	if err := t.Start(withExchange(context.WithoutCancel(ctx), x)); err != nil {
		s.close()
		if host := x.result().foreign; host != "" {
			return nil, failure(ProbeConnect, ReasonInvalid, "the backend wants messages sent to another host, %s, which is refused", strconv.Quote(shorten(host)))
		}
		return nil, classify(ctx, ProbeConnect, x, err, nil)
	}
	p.stream, p.rpc = s, t
	l, err := p.initialize(ctx, eraSSE, h)
	if err != nil {
		s.close()
		return nil, err
	}
	return l, nil
}

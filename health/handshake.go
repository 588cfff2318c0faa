package health

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
)

// connect starts afresh with whatever process answers. With gone, the session of before is known to be lost; else it is
// ended once there is a new one.
//
// The handshake of the older revisions comes first, since most servers speak it and only it gives a session. A server that
// refuses it is asked whether it speaks 2026-07-28. What a server spoke last is tried first.
func (p *probe) connect(ctx context.Context, gone bool) (hello, error) {
	var h hello
	err := p.timed(ctx, ProbeConnect, p.cfg.ConnectTimeout, func(ctx context.Context) error {
		before := p.link.Load()
		var l *link
		var err error
		switch {
		case p.cfg.Transport == TransportSSE:
			l, err = p.dialSSE(ctx, &h)
		case before != nil && before.era == eraModern:
			if l, err = p.discover(ctx, &h); err != nil && wantsOtherEra(err) {
				l, err = p.initialize(ctx, eraLegacy, &h)
			}
		default:
			if l, err = p.initialize(ctx, eraLegacy, &h); err != nil && wantsOtherEra(err) {
				if other, errOther := p.discover(ctx, &h); errOther == nil {
					l, err = other, nil
				}
			}
		}
		if err != nil {
			return err
		}
		p.link.Store(l)
		if p.watcher != nil {
			p.watcher.follow(l)
		}
		if before != nil && !gone {
			p.endSession(ctx, before)
		}
		return nil
	})
	if (err == nil || reasonOf(err) == ReasonUnauthorized) && p.sentinel != nil {
		p.sentinel.renew()
		p.sentinel.arm()
	}
	return h, err
}

// wantsOtherEra reports whether a handshake was refused by something that may speak the other one: 2026-07-28 "Era
// detection" knows 400 and JSON-RPC errors. A 404 without one, or a 5xx, is a server that isn't ready.
func wantsOtherEra(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	switch e.status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
		return true
	default:
		return e.Reason == ReasonRPCError
	}
}

func (p *probe) handshake(ctx context.Context, l *link, method string, params map[string]any, h *hello, result any) (outcome, error) {
	raw, o, err := p.call(ctx, l, ProbeConnect, method, params)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return o, failure(ProbeConnect, ReasonInvalid, "the result of %s can't be read", method)
	}
	h.identity = o.identity
	return o, nil
}

// serverInfo is what matters of an Implementation.
type serverInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// initialize does the handshake of the revisions before 2026-07-28.
func (p *probe) initialize(ctx context.Context, e era, h *hello) (*link, error) {
	var result struct {
		ProtocolVersion string     `json:"protocolVersion"`
		ServerInfo      serverInfo `json:"serverInfo"`
	}
	l := &link{era: e}
	o, err := p.handshake(ctx, l, string(mcp.MethodInitialize), map[string]any{
		"protocolVersion": mcp.LATEST_LEGACY_PROTOCOL_VERSION,
		"capabilities":    struct{}{},
		"clientInfo":      p.implementation(),
	}, h, &result)
	if err != nil {
		return nil, err
	}
	h.name, h.version = shorten(result.ServerInfo.Name), shorten(result.ServerInfo.Version)
	l = &link{era: e, session: o.issued, version: result.ProtocolVersion, client: p.implementation()}

	x := l.exchange()
	err = p.rpc.SendNotification(withExchange(ctx, x), mcp.JSONRPCNotification{
		JSONRPC:      mcp.JSONRPC_VERSION,
		Notification: mcp.Notification{Method: "notifications/initialized"},
	})
	if err != nil && !x.result().answered {
		// What a server answers to it is its own business, but it must be there.
		return nil, classify(ctx, ProbeConnect, x, err, nil)
	}
	return l, nil
}

// discover finds out whether the server speaks 2026-07-28, where server/discover must exist.
func (p *probe) discover(ctx context.Context, h *hello) (*link, error) {
	var result struct {
		ServerInfo serverInfo                 `json:"serverInfo"`
		Meta       map[string]json.RawMessage `json:"_meta"`
	}
	l := &link{era: eraModern, version: mcp.ProtocolVersion20260728, client: p.implementation()}
	if _, err := p.handshake(ctx, l, string(mcp.MethodServerDiscover), nil, h, &result); err != nil {
		return nil, err
	}
	info := result.ServerInfo
	if raw, ok := result.Meta[mcp.MetaKeyServerInfo]; ok {
		if err := json.Unmarshal(raw, &info); err != nil {
			info = result.ServerInfo // it should be there, but nothing depends on it
		}
	}
	h.name, h.version = shorten(info.Name), shorten(info.Version)
	return l, nil
}

func (p *probe) implementation() mcp.Implementation {
	return mcp.Implementation{Name: "mcp-sidecar", Version: p.cfg.ClientVersion}
}

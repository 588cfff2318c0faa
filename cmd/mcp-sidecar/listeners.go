package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/proxy/http1"
)

// Limits of all listeners. There is none for writing: streams stay open.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 5 * time.Minute // longer than clients keep connections, so that they close first
	maxHeaderBytes    = 256 << 10
	quickShutdown     = time.Second // for listeners whose requests are short
)

// binding is a bound address that isn't served yet.
type binding struct {
	name string
	net.Listener
}

// bindings are the addresses of a sidecar; register may be nil.
type bindings struct {
	agents, ops, admin, register *binding
}

// bind takes all addresses, before anything else is done: most mistakes show here.
func (a *app) bind(ctx context.Context, cfg *config.Config) (b bindings, err error) {
	for _, l := range []struct {
		to         **binding
		name, flag string
		addr       string
	}{
		{&b.ops, "ops", "--ops-listen", cfg.OpsListen},
		{&b.admin, "admin", "--admin-listen", cfg.AdminListen},
		{&b.register, "register", "--register-listen", cfg.RegisterListen},
		{&b.agents, "agents", "--listen", cfg.Listen},
	} {
		if l.addr == "" {
			continue
		}
		nl, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.addr)
		if err != nil {
			if errors.Is(err, syscall.EADDRINUSE) {
				return b, fmt.Errorf("%s is in use by another program: stop it, or use another %s", l.addr, l.flag)
			}
			return b, fmt.Errorf("listening on %s: %w (see %s)", l.addr, err, l.flag)
		}
		a.cleanups.add(l.name+" address", func(context.Context) error {
			if err := nl.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
		a.addrs[l.name] = nl.Addr()
		*l.to = &binding{l.name, stallListener{nl, stallTimeout}}
	}
	return b, nil
}

// server returns an HTTP server whose requests end with ctx.
func (a *app) server(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
}

// httpServer is a [http.Server], or one that behaves like it.
type httpServer interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// serve serves a handler until the app stops. Requests that still run then are
// given drain, or, without one, a moment.
func (a *app) serve(ctx context.Context, b *binding, h http.Handler, drain func(context.Context, httpServer) error) {
	a.serveWith(ctx, b, a.server(ctx, tellPanics(a.log, h)), drain)
}

func (a *app) serveWith(ctx context.Context, b *binding, srv httpServer, drain func(context.Context, httpServer) error) {
	a.spawn(ctx, b.name, func(context.Context) error {
		if err := srv.Serve(b); err != nil && !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	if drain == nil {
		drain = drainQuickly
	}
	a.cleanups.add(b.name+" requests", func(ctx context.Context) error {
		return errors.Join(drain(ctx, srv), srv.Close())
	})
	a.log.Info("listening", "component", b.name, "address", b.Addr().String())
}

// drainQuickly gives requests that still run a moment. What isn't done by then is cut off.
func drainQuickly(ctx context.Context, srv httpServer) error {
	ctx, cancel := context.WithTimeout(ctx, quickShutdown)
	defer cancel()
	_ = srv.Shutdown(ctx)
	return nil
}

func (a *app) serveAdmin(ctx context.Context, b bindings) {
	d := admin.Deps{Logger: a.log, Servers: a.backends, Conversations: a.conversations(), Control: a, Feed: a.feed, Token: a.adminToken}
	a.serve(ctx, b.admin, admin.New(d), func(ctx context.Context, srv httpServer) error {
		a.feed.Close()
		return drainQuickly(ctx, srv)
	})
	if b.register != nil {
		a.serve(ctx, b.register, admin.NewRegister(admin.RegisterDeps{
			Logger: a.log, Conversations: a.conversations(), Tokens: a.registerTokens, Named: a.agents.Named, Matcher: a.discoverer.Matcher,
		}), nil)
	}
}

func (a *app) adminToken() (token string, needed bool, err error) {
	file := a.cfg.Load().AdminTokenFile
	if file == "" {
		return "", false, nil
	}
	token, err = secretFile(file)()
	return token, true, err
}

// registerTokens returns the tokens of the agent servers that may register.
func (a *app) registerTokens() map[string]string {
	tokens := map[string]string{}
	for _, s := range a.cfg.Load().AgentServers {
		if s.RegisterTokenFile == "" {
			continue
		}
		token, err := secretFile(s.RegisterTokenFile)()
		if err != nil {
			a.log.Warn("agent server can't register", "agent_server", s.Name, "err", err)
			continue
		}
		tokens[s.Name] = token
	}
	return tokens
}

func (a *app) serveAgents(ctx context.Context, cfg *config.Config, b bindings) error {
	if cfg.TLSCertFile != "" {
		cert, err := newCertificate(cfg.TLSCertFile, cfg.TLSKeyFile, a.log)
		if err != nil {
			return err
		}
		b.agents.Listener = tls.NewListener(b.agents.Listener, &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: cert.get, NextProtos: []string{"h2", "http/1.1"},
		})
	}
	a.serveWith(ctx, b.agents, a.agentServer(ctx, cfg), a.drainAgents)
	return nil
}

// agentServer returns the server that agents talk to.
func (a *app) agentServer(ctx context.Context, cfg *config.Config) httpServer {
	srv := a.server(ctx, tellPanics(a.log, a.leaving(a.proxy)))
	if cfg.ListenTransport == config.ListenStandard {
		return srv
	}
	return http1.New(ctx, srv, a.log)
}

// leaving asks the clients of a sidecar that stops to send what comes next over
// another connection, which leads to its successor. Kept connections are closed
// at the end, maybe just when a request is sent.
func (a *app) leaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.stopping.Load() && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// drainAgents stops accepting, ends streams and lets running calls finish.
func (a *app) drainAgents(ctx context.Context, srv httpServer) error {
	limit := a.cfg.Load().DrainTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("calls still ran after %s", limit))
	defer cancel()
	var g errgroup.Group
	g.Go(func() error { return a.proxy.Drain(ctx) })
	g.Go(func() error { return srv.Shutdown(ctx) })
	if err := g.Wait(); err != nil {
		a.log.Warn("calls cut off", "err", context.Cause(ctx))
	}
	return nil
}

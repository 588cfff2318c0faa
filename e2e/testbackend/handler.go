package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// maxBody bounds a request, in bytes.
const maxBody = 64 << 20

// requestID is the key of the JSON-RPC id in a request's context.
type requestID struct{}

// envelope is what the handler reads of a message.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// handler serves everything. Its streams end when stopping is closed.
func (b *backend) handler(stopping <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("POST /admin/tools", func(w http.ResponseWriter, r *http.Request) {
		if err := b.offer(r.FormValue("version")); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("POST /admin/list_changed", func(_ http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.FormValue("n"))
		for range max(n, 1) {
			b.mcp.SendNotificationToAllClients(mcp.MethodNotificationToolsListChanged, nil)
		}
	})
	mux.HandleFunc("GET /admin/sessions", func(w http.ResponseWriter, _ *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		fmt.Fprintln(w, len(b.sessions))
	})
	identity := rand.Text()
	protocol := b.watched(stopping, b.protocol())
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if b.o.identity != "" {
			w.Header().Set(b.o.identity, identity)
		}
		if !b.ready.Load() {
			http.Error(w, "starting", b.o.unavailableStatus)
			return
		}
		protocol.ServeHTTP(w, r)
	})
	return mux
}

// protocol returns mcp-go's server for the mode.
func (b *backend) protocol() http.Handler {
	if b.o.mode == modeSSE {
		return server.NewSSEServer(b.mcp)
	}
	options := []server.StreamableHTTPOption{
		server.WithDisableStreaming(!b.o.stream),
		server.WithHeartbeatInterval(b.o.heartbeat),
	}
	switch b.o.mode {
	case modeStateful:
		options = append(options, server.WithStateful(true))
	case modeStateless, modeModern:
		options = append(options, server.WithStateLess(true))
	}
	mux := http.NewServeMux()
	mux.Handle(b.o.path, server.NewStreamableHTTPServer(b.mcp, options...))
	return mux
}

// watched refuses what the flags say, and passes on the rest.
func (b *backend) watched(stopping <-chan struct{}, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
		case tooLarge:
			http.Error(w, "the request is too large", http.StatusRequestEntityTooLarge)
			return
		case err != nil: // it broke off on the way: whatever is said would be taken for an answer to the whole
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var message envelope
		var several []json.RawMessage
		if isBatch(body) {
			message, several = first(body)
		} else {
			_ = json.Unmarshal(body, &message) // mcp-go says what is wrong with it
		}

		ctx, cancel := context.WithCancel(withID(r.Context(), message.ID))
		defer cancel()
		if r.Method == http.MethodGet || message.Method == string(mcp.MethodSubscriptionsListen) {
			go func() {
				select {
				case <-stopping:
					cancel()
				case <-ctx.Done():
				}
			}()
		}
		r = r.WithContext(ctx)

		modern := mcp.IsModernProtocol(r.Header.Get(mcp.HeaderProtocolVersion))
		session := r.Header.Get(mcp.HeaderSessionID)
		switch {
		case b.o.mode == modeModern && !modern:
			refuseLegacy(w, r, message)
			return
		case modern || session == "" || message.Method == string(mcp.MethodInitialize):
		case !b.admit(w, r, session, message):
			return
		}
		if r.Method == http.MethodDelete {
			b.mu.Lock()
			delete(b.sessions, session)
			b.mu.Unlock()
			b.log(ctx, journal.Entry{Event: http.MethodDelete, Session: session})
		}
		if several != nil {
			b.batch(w, r, several, next)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withID adds the id of a request to its context.
func withID(ctx context.Context, id json.RawMessage) context.Context {
	return context.WithValue(ctx, requestID{}, id)
}

// admit reports whether the request of a session may be executed. If not, it has
// answered.
func (b *backend) admit(w http.ResponseWriter, r *http.Request, session string, m envelope) bool {
	b.mu.Lock()
	initialized, known := b.sessions[session]
	b.mu.Unlock()
	switch {
	case !known && b.o.unknownSession != "":
		answerUnknown(w, b.o.unknownSession, m.ID)
	case known && !initialized && b.o.strict && m.Method != "notifications/initialized":
		answerError(w, http.StatusBadRequest, m.ID, mcp.INVALID_REQUEST, "session is not initialized")
	default:
		return true
	}
	method := m.Method
	if method == "" {
		method = r.Method
	}
	b.log(r.Context(), journal.Entry{Event: journal.Refused, Method: method, Session: session, ID: m.ID})
	return false
}

// answerUnknown answers for a session that the server doesn't know, in one of the
// ways that servers do.
func answerUnknown(w http.ResponseWriter, spelling string, id json.RawMessage) {
	switch spelling {
	case "404":
		answerError(w, http.StatusNotFound, nil, -32001, "Session not found")
	case "400":
		answerError(w, http.StatusBadRequest, nil, -32000, "Bad Request: No valid session ID provided")
	case "401":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintln(w, `{"error":"Invalid or expired session"}`)
	case "503":
		http.Error(w, "unknown session", http.StatusServiceUnavailable)
	case "200error":
		answerError(w, http.StatusOK, id, -32001, "Session not found")
	}
}

// refuseLegacy answers what a server does that only speaks revision 2026-07-28.
func refuseLegacy(w http.ResponseWriter, r *http.Request, m envelope) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	answerError(w, http.StatusBadRequest, m.ID, mcp.UNSUPPORTED_PROTOCOL_VERSION, "unsupported protocol version")
}

func answerError(w http.ResponseWriter, status int, id json.RawMessage, code int, text string) {
	type failure struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	f := failure{Code: code, Message: text}
	if code == mcp.UNSUPPORTED_PROTOCOL_VERSION {
		f.Data = map[string]any{"supported": []string{mcp.ProtocolVersion20260728}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": id, "error": f})
}

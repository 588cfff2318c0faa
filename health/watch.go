package health

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/mark3labs/mcp-go/mcp"
)

const (
	watchSoonest    = 250 * time.Millisecond
	watchSlowest    = 30 * time.Second
	watchMessageMax = 1 << 20 // bytes of one event
	listenID        = 1 << 40 // JSON-RPC id of subscriptions/listen, apart from the probe's others
)

// watcher keeps the probe's own stream open, on which the backend says that its tools changed, and whose end is one more sign
// that the process may be gone. Where the backend offers none, there is none. A stream of the older revisions that belongs to
// no session would be a session of its own, so stateless servers are asked for the one of 2026-07-28: many speak both.
type watcher struct {
	client  *http.Client
	cfg     *Config
	log     *slog.Logger
	signals signals

	mu      sync.Mutex
	link    *link
	changed chan struct{} // closed when link changes
}

func newWatcher(client *http.Client, cfg *Config, log *slog.Logger, s signals) *watcher {
	return &watcher{client: client, cfg: cfg, log: log, signals: s, changed: make(chan struct{})}
}

// follow makes run watch the process at the end of l instead of the one of before.
func (w *watcher) follow(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link = l
	close(w.changed)
	w.changed = make(chan struct{})
}

// run watches until ctx ends. There is never more than one stream.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		l, changed := w.link, w.changed
		w.mu.Unlock()

		on, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if l != nil {
				w.keep(on, l.forWatching())
			}
		}()
		select {
		case <-ctx.Done():
		case <-changed:
		}
		cancel()
		<-done
	}
}

// keep opens the stream again whenever it ends. A stream that doesn't last is tried less and less often.
func (w *watcher) keep(ctx context.Context, l *link) {
	backoff := time.Duration(0)
	for {
		began := time.Now()
		opened, again := w.open(ctx, l)
		if ctx.Err() != nil || !again {
			return
		}
		if opened {
			w.signals.ended()
		}
		if time.Since(began) >= watchSlowest {
			backoff = 0
		}
		backoff = min(max(2*backoff, watchSoonest), watchSlowest)
		t := time.NewTimer(backoff)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// open opens the stream and reads it until it ends. It reports whether there was one, and whether to try again on this link.
func (w *watcher) open(ctx context.Context, l *link) (opened, again bool) {
	x := l.exchange()
	x.stream = true
	var req *http.Request
	var err error
	if l.era == eraModern {
		req, err = l.request(withExchange(ctx, x), w.cfg.URL.String(), string(mcp.MethodSubscriptionsListen), listenID,
			map[string]any{"notifications": mcp.SubscriptionFilter{ToolsListChanged: true}})
	} else {
		req, err = http.NewRequestWithContext(withExchange(ctx, x), http.MethodGet, w.cfg.URL.String(), http.NoBody)
	}
	if err != nil {
		return false, false
	}
	req.Header.Set("Accept", strings.TrimPrefix(req.Header.Get("Accept")+", text/event-stream", ", "))
	resp, err := w.client.Do(req)
	if err != nil {
		return false, true
	}
	defer closeBody(resp.Body)
	o := x.result()
	switch {
	case o.status == http.StatusConflict || o.status >= http.StatusInternalServerError:
		return false, true
	case o.status != http.StatusOK || o.mediaType != "text/event-stream":
		return false, false // 405, or whatever a server without streams says; a lost session shows at the next ping
	}
	events := newEventReader(resp.Body, watchMessageMax)
	if l.era == eraModern {
		if data, err := events.next(); err != nil || !acknowledges(data) {
			return false, err != nil
		}
	}
	for {
		data, err := events.next()
		if err != nil {
			w.log.Debug("the watch stream ended", "err", err)
			return true, true
		}
		w.message(ctx, l, data)
	}
}

// streamMessage is what matters of a message on the stream.
type streamMessage struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params struct {
		Notifications mcp.SubscriptionFilter `json:"notifications"`
	} `json:"params"`
}

func parseMessage(data []byte) (m streamMessage, ok bool) {
	err := jsonv2.Unmarshal(data, &m, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return m, err == nil
}

// acknowledges reports whether the first message of a listen stream says that the wish was honoured (2026-07-28,
// "Subscriptions").
func acknowledges(data []byte) bool {
	m, ok := parseMessage(data)
	return ok && m.Method == string(mcp.MethodNotificationSubscriptionsAcknowledged) && m.Params.Notifications.ToolsListChanged
}

// message handles one message of the stream. What can't be read, such as a priming event, doesn't matter.
func (w *watcher) message(ctx context.Context, l *link, data []byte) {
	switch m, ok := parseMessage(data); {
	case !ok:
	case m.Method == mcp.MethodNotificationToolsListChanged:
		w.signals.listChanged()
	case m.Method != "" && len(m.ID) > 0 && l.era == eraLegacy:
		w.respond(ctx, l, m.ID, m.Method)
	}
}

// respond answers a request that the server sent on the stream, so that it doesn't take the probe for dead.
func (w *watcher) respond(ctx context.Context, l *link, id jsontext.Value, method string) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.ProbeTimeout)
	defer cancel()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"not offered by this client"}}`, id, codeMethodNotFound)
	if method == string(mcp.MethodPing) {
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
	}
	if !json.Valid([]byte(body)) {
		return
	}
	req, err := http.NewRequestWithContext(withExchange(ctx, l.exchange()), http.MethodPost, w.cfg.URL.String(), strings.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := w.client.Do(req)
	if err != nil {
		return
	}
	_ = resp.Body.Close()
}

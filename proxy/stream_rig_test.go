package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// listening is a client's open stream.
type listening struct {
	resp   *http.Response
	cancel context.CancelFunc
	events chan string // data of events, comments left out
	ended  chan error
}

// listen opens a client's stream.
func (r *rig) listen(session string, header ...string) *listening {
	r.t.Helper()

	ctx, cancel := context.WithCancel(r.t.Context())

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.front.URL+"/mcp", nil)
	if err != nil {
		r.t.Fatal(err)
	}

	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", session)

	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	return r.follow(req, cancel)
}

// follow reads the stream that a request opens.
func (r *rig) follow(req *http.Request, cancel context.CancelFunc) *listening {
	r.t.Helper()

	resp, err := r.front.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}

	l := &listening{resp: resp, cancel: cancel, events: make(chan string, 100), ended: make(chan error, 1)}

	var wg sync.WaitGroup

	wg.Go(func() {
		events := newEventReader(resp.Body, maxEvent)

		for {
			ev, err := events.Next()
			if err != nil {
				l.ended <- err
				return
			}

			if ev.hasData {
				l.events <- string(ev.data)
			}
		}
	})

	r.t.Cleanup(func() {
		cancel()
		wg.Wait()

		_ = resp.Body.Close()
	})

	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("stream: %d %v", resp.StatusCode, resp.Header)
	}

	return l
}

// next waits for an event that contains text.
func (l *listening) next(t *testing.T, text string) {
	t.Helper()

	if e, err := l.event(); err != nil {
		t.Errorf("no event (%v), want %s", err, text)
	} else if !strings.Contains(e, text) {
		t.Errorf("got %s, want %s", e, text)
	}
}

// event waits for an event. Those that came before the end come first.
func (l *listening) event() (string, error) {
	select {
	case e := <-l.events:
		return e, nil
	case err := <-l.ended:
		l.ended <- err

		select {
		case e := <-l.events:
			return e, nil
		default:
			return "", fmt.Errorf("the stream ended: %w", err)
		}
	case <-time.After(10 * time.Second):
		return "", context.DeadlineExceeded
	}
}

// end waits for the end of the stream.
func (l *listening) end(t *testing.T) {
	t.Helper()

	if err := <-l.ended; !errors.Is(err, io.EOF) {
		t.Errorf("the stream broke: %v", err)
	}
}

// none makes sure that no event has come.
func (l *listening) none(t *testing.T) {
	t.Helper()

	select {
	case e := <-l.events:
		t.Errorf("unexpected %s", e)
	default:
	}
}

// streams is a stub's GET handler that counts how many are open for a session, and
// sends what it is told to.
type streams struct {
	mu   sync.Mutex
	open map[string]chan string
	n    int // opened so far
	most int
	from []string // Last-Event-IDs
}

func (s *streams) get(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Mcp-Session-Id")
	events := make(chan string, 10)

	s.mu.Lock()

	if from := r.Header.Get("Last-Event-ID"); from != "" {
		s.from = append(s.from, from)
	}

	if s.open == nil {
		s.open = map[string]chan string{}
	}

	// A server may hear of the end of one stream after it was asked for the next.
	for wait := time.Now().Add(time.Second); s.open[id] != nil && time.Now().Before(wait); {
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}

	if s.open[id] != nil {
		s.most++
		s.mu.Unlock()
		http.Error(w, "there is one already", http.StatusConflict)

		return
	}

	s.open[id] = events
	s.n++
	s.mu.Unlock()

	defer func() {
		s.mu.Lock()
		delete(s.open, id)
		s.mu.Unlock()
	}()

	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()

	for {
		select {
		case e := <-events:
			switch e {
			case "FIN":
				return
			case "RST":
				c, _, err := http.NewResponseController(w).Hijack()
				if tcp, ok := c.(*net.TCPConn); ok && err == nil {
					_ = tcp.SetLinger(0)
					_ = tcp.Close()
				}

				return
			}

			_, _ = io.WriteString(w, e)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// send sends to the open stream of a session.
func (s *streams) send(t *testing.T, session, event string) {
	t.Helper()
	eventually(t, "the backend's stream is open", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()

		c := s.open[session]
		if c == nil {
			return errors.New("it isn't")
		}

		c <- event

		return nil
	})
}

func (s *streams) isOpen(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.open[session] != nil
}

const hello = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"hello\"}}\n\n"

//go:build chaos && unix

package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// listener is a client that has a stream open all the time: GET in old revisions, subscriptions/listen in the new one.
type listener struct {
	*agent

	stream  caller // its session is the agent's
	asked   asked
	closing atomic.Bool
	conn    atomic.Pointer[net.Conn]
	started bool
	done    chan struct{} // closed when the stream has ended for good
	last    string        // id of the last event
	n       int           // of the subscriptions
}

func newListener(a *agent) *listener {
	l := &listener{agent: a, stream: a.caller, done: make(chan struct{})}
	l.asked.rng = random(a.w.seed, -a.w.actors)
	return l
}

// listen opens the stream, again and again, until close.
func (l *listener) listen() {
	defer close(l.done)
	defer l.stream.hangUp()
	for !l.closing.Load() {
		began := time.Now()
		sign := began
		err := l.once(&sign)
		if l.closing.Load() {
			return
		}
		switch {
		case err == nil, l.w.excuses(err, sign), errors.Is(err, io.EOF) && l.w.time.stopped(sign):
		default:
			l.w.ledger.defect(nil, "the stream of %s, from %s, last heard of at %s, ended at %s: %v",
				l.name, l.w.time.at(began), l.w.time.at(sign), l.w.time.at(time.Now()), err)
		}
		l.stream.hangUp()
		time.Sleep(50 * time.Millisecond)
	}
}

// once opens the stream and reads it to its end. Without an error that was in order.
func (l *listener) once(sign *time.Time) error {
	if l.stream.modern {
		return l.subscribe(sign)
	}
	var header []string
	if l.last != "" {
		header = []string{"Last-Event-ID", l.last}
	}
	resp, err := l.stream.send(http.MethodGet, "", header...) //nolint:bodyclose // the connection is
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("the answer is %d %.300q", resp.StatusCode, b)
	}
	return l.read(resp, sign, func(id string, m message) error {
		if id != "" {
			l.last = id
		}
		switch {
		case m.ID != nil && m.Method != "" && l.canBeAsked():
			return l.asked.take(l.w, m)
		case m.ID != nil:
			return fmt.Errorf("a message of another stream came: %+v", m)
		case m.Method == "notifications/tools/list_changed":
			l.told.Add(1)
		case m.Method == "notifications/progress" && l.mixed():
		default:
			return fmt.Errorf("%s came", m.Method)
		}
		return nil
	})
}

// subscribe is once for the new revision.
func (l *listener) subscribe(sign *time.Time) error {
	l.n++
	id := fmt.Sprintf(`"%s/subscription/%d"`, l.name, l.n)
	const params = `{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"chaos","version":"1"}}}`
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":%s}`, id, params)
	resp, err := l.stream.send(http.MethodPost, body, "Mcp-Method", "subscriptions/listen") //nolint:bodyclose // the connection is
	if err != nil {
		return err
	}
	kind := resp.Header.Get("Content-Type")
	if resp.StatusCode == http.StatusOK && strings.HasPrefix(kind, "application/json") {
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			return connectionError{err: err}
		}
		m, err := readMessage(raw)
		if err != nil || m.Error == nil || !m.Error.own() {
			return fmt.Errorf("the answer is %.300q", raw)
		}
		return nil
	}
	if resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("the answer is %d %.300q", resp.StatusCode, b)
	}
	acknowledged, over := false, false
	err = l.read(resp, sign, func(_ string, m message) error {
		switch {
		case over:
			return fmt.Errorf("%+v follows the response", m)
		case m.Method == "notifications/subscriptions/acknowledged" && !acknowledged:
			acknowledged = true
		case m.Method == "notifications/tools/list_changed" && acknowledged && m.ID == nil:
			var p struct {
				Meta map[string]json.RawMessage `json:"_meta"`
			}
			if json.Unmarshal(m.Params, &p) != nil || string(p.Meta["io.modelcontextprotocol/subscriptionId"]) != id {
				return fmt.Errorf("a notice of another subscription came: %s", m.Params)
			}
			l.told.Add(1)
		case m.Method == "" && string(m.ID) == id && (m.Error == nil || !acknowledged && m.Error.own()):
			over = true
		default:
			return fmt.Errorf("%+v came", m)
		}
		return nil
	})
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case !over:
		return connectionError{err: errors.New("the stream ended without a response")}
	}
	return nil
}

// read reads the stream to its end, and notes each sign of life.
func (l *listener) read(resp *http.Response, sign *time.Time, take func(string, message) error) error {
	c := l.stream.c
	l.conn.Store(&c)
	if l.closing.Load() {
		return io.EOF
	}
	alive := func() {
		*sign = time.Now()
		_ = l.stream.c.SetReadDeadline(sign.Add(silence))
	}
	alive()
	err := readEvents(bufio.NewReader(resp.Body), alive, messages(take))
	if errors.Is(err, io.EOF) {
		return err
	}
	return l.stream.broke(err)
}

// start begins to listen, once there is a session.
func (l *listener) start() bool {
	if l.started || !l.handshake() {
		return l.started
	}
	l.started = true
	l.stream.session = l.caller.session
	if l.canBeAsked() {
		l.asked.to = l.stream
		l.caller.asked = func(m message) error { return l.asked.take(l.w, m) }
	}
	go l.listen()
	return true
}

// run is what the client does besides until the world ends.
func (l *listener) run() {
	seen := int64(-1)
	for !l.w.ending(between(l.rng, 50*time.Millisecond, 500*time.Millisecond)) {
		if !l.start() {
			continue
		}
		if told := l.told.Load(); told != seen {
			seen = told
			l.list()
			continue
		}
		switch n := l.rng.IntN(4); {
		case n == 0:
			l.call("balance")
		case n == 1 && l.canBeAsked():
			l.sample()
		}
	}
}

// close ends the stream.
func (l *listener) close() {
	if !l.started {
		return
	}
	l.closing.Store(true)
	if c := l.conn.Load(); c != nil {
		_ = (*c).Close()
	}
	<-l.done
	l.asked.done.Wait()
}

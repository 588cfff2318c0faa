//go:build chaos && unix

package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
)

// Times of the clients.
const (
	patience  = 60 * time.Second // for one answer
	silence   = 20 * time.Second // of a stream: the sidecar must write comments
	keepAlive = 5 * time.Second  // as the sidecar is configured
)

// The revisions that the clients speak.
const (
	oldest   = "2024-11-05" // with its own transport
	batching = "2025-03-26" // the only one with batches
	legacy   = "2025-06-18"
	modern   = "2026-07-28"
)

// connectionError is a connection that broke: that is allowed only while the sidecar is away.
type connectionError struct {
	err     error
	refused bool // it never was one
}

func (e connectionError) Error() string { return "the connection broke: " + e.err.Error() }
func (e connectionError) Unwrap() error { return e.err }

// statusError is an answer with a status that no response has.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("the answer is %d", int(e)) }

// errSilent is an answer that doesn't come.
var errSilent = errors.New("nothing comes any more")

// caller sends HTTP requests, one at a time, on a connection that it keeps. Nothing is done behind its back: each
// request is sent once.
type caller struct {
	addr, path string
	session    string
	modern     bool
	old        string              // the revision if it is neither of the usual ones
	patience   time.Duration       // for an answer
	batch      bool                // several requests are under way
	stream     *stream             // of the oldest revision, on which the responses come
	asked      func(message) error // takes a request that comes before a response, nil if none may

	c net.Conn
	r *bufio.Reader
}

// reply is the answer to a POST.
type reply struct {
	status int
	header http.Header
	answer *message  // the response
	all    []message // the responses to a batch
	others []message // notices that came before
	body   string    // of what has no response
}

// hangUp closes the connection, whatever happens on it.
func (c *caller) hangUp() {
	if c.c != nil {
		_ = c.c.Close()
		c.c = nil
	}
}

// connect makes sure that there is a connection on which nothing has come that wasn't asked for.
func (c *caller) connect() error {
	if c.c != nil {
		_ = c.c.SetReadDeadline(time.Now().Add(time.Millisecond))
		b, err := c.r.Peek(1)
		var timeout net.Error
		switch {
		case err == nil:
			return fmt.Errorf("%q came without having been asked for", b)
		case errors.As(err, &timeout) && timeout.Timeout():
			return nil
		}
		c.hangUp() // the sidecar has closed it, which it may
	}
	conn, err := net.DialTimeout("tcp", c.addr, 5*time.Second)
	if err != nil {
		return connectionError{err: err, refused: true}
	}
	c.c, c.r = conn, bufio.NewReader(conn)
	return nil
}

// send sends one request and returns the header of its answer, whose body must be read to its end, and then finished.
func (c *caller) send(method, body string, header ...string) (*http.Response, error) {
	if err := c.connect(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\n", method, c.path, c.addr)
	if method == http.MethodPost {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	switch {
	case c.modern:
		fmt.Fprintf(&b, "MCP-Protocol-Version: %s\r\n", modern)
	case c.session != "":
		fmt.Fprintf(&b, "Mcp-Session-Id: %s\r\n", c.session)
		if c.old == "" { // there was no such header before
			fmt.Fprintf(&b, "MCP-Protocol-Version: %s\r\n", legacy)
		}
	}
	for i := 0; i < len(header); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", header[i], header[i+1])
	}
	b.WriteString("\r\n" + body)
	_ = c.c.SetDeadline(time.Now().Add(c.patience))
	if _, err := c.c.Write(b.Bytes()); err != nil {
		c.hangUp()
		return nil, connectionError{err: err}
	}
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.hangUp()
		return nil, c.broke(err)
	}
	return resp, nil
}

// broke tells a connection that broke from an answer that doesn't come, or isn't HTTP.
func (c *caller) broke(err error) error {
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Timeout():
		return errSilent
	case errors.As(err, &op), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return connectionError{err: err}
	}
	return err
}

// finish ends the reading of an answer.
func (c *caller) finish(resp *http.Response) error {
	_ = resp.Body.Close()
	if resp.Close {
		c.hangUp()
		return nil
	}
	if n := c.r.Buffered(); n > 0 {
		b, _ := c.r.Peek(n)
		c.hangUp()
		return fmt.Errorf("%q follows the answer", b)
	}
	return nil
}

// post sends a message and reads all that comes back.
func (c *caller) post(body string, header ...string) (reply, error) {
	resp, err := c.send(http.MethodPost, body, header...)
	if err != nil {
		return reply{}, err
	}
	out := reply{status: resp.StatusCode, header: resp.Header}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusOK && kind == "text/event-stream":
		alive := func() { _ = c.c.SetReadDeadline(time.Now().Add(min(c.patience, silence))) }
		err = readEvents(bufio.NewReader(resp.Body), alive, c.events(&out))
		if errors.Is(err, io.EOF) {
			err = nil
		}
	default:
		var raw []byte
		raw, err = io.ReadAll(resp.Body)
		out.body = string(raw)
		// An error may come with 400 in the new revision.
		if err == nil && (resp.StatusCode == http.StatusOK || c.modern && resp.StatusCode == http.StatusBadRequest) {
			if kind != "application/json" {
				err = fmt.Errorf("%d with a body of type %q: %.300q", resp.StatusCode, kind, raw)
			} else {
				err = c.events(&out)(event{data: raw})
			}
		}
	}
	if err != nil {
		c.hangUp()
		return out, c.broke(err)
	}
	return out, c.finish(resp)
}

// events is what to do with each event of an answer.
func (c *caller) events(out *reply) func(event) error {
	if c.batch {
		return out.addAll
	}
	return messages(func(_ string, m message) error {
		if m.ID != nil && m.Method != "" && c.asked != nil {
			return c.asked(m)
		}
		return out.add(m)
	})
}

// add takes a message of an answer.
func (o *reply) add(m message) error {
	switch {
	case m.Method == "" && o.answer != nil:
		return fmt.Errorf("there are two responses, %+v and %+v", *o.answer, m)
	case m.Method == "":
		o.answer = &m
	case o.answer != nil:
		return fmt.Errorf("%s follows the response", m.Method)
	default:
		o.others = append(o.others, m)
	}
	return nil
}

// ask sends a request and returns its response. That it is one to this request was checked.
func (c *caller) ask(id, method string, params map[string]any) (*message, reply, error) {
	if params == nil {
		params = map[string]any{}
	}
	var header []string
	if c.modern {
		header = []string{"Mcp-Method", method}
		if name, ok := params["name"].(string); ok {
			header = append(header, "Mcp-Name", name)
		}
		meta, _ := params["_meta"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
		}
		meta["io.modelcontextprotocol/protocolVersion"] = modern
		meta["io.modelcontextprotocol/clientCapabilities"] = map[string]any{}
		meta["io.modelcontextprotocol/clientInfo"] = map[string]any{"name": "chaos", "version": "1"}
		params["_meta"] = meta
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, reply{}, err
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, raw)
	var got reply
	if c.stream != nil {
		got, err = c.stream.ask(c, id, body)
	} else {
		got, err = c.post(body, header...)
	}
	switch {
	case err != nil:
		return nil, got, err
	case got.status != http.StatusOK && c.stream == nil && (got.answer == nil || got.answer.Error == nil || got.answer.Error.own()):
		return nil, got, fmt.Errorf("%w %.300q", statusError(got.status), got.body)
	case got.answer == nil:
		return nil, got, errors.New("there is no response in the answer")
	case string(got.answer.ID) != id:
		return nil, got, fmt.Errorf("the response is to %s", got.answer.ID)
	}
	for _, m := range got.others {
		if m.ID != nil || !strings.HasPrefix(m.Method, "notifications/") {
			return nil, got, fmt.Errorf("the backend asks for %s", m.Method)
		}
	}
	if e := got.answer.Error; e != nil {
		if wrong := e.check(); wrong != "" {
			return nil, got, errors.New(wrong)
		}
	}
	return got.answer, got, nil
}

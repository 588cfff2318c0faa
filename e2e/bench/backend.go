package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Tools of the backend.
const (
	toolSmall  = "small"  // 200 bytes as JSON
	toolStream = "stream" // the same as an event stream
	tool100K   = "large"  // 100 KB
	tool1M     = "huge"   // 1 MB
)

// tickHeader makes the backend send an event with the time on a GET stream, every
// so often.
const tickHeader = "X-Tick"

// backend is an MCP server that answers at once. It doesn't use net/http, so that
// as little of the machine as possible goes into what isn't measured.
type backend struct {
	answers  map[string][]byte // of calls, by tool
	tools    string            // JSON
	sessions atomic.Int64
	// mine is what ids of this process's sessions begin with: others get 404. "" takes
	// any.
	mine string
}

// runBackend runs a backend. What follows its address makes it one that is replaced:
// how many tools it offers besides those that are called, and a file that gets the
// time from which on it answered.
func runBackend(args []string) error {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}

	now := strconv.FormatInt(time.Now().UnixNano(), 10)

	mine, more := "", 0
	if len(args) > 2 {
		mine = now + "-"
		if more, err = strconv.Atoi(args[1]); err == nil {
			err = os.WriteFile(args[2], []byte(now), 0o600)
		}

		if err != nil {
			return err
		}
	}

	text := func(n int) []byte {
		return []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", n) + `"}]}}`)
	}

	b := &backend{mine: mine, tools: toolList(more), answers: map[string][]byte{
		toolSmall:  jsonAnswer(text(200), ""),
		toolStream: text(200),
		tool100K:   jsonAnswer(text(100_000), ""),
		tool1M:     jsonAnswer(text(1_000_000), ""),
	}}

	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}

		go func() {
			defer c.Close()

			_ = b.serve(c)
		}()
	}
}

func jsonAnswer(body []byte, header string) []byte {
	return append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n", header, len(body)), body...)
}

// toolList has the tools that are called, and so many more.
func toolList(more int) string {
	names := []string{toolSmall, toolStream, tool100K, tool1M}
	for i := range more {
		names = append(names, "more-"+strconv.Itoa(i))
	}

	return `[{"inputSchema":{"type":"object"},"name":"` + strings.Join(names, `"},{"inputSchema":{"type":"object"},"name":"`) + `"}]`
}

// incoming is what the backend reads of a request.
type incoming struct {
	method  string
	tick    time.Duration
	session []byte
	body    []byte
}

func (b *backend) serve(c net.Conn) error {
	r := bufio.NewReaderSize(c, 4<<10)

	var in incoming

	for {
		if err := in.read(r); err != nil {
			return err
		}

		switch {
		case len(in.session) > 0 && !bytes.HasPrefix(in.session, []byte(b.mine)):
			if _, err := io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"); err != nil {
				return err
			}
		case in.method == http.MethodPost:
			if err := b.post(c, &in); err != nil {
				return err
			}
		case in.method == http.MethodGet:
			return b.stream(c, r, in.tick)
		default:
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
				return err
			}
		}
	}
}

func (in *incoming) read(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}

	switch {
	case bytes.HasPrefix(line, []byte("POST ")):
		in.method = http.MethodPost
	case bytes.HasPrefix(line, []byte("GET ")):
		in.method = http.MethodGet
	default:
		in.method = ""
	}

	length := 0
	in.tick, in.session = 0, in.session[:0]

	for {
		line, err = r.ReadSlice('\n')
		if err != nil {
			return err
		}

		if len(line) <= 2 {
			break
		}

		name, value, _ := bytes.Cut(line, []byte(":"))

		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			return errors.New("chunked requests are not supported")
		case bytes.EqualFold(name, []byte("Mcp-Session-Id")):
			in.session = append(in.session, bytes.TrimSpace(value)...)
		case bytes.EqualFold(name, []byte(tickHeader)):
			if in.tick, err = time.ParseDuration(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}

	if cap(in.body) < length {
		in.body = make([]byte, length)
	}

	in.body = in.body[:length]

	_, err = io.ReadFull(r, in.body)

	return err
}

// post answers a message. Only what isn't measured is decoded.
func (b *backend) post(c net.Conn, in *incoming) error {
	for name, answer := range b.answers {
		if !bytes.Contains(in.body, []byte(`"name":"`+name+`"`)) {
			continue
		}

		if name != toolStream {
			_, err := c.Write(answer)
			return err
		}

		// In two parts, as frameworks do.
		_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"+
			"%x\r\nevent: message\ndata: %s\n\n\r\n", len(answer)+len("event: message\ndata: \n\n"), answer)
		if err == nil {
			_, err = io.WriteString(c, "0\r\n\r\n")
		}

		return err
	}

	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ ProtocolVersion string }
	}

	if err := json.Unmarshal(in.body, &m); err != nil {
		return err
	}

	header, result := "", `{}`

	switch m.Method {
	case "initialize":
		header = "Mcp-Session-Id: " + b.mine + strconv.FormatInt(b.sessions.Add(1), 36) + "\r\n"
		result = `{"protocolVersion":"` + m.Params.ProtocolVersion + `","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"bench","version":"1"}}`
	case "tools/list":
		result = `{"tools":` + b.tools + `}`
	case "server/discover":
		result = `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`
	}

	if len(m.ID) == 0 {
		_, err := io.WriteString(c, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
		return err
	}

	_, err := c.Write(jsonAnswer(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result), header))

	return err
}

// stream keeps a GET stream open until the other side leaves.
func (b *backend) stream(c net.Conn, r *bufio.Reader, tick time.Duration) error {
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
		return err
	}

	if tick == 0 {
		_, err := r.ReadByte()
		return err
	}

	for range time.Tick(tick) {
		event := fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"%d\"}}\n\n", time.Now().UnixNano())
		if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(event), event); err != nil {
			return err
		}
	}

	return nil
}

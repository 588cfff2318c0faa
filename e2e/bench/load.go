package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// load is the requests that are made, one for each connection.
type load struct {
	addr     string
	requests [][]byte // as they go over the wire
	script   string   // of wrk
}

// result is what came of them. Times are in microseconds.
type result struct {
	requests, broken    int64 // answered, and broken off
	perSecond, p50, p99 float64
}

// newLoad opens a session for each connection, where there are any.
func (b *bench) newLoad(addr, tool string, stateless bool) (*load, error) {
	l := &load{addr: addr}

	for range b.connections {
		var header, meta string

		if stateless {
			header = "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: " + tool + "\r\n"
			meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
		} else {
			s, err := openSession(addr)
			if err != nil {
				return nil, err
			}

			s.close()

			header = "Mcp-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: " + s.id + "\r\n"
		}

		l.requests = append(l.requests, post(addr, header,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{"city":"Bern","days":3}`+meta+`}}`))
	}

	if b.wrk == "" {
		return l, nil
	}

	var script strings.Builder

	script.WriteString("local requests = {\n")

	for _, r := range l.requests {
		fmt.Fprintf(&script, "%q,\n", r) // Lua reads these strings as Go does
	}

	script.WriteString("}\nlocal i = 0\nfunction request() i = i % #requests + 1 return requests[i] end\n")

	f, err := os.CreateTemp(b.dir, "*.lua")
	if err != nil {
		return nil, err
	}
	defer f.Close()

	l.script = f.Name()
	_, err = f.WriteString(script.String())

	return l, err
}

func post(addr, header, body string) []byte {
	return fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n%s",
		addr, header, len(body), body)
}

// drive makes the requests over and over again for some time.
func (b *bench) drive(ctx context.Context, l *load, d time.Duration) (result, error) {
	if l.script != "" {
		return b.driveWrk(ctx, l, d)
	}

	return driveGo(ctx, l, d)
}

// driveWrk rounds the time up to whole seconds, which is what wrk counts in.
func (b *bench) driveWrk(ctx context.Context, l *load, d time.Duration) (result, error) {
	seconds := max(1, int((d+time.Second-1)/time.Second))
	cmd := exec.CommandContext(ctx, b.wrk, "-t1", "-c"+strconv.Itoa(b.connections), "-d"+strconv.Itoa(seconds)+"s", "--latency", "-s", l.script, "http://"+l.addr)

	out, err := cmd.CombinedOutput()
	if err != nil {
		return result{}, fmt.Errorf("wrk: %w: %s", err, out)
	}

	return parseWrk(string(out))
}

func parseWrk(out string) (r result, err error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)

		switch {
		case len(f) == 2 && f[0] == "50%":
			r.p50 = micros(f[1])
		case len(f) == 2 && f[0] == "99%":
			r.p99 = micros(f[1])
		case len(f) > 2 && f[1] == "requests":
			r.requests, err = strconv.ParseInt(f[0], 10, 64)
		case len(f) == 2 && f[0] == "Requests/sec:":
			r.perSecond, err = strconv.ParseFloat(f[1], 64)
		case len(f) > 2 && f[0] == "Socket":
			for _, w := range f {
				n, _ := strconv.ParseInt(strings.TrimSuffix(w, ","), 10, 64)
				r.broken += n
			}
		case len(f) > 2 && f[0] == "Non-2xx":
			return r, errors.New(strings.TrimSpace(line))
		}

		if err != nil {
			return r, fmt.Errorf("reading what wrk says: %w", err)
		}
	}

	if r.requests == 0 {
		return r, errors.New("no request was answered")
	}

	return r, nil
}

func micros(s string) float64 {
	d, _ := time.ParseDuration(s)

	return float64(d.Nanoseconds()) / 1000
}

// driveGo is for where there is no wrk.
func driveGo(ctx context.Context, l *load, d time.Duration) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()

	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		times []time.Duration
		all   result
		first error
	)

	start := time.Now()

	for _, request := range l.requests {
		wg.Go(func() {
			mine, broken, err := repeat(ctx, l.addr, request)

			mu.Lock()
			defer mu.Unlock()

			times = append(times, mine...)
			all.broken += broken
			first = errors.Join(first, err)
		})
	}

	wg.Wait()

	if first != nil || len(times) == 0 {
		return result{}, fmt.Errorf("%d requests were answered: %w", len(times), first)
	}

	took := time.Since(start)

	slices.Sort(times)

	at := func(q float64) float64 { return float64(times[int(q*float64(len(times)-1))].Nanoseconds()) / 1000 }

	all.requests, all.perSecond = int64(len(times)), float64(len(times))/took.Seconds()
	all.p50, all.p99 = at(0.5), at(0.99)

	return all, nil
}

func repeat(ctx context.Context, addr string, request []byte) (times []time.Duration, broken int64, err error) {
	for ctx.Err() == nil {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, 0, err
		}

		r := bufio.NewReader(c)

		for ctx.Err() == nil {
			start := time.Now()

			if err = exchange(c, r, request, nil); err != nil {
				break
			}

			times = append(times, time.Since(start))
		}

		_ = c.Close()

		switch {
		case errors.Is(err, errStatus):
			return times, broken, err
		case err != nil:
			broken++
		}
	}

	return times, broken, nil
}

// errStatus is not what a proxy that is merely hasty does.
var errStatus = errors.New("unexpected answer")

// exchange makes one request and reads the answer.
func exchange(c net.Conn, r *bufio.Reader, request []byte, header http.Header) error {
	if _, err := c.Write(request); err != nil {
		return err
	}

	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode > 299 || n == 0 && resp.StatusCode == http.StatusOK) {
		err = fmt.Errorf("%w: %s with %d bytes", errStatus, resp.Status, n)
	}

	for name, values := range resp.Header {
		if header != nil {
			header[name] = values
		}
	}

	return err
}

// session is a client's session and the connection that it was opened on.
type session struct {
	addr, id string
	c        net.Conn
	r        *bufio.Reader
}

func openSession(addr string) (*session, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}

	s := &session{addr: addr, c: c, r: bufio.NewReader(c)}
	h := http.Header{}
	err = exchange(c, s.r, post(addr, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`), h)

	if s.id = h.Get("Mcp-Session-Id"); err == nil && s.id == "" {
		err = errors.New("initialize was answered without a session id")
	}

	if err == nil {
		err = exchange(c, s.r, post(addr, "Mcp-Session-Id: "+s.id+"\r\nMcp-Protocol-Version: 2025-11-25\r\n", `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
	}

	if err != nil {
		s.close()
		return nil, fmt.Errorf("opening a session: %w", err)
	}

	return s, nil
}

func (s *session) close() { _ = s.c.Close() }

// listen opens the session's stream on the same connection.
func (s *session) listen(header string) error {
	_, err := fmt.Fprintf(s.c, "GET /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\nMcp-Protocol-Version: 2025-11-25\r\n%s\r\n", s.addr, s.id, header)
	if err != nil {
		return err
	}

	head, err := s.r.ReadSlice('\n')
	if err != nil {
		return err
	}

	if !bytes.Contains(head, []byte(" 200 ")) {
		return fmt.Errorf("opening a stream: %s", bytes.TrimSpace(head))
	}

	return nil
}

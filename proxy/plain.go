package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// plain passes on a GET that has nothing to do with a session of the sidecar.
func (s *server) plain(w http.ResponseWriter, r *http.Request, forward http.Header, backend string) outcome {
	return s.relay(w, r, outgoing{method: r.Method, header: forward, session: backend, query: r.URL.RawQuery})
}

// passThrough passes on a request for a path of the backend outside of MCP:
// authorization metadata and endpoints.
func (s *server) passThrough(w http.ResponseWriter, r *http.Request, path string) {
	cfg := s.p.config()

	forward, err := (&address{srv: s}).forward(cfg, r)
	if err != nil {
		refuse(w, http.StatusBadRequest, nil, codeInvalid, err.Error())
		return
	}

	body, status, err := readBody(w, r, cfg)
	if err != nil {
		refuse(w, status, nil, codeInvalid, err.Error())
		return
	}

	s.relay(w, r, outgoing{method: r.Method, header: forward, query: r.URL.RawQuery, suffix: path, body: body})
}

// relay sends a request once, after the backend is there, and copies the answer.
func (s *server) relay(w http.ResponseWriter, r *http.Request, o outgoing) outcome {
	x := &exchange{p: s.p, srv: s, cfg: s.p.config(), r: r, start: time.Now()}
	x.hold = holding{budget: s.conf().Hold, bytes: int64(len(o.body))}
	ctx := r.Context()

	for {
		if err := x.await(ctx, needAnswer); err != nil {
			return unavailable(w, err)
		}

		x.hold.attempts++

		resp, trace, err := s.send(ctx, o) //nolint:bodyclose // relayAnswer closes it

		switch {
		case err == nil:
			return x.relayAnswer(ctx, w, resp)
		case ctx.Err() != nil:
			return outcomeClosed
		case errors.Is(err, errRedirect):
			return unavailable(w, err)
		}

		s.suspect("refused")

		if failure(err, trace) != notSent && o.method != http.MethodGet {
			return unavailable(w, err)
		}
	}
}

func unavailable(w http.ResponseWriter, err error) outcome {
	if !errors.Is(err, errRedirect) {
		w.Header().Set("Retry-After", "1")
	}

	refuse(w, http.StatusBadGateway, nil, CodeBackendAway, "the MCP server is away: try again later")

	return outcomeUnavailable
}

// relayAnswer copies an answer as it comes.
func (x *exchange) relayAnswer(ctx context.Context, w http.ResponseWriter, resp *http.Response) outcome {
	defer func() { _ = resp.Body.Close() }()

	responseHeader(w.Header(), resp.Header)

	if resp.Request != nil {
		localLocation(w.Header(), resp.Request)
	}

	rc := http.NewResponseController(w)
	flush := strings.HasPrefix(resp.Header.Get("Content-Type"), typeEventStream)

	w.WriteHeader(resp.StatusCode)

	if flush {
		_ = rc.Flush()
	}

	buf := x.p.buffers.get()
	defer x.p.buffers.pool.Put(buf)

	for {
		n, err := resp.Body.Read(buf[:])
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return outcomeClosed
			}

			if flush {
				_ = rc.Flush()
			}
		}

		switch {
		case err == io.EOF:
			return statusOutcome(&answer{Response: resp}, nil)
		case err != nil && ctx.Err() != nil:
			return outcomeClosed
		case err != nil:
			x.srv.ask("reset")
			panic(http.ErrAbortHandler)
		}
	}
}

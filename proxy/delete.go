package proxy

import (
	"net/http"
)

// serveDelete ends a session at its client's wish, on both sides (MCP 2025-11-25
// "Session Management").
func (p *Proxy) serveDelete(w http.ResponseWriter, r *http.Request, cfg *Config, to address) {
	srv, out := to.srv, outcomeClientError

	defer func() { srv.metrics.ended(methodDelete, out) }()

	forward, err := to.forward(cfg, r)
	if err != nil {
		refuse(w, http.StatusBadRequest, nil, codeInvalid, err.Error())
		return
	}

	ids := sessionIDs(r.Header)
	if len(ids) == 0 || r.Header.Get(headerVersion) >= modernVersion {
		out = srv.plain(w, r, forward, "")
		return
	}

	sess, status := srv.sessionOf(r.Context(), ids, forward)
	if status != 0 {
		refuseID(w, status, nil)
		return
	}

	t := sess.target()

	if t.backend != "" && !srv.gate.look().away {
		resp, _, err := srv.send(r.Context(), outgoing{
			method: http.MethodDelete, header: forward, session: t.backend, query: r.URL.RawQuery,
		})

		switch {
		case err != nil && r.Context().Err() != nil:
			out = outcomeClosed
			return
		case err != nil:
			srv.suspect("refused")
		default:
			a := newAnswer(resp)
			err = a.read(maxPeek)
			_ = resp.Body.Close()

			if err == nil && decidedByBackend(a) {
				out = statusOutcome(a, nil)

				if a.StatusCode < http.StatusMultipleChoices {
					sess.close(r.Context())
				}

				responseHeader(w.Header(), a.Header)
				w.WriteHeader(a.StatusCode)
				_, _ = w.Write(a.head)

				return
			}
		}
	}

	// The backend has no such session, or can't say.
	if !sess.owns(forward) {
		refuseSession(w, nil)
		return
	}

	sess.close(r.Context())

	out = outcomeOK

	w.WriteHeader(http.StatusNoContent)
}

// decidedByBackend reports whether the answer to a DELETE is the client's: it
// worked, it is not allowed, or not to this client.
func decidedByBackend(a *answer) bool {
	switch a.StatusCode {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusUnauthorized, http.StatusForbidden:
		return true
	default:
		return a.StatusCode < http.StatusMultipleChoices
	}
}

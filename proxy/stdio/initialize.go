package stdio

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/mark3labs/mcp-go/mcp"
)

// initialize begins a session.
func (b *Bridge) initialize(req *http.Request, m *message) (*http.Response, error) {
	ctx := req.Context()

	for {
		p, c, err := b.starting(ctx, m)
		if err != nil {
			return b.notStarted(req, m, err)
		}

		select {
		case <-c.done:
		case <-p.leaving:
		case <-ctx.Done():
			if p.owner != nil {
				b.giveBack(p, m)
			}

			return nil, ctx.Err() //nolint:wrapcheck // net/http does the same
		}

		select {
		case <-c.done:
		default:
			continue // it is being replaced
		}

		if c.err != nil {
			return nil, fmt.Errorf("%w: it ended before it had answered initialize", ErrUnavailable)
		}

		edits := []edit{{c.answer.id, m.id.of(m.raw)}}

		if !c.answer.failure.absent() {
			if p.owner != nil {
				p.stop()
			}

			return jsonBody(req, http.StatusOK, splice(c.answer.raw, edits...)), nil
		}

		s, ok := b.admit(p)
		if !ok {
			if p.owner != nil {
				p.stop()
			}

			continue
		}

		if p.owner == nil {
			edits = append(edits, olderRevision(m, &c.answer)...)
		}

		resp := jsonBody(req, http.StatusOK, splice(c.answer.raw, edits...))
		resp.Header.Set(mcp.HeaderSessionID, s.id)

		return resp, nil
	}
}

// starting returns a process for a session, and the initialize that it was sent.
func (b *Bridge) starting(ctx context.Context, m *message) (*process, *call, error) {
	if !b.cfg.Shared {
		return b.own(m)
	}

	p, err := b.shared(ctx)
	if err != nil {
		return nil, nil, err
	}

	return p, p.initialize(b.greeting), nil
}

// revisions are those with sessions. The last one is offered to a shared process,
// always, so that what it answers doesn't depend on which client comes first.
func revisions() []string {
	return []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}
}

// newGreeting returns the initialize of a shared process.
func newGreeting(version string) (*message, error) {
	known := revisions()
	raw := []byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + known[len(known)-1] +
		`","capabilities":{},"clientInfo":{"name":"mcp-sidecar","version":`)

	// What isn't valid UTF-8 is replaced.
	raw, _ = jsontext.AppendQuote(raw, version)

	m, err := readMessage(append(raw, "}}}"...))

	return &m, err
}

// olderRevision lets a client have the protocol revision that it asked for, if it
// is an older one than that of the shared process.
func olderRevision(m, answer *message) []edit {
	at := find(answer.raw, answer.result, "protocolVersion")
	asked := m.param("protocolVersion").of(m.raw)
	want, _ := unquote(asked)
	have, _ := unquote(at.of(answer.raw))

	if want < have && slices.Contains(revisions(), want) {
		return []edit{{at, asked}}
	}

	return nil
}

package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"math/bits"
	"mime"
	"net/http"
	"strings"
	"sync"
)

// maxWhole is how large a JSON answer may be to be read to its end before the
// client gets the first byte. Such an answer can still be replaced by another
// when the backend is lost in the middle of it.
const maxWhole = 1 << 20

// answer is a backend's answer of which a part, often all, was read.
type answer struct {
	*http.Response

	kind  string // media type
	plain bool   // the body can be read: it isn't compressed in an unknown way
	head  []byte // what was read of the body
	whole bool   // that was all of it

	buffers *wholeBuffers // where head comes from when it is large; nil when something of it is kept
	one     [1]message    // what rpc returns
}

// newAnswer looks at the header of an answer. What a backend compresses without
// having been asked to is unpacked.
func newAnswer(resp *http.Response) *answer {
	a := &answer{Response: resp, plain: true}
	a.kind = mediaType(resp.Header.Get("Content-Type"))

	if resp.Header["Content-Encoding"] == nil {
		return a
	}

	switch strings.ToLower(resp.Header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip", "x-gzip":
		resp.Body = &gunzip{body: resp.Body}
		resp.ContentLength = -1
		resp.Header.Del("Content-Encoding")
	default:
		a.plain = false
	}

	return a
}

// ahead reports whether a part of the body came together with the header.
func (a *answer) ahead() bool {
	b, ok := a.Body.(*poolBody)

	return ok && b.ahead()
}

// mediaType returns the media type without its parameters.
func mediaType(v string) string {
	if v == typeJSON || v == typeEventStream {
		return v // nearly always
	}

	kind, _, _ := mime.ParseMediaType(v)

	return kind
}

// gunzip unpacks a body. The gzip header is read with the first bytes that are
// asked for, not before.
type gunzip struct {
	body io.ReadCloser
	r    *gzip.Reader
}

func (g *gunzip) Read(b []byte) (int, error) {
	if g.r == nil {
		r, err := gzip.NewReader(g.body)
		if err != nil {
			return 0, err //nolint:wrapcheck // the caller classifies it
		}

		g.r = r
	}

	return g.r.Read(b) //nolint:wrapcheck // io.EOF must stay what it is
}

func (g *gunzip) Close() error { return g.body.Close() } //nolint:wrapcheck // nobody looks at it

// wholeBuffers are for large answers that are read to their end before the client
// gets the first byte.
type wholeBuffers struct{ pool sync.Pool }

// leastWhole is how large a buffer must be to be worth keeping.
const leastWhole = 32 << 10

// get returns an empty buffer for n bytes, or, if n is 0, for a number that isn't
// known: one that was used before, or nil.
func (b *wholeBuffers) get(n int) []byte {
	if b == nil || n > 0 && n < leastWhole {
		return make([]byte, 0, n)
	}

	have, _ := b.pool.Get().(*[]byte)

	switch {
	case have != nil && cap(*have) >= n:
		return (*have)[:0]
	case n == 0:
		return nil
	default:
		return make([]byte, 0, 1<<bits.Len(uint(n-1)))
	}
}

// release gives the memory of a large answer back, which nobody may use any more.
func (a *answer) release() {
	if c := cap(a.head); c >= leastWhole && c <= 2*maxWhole {
		head := a.head[:0]
		a.buffers.pool.Put(&head)
	}

	a.head = nil
}

// read reads up to limit bytes of the body.
func (a *answer) read(limit int64) error {
	if a.whole || int64(len(a.head)) > limit {
		return nil
	}

	if n := a.ContentLength; n >= 0 && n <= limit && a.head == nil {
		a.head = a.buffers.get(int(n))[:n]
		got, err := io.ReadFull(a.Body, a.head)
		a.head, a.whole = a.head[:got], err == nil

		return err //nolint:wrapcheck // the caller classifies it
	}

	if a.head == nil && a.ContentLength < 0 {
		a.head = a.buffers.get(0)
	}

	buf := bytes.NewBuffer(a.head)
	want := limit - int64(len(a.head)) + 1
	n, err := buf.ReadFrom(io.LimitReader(a.Body, want))
	a.head, a.whole = buf.Bytes(), n < want && err == nil

	return err //nolint:wrapcheck // the caller classifies it
}

// rpc returns the single JSON-RPC response that the answer is, if it is one. The
// next call writes over it.
func (a *answer) rpc() (*message, bool) {
	if !a.whole || !a.plain || len(a.head) == 0 {
		return nil, false
	}

	// Of what only passes, all that counts is whether it is an error.
	if a.buffers != nil && len(a.head) > maxPeek && a.StatusCode == http.StatusOK && beginsResult(a.head) {
		a.one[0] = message{kind: kindResponse}
		return &a.one[0], true
	}

	e, err := readEnvelopeInto(a.head, a.one[:])
	if err != nil || e.batch || e.messages[0].kind != kindResponse {
		return nil, false
	}

	return &e.messages[0], true
}

// namesSession reports whether a body speaks of the session.
func namesSession(body []byte) bool {
	const word = "session"

	for i := 0; i+len(word) <= len(body); i++ {
		if body[i]|0x20 == word[0] && bytes.EqualFold(body[i:i+len(word)], []byte(word)) {
			return true
		}
	}

	return false
}

// judge decides what an answer means: for the session, for the gate and for the
// client.
func (x *exchange) judge(ctx context.Context, resp *http.Response, t target) step {
	a := newAnswer(resp)

	if x.calls && !x.env.batch { // nothing of the answer is kept
		a.buffers = &x.p.wholes

		defer a.release()
	}

	switch {
	case resp.StatusCode == http.StatusOK && a.kind == typeEventStream && a.plain:
		return x.stream(ctx, a, t)
	case resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent:
		_ = a.read(0)

		x.accepted(ctx, true)
		responseHeader(x.out.w.Header(), resp.Header)
		x.outcome = outcomeOK
		x.out.empty(resp.StatusCode)

		return done
	}

	if err := a.read(maxWhole); err != nil {
		return x.broken(ctx)
	}

	rpc, isRPC := a.rpc()

	if x.sess != nil && !x.init {
		switch how := lossOf(a, rpc, isRPC); {
		case how == lossCertain, how == lossPossible && x.sess.confirmLoss(ctx, a, t, ownHeader(x.forward)):
			return x.renew(ctx, t)
		case ctx.Err() != nil:
			return x.clientLeft()
		}
	}

	switch {
	case notMCP(a, isRPC) || x.init && notReady(a, isRPC) || x.requests > 0 && noEndpoint(a, isRPC):
		return x.unavailable(ctx, a)
	case x.requests > 0 && a.nothing():
		x.srv.ask("http_error")
		return x.repeat(ReasonInterrupted)
	}

	if resp.StatusCode < http.StatusBadRequest {
		x.accepted(ctx, !isRPC || !rpc.isError)
	}

	return x.deliver(ctx, a, rpc)
}

// notMCP reports whether a running backend, or something before it, fails in a way
// that clients of MCP don't understand.
func notMCP(a *answer, isRPC bool) bool {
	return a.StatusCode >= http.StatusInternalServerError && !isRPC
}

// notReady reports whether an answer to initialize says that nobody is there yet
// who understands it. A client of 2024-11-05 may also learn from such an answer
// that it should use another transport, so it gets it in the end.
func notReady(a *answer, isRPC bool) bool {
	return a.StatusCode >= http.StatusInternalServerError ||
		!isRPC && (a.StatusCode == http.StatusNotFound || a.StatusCode == http.StatusOK)
}

// noEndpoint reports whether an answer to a request outside of sessions says that
// there is nothing at the endpoint: whoever answers is still starting, as a rule.
// Nothing ran. Within a session that is a loss.
func noEndpoint(a *answer, isRPC bool) bool {
	return a.StatusCode == http.StatusNotFound && !isRPC && !namesSession(a.head)
}

// nothing reports whether the answer is a success without a word of what came of
// the request: so servers end the requests that they had when they are told to
// stop.
func (a *answer) nothing() bool {
	return a.StatusCode == http.StatusOK && a.plain && a.whole && len(bytes.TrimSpace(a.head)) == 0
}

// unavailable decides after an answer of which no client could make sense. The
// backend may be starting, or what is before it may not find it.
func (x *exchange) unavailable(ctx context.Context, a *answer) step {
	absent := a.StatusCode == http.StatusNotFound

	switch {
	case x.init || absent || a.StatusCode > http.StatusInternalServerError:
		x.srv.suspect("not_ready")
	default:
		x.srv.ask("http_error") // perhaps this one request is too much for it
	}

	if !x.began.away && x.began.state.Phase >= Ready {
		x.odd++ // it was said to be there
	}

	switch repeatable := x.init || absent || x.requests > 0 && x.onlyReads() && a.StatusCode > http.StatusInternalServerError; {
	case repeatable && x.odd < maxOdd:
		return again
	case a.StatusCode < http.StatusInternalServerError, modern(&x.env.messages[0]):
		return x.deliver(ctx, a, nil)
	case x.requests == 0:
		x.accept()
		x.outcome = outcomeBackend

		return done
	default:
		return x.fail(interruptedFailure(ReasonBackend, !x.onlyReads()))
	}
}

// broken decides after an answer that broke off before anything of it went to the
// client.
func (x *exchange) broken(ctx context.Context) step {
	if ctx.Err() != nil {
		return x.clientLeft()
	}

	return x.interrupted("reset")
}

// accepted notes that the backend took the request, and whether it did what was
// asked.
func (x *exchange) accepted(ctx context.Context, granted bool) {
	if x.sess == nil {
		return
	}

	x.sess.accepted(ctx, x.forward, x.began.process, granted)

	if m := &x.env.messages[0]; m.method == methodInitialized {
		x.sess.setInitialized()
	}
}

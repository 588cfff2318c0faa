package proxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
)

// copyBuffers are for answers that are too large to be held.
type copyBuffers struct{ pool sync.Pool }

const copyBuffer = 32 << 10

func (b *copyBuffers) get() *[copyBuffer]byte {
	if v, ok := b.pool.Get().(*[copyBuffer]byte); ok {
		return v
	}

	return new([copyBuffer]byte)
}

// deliver hands an answer that is no event stream to the client, as it is. rpc is
// the JSON-RPC response in it, if it is one.
func (x *exchange) deliver(ctx context.Context, a *answer, rpc *message) step {
	x.outcome = statusOutcome(a, rpc)

	if rpc != nil && !x.env.batch {
		x.see(ctx, rpc, a.head)

		if x.init && !rpc.isError {
			return x.initialized(ctx, a, rpc)
		}
	}

	if x.discovers {
		x.discovered(a, rpc)
	}

	if x.out.begun {
		return x.deliverInStream(ctx, a)
	}

	h := x.out.w.Header()
	responseHeader(h, a.Header)

	if a.Request != nil {
		localLocation(h, a.Request)
	}

	if a.whole {
		setLength(h, int64(len(a.head)))
	} else if a.ContentLength >= 0 {
		setLength(h, a.ContentLength)
	}

	x.out.header(a.StatusCode)

	if _, err := x.out.w.Write(a.head); err != nil {
		x.outcome = outcomeClosed
		return done
	}

	if !a.whole {
		x.copyRest(ctx, a)
	}

	return done
}

// copyRest copies what is left of a large answer. When the backend is lost in the
// middle, the client must see that there is a piece missing.
func (x *exchange) copyRest(ctx context.Context, a *answer) {
	buf := x.p.buffers.get()
	defer x.p.buffers.pool.Put(buf)

	for {
		n, err := a.Body.Read(buf[:])
		if n > 0 {
			if _, werr := x.out.w.Write(buf[:n]); werr != nil {
				x.outcome = outcomeClosed
				return
			}
		}

		if err == io.EOF {
			return
		}

		if err != nil {
			if ctx.Err() != nil {
				x.outcome = outcomeClosed
				return
			}

			x.outcome = outcomeBackend
			x.srv.suspect("reset")
			x.out.abort()
		}
	}
}

// deliverInStream hands a JSON answer to a client that has got the header of an
// event stream, because its request was held or tried twice.
func (x *exchange) deliverInStream(ctx context.Context, a *answer) step {
	if err := a.read(maxEvent); err != nil {
		return x.broken(ctx)
	}

	e, err := readEnvelope(a.head)
	if !a.whole || !a.plain || err != nil || e.messages[0].kind != kindResponse {
		return x.fail(interruptedFailure(ReasonBackend, !x.onlyReads()))
	}

	if x.out.message(http.StatusOK, bytes.TrimSpace(a.head)) != nil {
		x.outcome = outcomeClosed
	}

	return done
}

func statusOutcome(a *answer, rpc *message) outcome {
	switch {
	case rpc != nil && rpc.isError:
		return outcomeRPCError
	case a.StatusCode >= http.StatusInternalServerError:
		return outcomeBackend
	case a.StatusCode >= http.StatusBadRequest:
		return outcomeClientError
	default:
		return outcomeOK
	}
}

// see looks at the response to a single request before the client gets it.
func (x *exchange) see(ctx context.Context, rpc *message, body []byte) {
	m := &x.env.messages[0]

	if m.method == methodList && !rpc.isError {
		x.listed(rpc.result.of(body))
	}

	if x.sess != nil && !rpc.isError {
		x.sess.note(ctx, m)
	}
}

package notify

import (
	"context"
	"maps"
	"net/http"
)

// traceKey is the key of a context's headers that continue a trace.
type traceKey struct{}

// traced tells [Deps.Trace] of a call that begins, and returns the context with
// which its requests carry what continues the trace, and what is for its end.
func (a *attempt) traced(ctx context.Context) (context.Context, func(Reason)) {
	if a.r.trace == nil {
		return ctx, func(Reason) {}
	}
	header, end := a.r.trace(a.label, a.view.Attempts+1)

	return context.WithValue(ctx, traceKey{}, header), end
}

func addTrace(ctx context.Context, h http.Header) {
	if header, ok := ctx.Value(traceKey{}).(http.Header); ok {
		maps.Copy(h, header)
	}
}

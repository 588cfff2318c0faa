package notify

import (
	"context"
	"maps"
	"net/http"
)

// traceKey is the key of a context's headers that continue a trace.
type traceKey struct{}

// traced tells [Deps.Trace] of a call that begins, and lets its requests carry
// what continues the trace. The function returned is for the call's end.
func (a *attempt) traced(ctx *context.Context) func(Reason) {
	if a.r.trace == nil {
		return func(Reason) {}
	}
	header, end := a.r.trace(a.label, a.view.Attempts+1)
	*ctx = context.WithValue(*ctx, traceKey{}, header)

	return end
}

func addTrace(ctx context.Context, h http.Header) {
	if header, ok := ctx.Value(traceKey{}).(http.Header); ok {
		maps.Copy(h, header)
	}
}

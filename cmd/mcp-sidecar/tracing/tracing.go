// Package tracing sends spans over OTLP where the standard OTEL_* variables ask
// for it: of clients' requests, of swaps and of refreshes. Their attributes are
// names of the configuration and closed sets only; no id, tool, URL or header.
//
// The parts that do the work know nothing of it but a function each. A nil
// *Tracing is off, and its methods return nil functions.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-sidecar/mcp-sidecar/health"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
)

const (
	scope = "github.com/mcp-sidecar/mcp-sidecar"

	keyServer      = attribute.Key("mcp_sidecar.server")
	keyAgentServer = attribute.Key("mcp_sidecar.agent_server")
	keyMethod      = attribute.Key("mcp.method.name")
	keyOutcome     = attribute.Key("mcp_sidecar.outcome")
	keyCause       = attribute.Key("mcp_sidecar.cause")
	keyAttempt     = attribute.Key("mcp_sidecar.attempt")
	keyReason      = attribute.Key("mcp_sidecar.reason")
)

// Tracing makes spans. It is safe for concurrent use.
type Tracing struct {
	provider   *sdktrace.TracerProvider
	tracer     trace.Tracer
	propagator propagation.TraceContext

	mu    sync.Mutex
	swaps map[string]trace.Span // that haven't settled, by server
}

// Wanted tells whether the variables ask for spans, and what is wrong with them.
func Wanted(getenv func(string) string) (bool, error) {
	if getenv("OTEL_SDK_DISABLED") == "true" || getenv("OTEL_TRACES_EXPORTER") == "none" ||
		getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return false, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch v := getenv(name); v {
		case "":
			continue
		case "http/protobuf":
			return true, nil
		default:
			return false, fmt.Errorf("%s is %q: spans are sent as http/protobuf only", name, v)
		}
	}
	return true, nil
}

// New begins to send spans as the variables of the process say. Nothing waits for
// who receives them. [Tracing.Stop] sends what is left.
func New(ctx context.Context, version string, getenv func(string) string, log *slog.Logger) (*Tracing, error) {
	c, err := newClient(getenv)
	if err != nil {
		return nil, fmt.Errorf("preparing to send spans: %w", err)
	}
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("preparing to send spans: %w", err)
	}
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "mcp-sidecar"), attribute.String("service.version", version)),
		resource.WithFromEnv(), // wins over what is above
	)
	if err != nil {
		return nil, fmt.Errorf("reading what spans are to say of this process: %w", err)
	}
	otel.SetErrorHandler(&errorLog{log: log})
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return &Tracing{provider: p, tracer: p.Tracer(scope, trace.WithInstrumentationVersion(version)), swaps: map[string]trace.Span{}}, nil
}

// Stop sends what is left, until ctx ends.
func (t *Tracing) Stop(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("sending the last spans: %w", err)
	}
	return nil
}

// Request returns what [proxy.Deps] wants.
func (t *Tracing) Request() func(server, method string, began time.Time, h http.Header) func(outcome string) {
	if t == nil {
		return nil
	}
	return t.request
}

func (t *Tracing) request(server, method string, began time.Time, h http.Header) func(outcome string) {
	ctx := t.propagator.Extract(context.Background(), propagation.HeaderCarrier(h))
	ctx, span := t.tracer.Start(ctx, method, trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(keyServer.String(server), keyMethod.String(method)))
	t.propagator.Inject(ctx, propagation.HeaderCarrier(h))
	return func(outcome string) {
		span.SetAttributes(keyOutcome.String(outcome))
		if outcome == "backend_error" || outcome == "backend_unavailable" {
			span.SetStatus(codes.Error, outcome)
		}
		span.End()
	}
}

// Refresh returns what [notify.Deps] wants.
func (t *Tracing) Refresh() func(agentServer string, attempt int) (http.Header, func(notify.Reason)) {
	if t == nil {
		return nil
	}
	return t.refresh
}

func (t *Tracing) refresh(agentServer string, attempt int) (http.Header, func(notify.Reason)) {
	ctx, span := t.tracer.Start(context.Background(), "refresh", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(keyAgentServer.String(agentServer), keyAttempt.Int(attempt)))
	h := http.Header{}
	t.propagator.Inject(ctx, propagation.HeaderCarrier(h))
	return h, func(reason notify.Reason) {
		if reason != "" {
			span.SetAttributes(keyReason.String(string(reason)))
			span.SetStatus(codes.Error, string(reason))
		}
		span.End()
	}
}

// Backend makes a span of a swap: from when it was seen until the tools of the new
// process are settled.
func (t *Tracing) Backend(e health.Event) {
	if t == nil || e.Swap == nil && e.State != health.Settled {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Swap != nil {
		if s := t.swaps[e.Server]; s != nil { // by another one, before it was settled
			s.SetAttributes(keyOutcome.String("superseded"))
			s.End(trace.WithTimestamp(e.Swap.DetectedAt))
		}
		_, t.swaps[e.Server] = t.tracer.Start(context.Background(), "swap", trace.WithTimestamp(e.Swap.DetectedAt),
			trace.WithAttributes(keyServer.String(e.Server), keyCause.String(e.Swap.Cause)))
	}
	if s := t.swaps[e.Server]; s != nil && e.State == health.Settled {
		s.SetAttributes(keyOutcome.String("settled"))
		s.End(trace.WithTimestamp(e.At))
		delete(t.swaps, e.Server)
	}
}

// errorLog logs what goes wrong with sending, the same only once in a row.
type errorLog struct {
	log  *slog.Logger
	mu   sync.Mutex
	last string
}

// Handle implements [otel.ErrorHandler].
func (l *errorLog) Handle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := err.Error(); text != l.last {
		l.last = text
		l.log.Warn("spans can't be sent", "err", err)
	}
}

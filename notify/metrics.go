package notify

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/mcp-sidecar/mcp-sidecar/metrics"
)

// Result says how one refresh, with all its requests, ended. The set is closed.
type Result string

// The results.
const (
	// ResultSuccess: the conversation has the generation that was desired.
	ResultSuccess Result = "success"
	// ResultFailed: it doesn't, and a later try or a change is awaited.
	ResultFailed Result = "failed"
	// ResultGone: the conversation no longer exists, its registration was removed.
	ResultGone Result = "gone"
	// ResultSuperseded: a newer generation came meanwhile, or the registration
	// ended.
	ResultSuperseded Result = "superseded"
)

// Results returns every result.
func Results() []Result {
	return []Result{ResultSuccess, ResultFailed, ResultGone, ResultSuperseded}
}

func hows() []string { return []string{"observed", "acknowledged"} }

const (
	component        = "notify"
	labelAgentServer = "agent_server"
	labelReason      = "reason"
)

// Metrics are the metrics of the package. One value may serve several
// reconcilers.
type Metrics struct {
	refreshes       *prometheus.CounterVec
	failed          *prometheus.CounterVec
	requests        *prometheus.CounterVec
	requestsFailed  *prometheus.CounterVec
	requestDuration *prometheus.HistogramVec
	convergence     *prometheus.HistogramVec
	inFlight        *prometheus.GaugeVec
	lastSuccess     *prometheus.GaugeVec
	applied         *prometheus.CounterVec

	queueDepth  prometheus.Gauge
	workers     prometheus.Gauge
	workersBusy prometheus.Gauge
	duration    prometheus.Histogram
	lastRun     prometheus.Gauge
	panics      *prometheus.CounterVec
}

// NewMetrics creates the metrics and registers them; a nil reg leaves them
// unregistered. [Metrics.InitAgentServer] adds the series of an agent server.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: metrics.Namespace, Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Namespace: metrics.Namespace, Name: name, Help: help})
	}
	gauges := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: metrics.Namespace, Name: name, Help: help}, []string{labelAgentServer})
	}
	histograms := func(name, help string) *prometheus.HistogramVec {
		return f.NewHistogramVec(metrics.DurationOpts(name, help), []string{labelAgentServer})
	}
	m := &Metrics{
		refreshes: counter("refreshes_total",
			"Refreshes of conversations that ended, by result.", labelAgentServer, "result"),
		failed: counter("refreshes_failed_total",
			"Refreshes of conversations that failed, by reason.", labelAgentServer, labelReason),
		requests: counter("refresh_requests_total",
			"Requests sent to agent servers for refreshes, short retries and look-ups included.", labelAgentServer),
		requestsFailed: counter("refresh_requests_failed_total",
			"Requests to agent servers that did not get a 2xx answer, by reason.", labelAgentServer, labelReason),
		requestDuration: histograms("refresh_request_duration_seconds",
			"Time one request to an agent server took, with its answer."),
		convergence: histograms("refresh_convergence_seconds",
			"Time from a new generation to a conversation that has it, but for those that were parked."),
		inFlight: gauges("refreshes_in_flight",
			"Refreshes that are running."),
		lastSuccess: gauges("refresh_last_success_timestamp_seconds",
			"When a refresh last succeeded, 0 before the first."),
		applied: counter("applied_total",
			"Conversations brought to a generation, by how it is known: their listing was observed, or the agent server acknowledged.",
			labelAgentServer, "how"),
		queueDepth: gauge("reconcile_queue_depth",
			"Conversations that wait for a refresh, for their turn or for their next attempt."),
		workers: gauge("reconcile_workers",
			"How many refreshes may run at once."),
		workersBusy: gauge("reconcile_workers_busy",
			"How many refreshes hold a worker."),
		duration: f.NewHistogram(metrics.DurationOpts("reconcile_duration_seconds",
			"Time one conversation's turn took, from reading its record to writing it.")),
		lastRun: gauge("reconcile_last_run_timestamp_seconds",
			"When the reconcile loop last looked for work."),
		panics: newPanics(reg),
	}
	m.panics.WithLabelValues(component)

	return m
}

// newPanics creates the counter of panics, or joins the one that another
// package has registered.
func newPanics(reg prometheus.Registerer) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metrics.Namespace, Name: "panics_total", Help: "Panics that were caught, by component.",
	}, []string{"component"})
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	if are, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if joined, ok := are.ExistingCollector.(*prometheus.CounterVec); ok {
			return joined
		}
	}
	if err != nil {
		panic(err) // as promauto does: a programming error
	}

	return c
}

// InitAgentServer creates every series of an agent server, so that its first
// failure is a step from 0 to 1. It is idempotent.
func (m *Metrics) InitAgentServer(name string) {
	for _, r := range Results() {
		m.refreshes.WithLabelValues(name, string(r))
	}
	for _, r := range Reasons() {
		m.failed.WithLabelValues(name, string(r))
	}
	for _, r := range requestReasons() {
		m.requestsFailed.WithLabelValues(name, string(r))
	}
	for _, how := range hows() {
		m.applied.WithLabelValues(name, how)
	}
	m.requests.WithLabelValues(name)
	m.requestDuration.WithLabelValues(name)
	m.convergence.WithLabelValues(name)
	m.inFlight.WithLabelValues(name)
	m.lastSuccess.WithLabelValues(name)
}

// clientMetrics are what one agent server's client moves.
type clientMetrics struct {
	m    *Metrics
	name string
}

func (m *Metrics) client(name string) *clientMetrics { return &clientMetrics{m: m, name: name} }

func (c *clientMetrics) request(took time.Duration, failed Reason) {
	c.m.requests.WithLabelValues(c.name).Inc()
	c.m.requestDuration.WithLabelValues(c.name).Observe(took.Seconds())
	if failed != "" {
		c.m.requestsFailed.WithLabelValues(c.name, string(failed.known())).Inc()
	}
}

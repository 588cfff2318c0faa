package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/mcp-sidecar/mcp-sidecar/metrics"
)

// outcome says how a client's request ended. The values are label values.
type outcome string

const (
	outcomeOK          outcome = "ok"
	outcomeRPCError    outcome = "rpc_error"           // the backend answered with a JSON-RPC error
	outcomeClientError outcome = "client_error"        // the request was refused
	outcomeBackend     outcome = "backend_error"       // the backend failed the request
	outcomeUnavailable outcome = "backend_unavailable" // it could not be asked in time
	outcomeClosed      outcome = "client_closed"       // the client left or cancelled
)

func outcomes() []outcome {
	return []outcome{outcomeOK, outcomeRPCError, outcomeClientError, outcomeBackend, outcomeUnavailable, outcomeClosed}
}

// Label values of methods that are not JSON-RPC ones.
const (
	methodStream = "http_get"
	methodDelete = "http_delete"
	methodBatch  = "batch"
)

// Results of re-creating a session, and of replays.
const (
	reinitOK       = "ok"
	reinitNotReady = "not_ready" // the backend could not be asked, or isn't an MCP server yet
	reinitRefused  = "refused"   // it doesn't take the client any more: the session ended
	reinitDenied   = "denied"    // it doesn't take the client's credentials

	replaySent    = "sent"    // sent again
	replayRefused = "refused" // not sent again: it may have had an effect
)

// Metrics are the proxy's metrics. One set serves every [Proxy] of a process.
type Metrics struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
	streams   *prometheus.GaugeVec
	sessions  *prometheus.GaugeVec
	reinits   *prometheus.CounterVec
	held      *prometheus.GaugeVec
	holdTime  *prometheus.HistogramVec
	replays   *prometheus.CounterVec
	announced *prometheus.CounterVec
}

// NewMetrics registers the proxy's metrics. A nil reg registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	name := func(s string) prometheus.Opts { return prometheus.Opts{Namespace: metrics.Namespace, Name: s} }
	counter := func(s, help string, labels ...string) *prometheus.CounterVec {
		o := name(s)
		o.Help = help

		return f.NewCounterVec(prometheus.CounterOpts(o), append([]string{"server"}, labels...))
	}
	gauge := func(s, help string) *prometheus.GaugeVec {
		o := name(s)
		o.Help = help

		return f.NewGaugeVec(prometheus.GaugeOpts(o), []string{"server"})
	}

	return &Metrics{
		requests: counter("proxy_requests_total",
			"Requests of clients that ended, by JSON-RPC method and how they ended.", "method", "outcome"),
		duration: f.NewHistogramVec(metrics.DurationOpts("proxy_request_duration_seconds",
			"Time from a client's request to the first byte of its answer."), []string{"server", "method"}),
		inFlight: gauge("proxy_requests_in_flight", "Requests of clients that are being served, listening streams left out."),
		streams:  gauge("proxy_streams_in_flight", "Listening streams of clients that are open."),
		sessions: gauge("sessions", "Sessions of clients that are held in memory."),
		reinits: counter("session_reinitializations_total",
			"Sessions that the backend had lost, by what came of re-creating them.", "result"),
		held: gauge("held_requests", "Requests that wait for the backend."),
		holdTime: f.NewHistogramVec(metrics.DurationOpts("hold_duration_seconds",
			"Time that held requests waited for the backend."), []string{"server"}),
		replays: counter("replays_total",
			"Requests whose first try the backend did not answer, by whether they were sent again.", "result"),
		announced: counter("list_changed_announcements_total",
			"Notices of a changed tool list that were sent to clients."),
	}
}

func frequentMethods() []string {
	return []string{methodInitialize, methodList, methodCall, metrics.OtherMethod}
}

func countedMethods() []string {
	return append(metrics.ClientMethods(), methodStream, methodDelete, methodBatch)
}

// Init creates the series of a server, so that the first event is a step from
// zero. The durations of rare methods are left out: they are many series, and no
// alert waits for their first.
func (m *Metrics) Init(server string) {
	for _, method := range frequentMethods() {
		m.duration.WithLabelValues(server, method)
	}

	for _, method := range countedMethods() {
		for _, o := range outcomes() {
			m.requests.WithLabelValues(server, method, string(o))
		}
	}

	for _, v := range []*prometheus.GaugeVec{m.inFlight, m.streams, m.sessions, m.held} {
		v.WithLabelValues(server)
	}

	for _, r := range []string{reinitOK, reinitNotReady, reinitRefused, reinitDenied} {
		m.reinits.WithLabelValues(server, r)
	}

	for _, r := range []string{replaySent, replayRefused} {
		m.replays.WithLabelValues(server, r)
	}

	m.holdTime.WithLabelValues(server)
	m.announced.WithLabelValues(server)
}

// serverMetrics are the metrics of one server, looked up once.
type serverMetrics struct {
	*Metrics

	server                            string
	ends                              map[end]prometheus.Counter
	firstBytes                        map[string]prometheus.Observer // of the frequent methods
	inFlight, streams, sessions, held prometheus.Gauge
	holdTime                          prometheus.Observer
	announced                         prometheus.Counter
}

// end is how a request of a method ended.
type end struct {
	method  string
	outcome outcome
}

func (m *Metrics) of(server string) *serverMetrics {
	m.Init(server)

	ends := make(map[end]prometheus.Counter)

	for _, method := range countedMethods() {
		for _, o := range outcomes() {
			ends[end{method, o}] = m.requests.WithLabelValues(server, method, string(o))
		}
	}

	firstBytes := make(map[string]prometheus.Observer)

	for _, method := range frequentMethods() {
		firstBytes[method] = m.duration.WithLabelValues(server, method)
	}

	return &serverMetrics{
		ends: ends, firstBytes: firstBytes,
		Metrics: m, server: server,
		inFlight: m.inFlight.WithLabelValues(server), streams: m.streams.WithLabelValues(server),
		sessions: m.sessions.WithLabelValues(server), held: m.held.WithLabelValues(server),
		holdTime: m.holdTime.WithLabelValues(server), announced: m.announced.WithLabelValues(server),
	}
}

func (m *serverMetrics) ended(method string, o outcome) {
	if c := m.ends[end{method, o}]; c != nil {
		c.Inc()
		return
	}

	m.requests.WithLabelValues(m.server, method, string(o)).Inc()
}

func (m *serverMetrics) firstByte(method string, after time.Duration) {
	o := m.firstBytes[method]
	if o == nil {
		o = m.duration.WithLabelValues(m.server, method)
	}

	o.Observe(after.Seconds())
}

func (m *serverMetrics) reinit(result string) { m.reinits.WithLabelValues(m.server, result).Inc() }
func (m *serverMetrics) replay(result string) { m.replays.WithLabelValues(m.server, result).Inc() }

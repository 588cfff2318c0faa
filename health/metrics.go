package health

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/mcp-sidecar/mcp-sidecar/metrics"
)

// The values of the label probe: what the sidecar asks a backend.
const (
	ProbeHealth  = "health"  // the HTTP health path
	ProbeConnect = "connect" // initialize, or server/discover at first contact
	ProbePing    = "ping"    // ping, or server/discover where there is no ping
	ProbeList    = "list"    // tools/list, every page
)

// Probes returns every value of the label probe.
func Probes() []string { return []string{ProbeHealth, ProbeConnect, ProbePing, ProbeList} }

// The values of the label cause of schema_changes_total.
const (
	ChangeByRestart     = "restart"      // the first tools of a new process
	ChangeByListChanged = "list_changed" // the running process said so
	ChangeSilent        = "silent"       // the running process didn't say a word
)

// The values of the label to of backend_transitions_total.
const (
	toUp   = "up"
	toDown = "down"
)

// Metrics are the metrics of all checkers of a process. Safe for concurrent use.
type Metrics struct {
	up, lastSuccess, generation, hash, tools, lastChange    *prometheus.GaugeVec
	probes, probesFailed, transitions, swaps, schemaChanges *prometheus.CounterVec
	duration                                                *prometheus.HistogramVec
}

// NewMetrics registers the metrics with reg; with nil they work without being shown.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	gauge := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: metrics.Namespace, Name: name, Help: help}, []string{"server"})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: metrics.Namespace, Name: name, Help: help}, append([]string{"server"}, labels...))
	}
	duration := metrics.DurationOpts("backend_probe_duration_seconds", "Time that a probe of the backend took, whatever came of it.")
	duration.Buckets = []float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10}
	return &Metrics{
		up:            gauge("backend_up", "1 if the backend answers, 0 if it is away or not ready."),
		lastSuccess:   gauge("backend_last_success_timestamp_seconds", "When the backend last answered a probe; 0 if it never did."),
		generation:    gauge("schema_generation", "Number of the current generation of the server's tools."),
		hash:          gauge("schema_hash", "Low 48 bits of the hash of the settled tools, to compare replicas; 0 if unknown."),
		tools:         gauge("schema_tools", "Number of settled tools."),
		lastChange:    gauge("schema_last_change_timestamp_seconds", "When the settled tools last changed; 0 if they never did."),
		probes:        counter("backend_probes_total", "Probes sent to the backend.", "probe"),
		probesFailed:  counter("backend_probes_failed_total", "Probes that the backend failed.", "probe", "reason"),
		transitions:   counter("backend_transitions_total", "Times that the backend went up or down.", "to"),
		swaps:         counter("swaps_total", "Times that the process behind a server was seen to be another one.", "cause"),
		schemaChanges: counter("schema_changes_total", "Times that the settled tools changed.", "cause"),
		duration:      f.NewHistogramVec(duration, []string{"server", "probe"}),
	}
}

// Init creates every series of a server, so that the first event is a step from 0 to 1.
func (m *Metrics) Init(server string) {
	for _, g := range []*prometheus.GaugeVec{m.up, m.lastSuccess, m.generation, m.hash, m.tools, m.lastChange} {
		g.WithLabelValues(server)
	}
	for _, probe := range Probes() {
		m.probes.WithLabelValues(server, probe)
		m.duration.WithLabelValues(server, probe)
		for _, reason := range reasonsOfProbe(probe) {
			m.probesFailed.WithLabelValues(server, probe, string(reason))
		}
	}
	for _, to := range []string{toUp, toDown} {
		m.transitions.WithLabelValues(server, to)
	}
	for _, cause := range Causes() {
		m.swaps.WithLabelValues(server, cause)
	}
	for _, cause := range []string{ChangeByRestart, ChangeByListChanged, ChangeSilent} {
		m.schemaChanges.WithLabelValues(server, cause)
	}
}

// Forget drops the series of a server that is no longer configured.
func (m *Metrics) Forget(server string) {
	of := prometheus.Labels{"server": server}
	for _, g := range []*prometheus.GaugeVec{m.up, m.lastSuccess, m.generation, m.hash, m.tools, m.lastChange} {
		g.DeletePartialMatch(of)
	}
	for _, c := range []*prometheus.CounterVec{m.probes, m.probesFailed, m.transitions, m.swaps, m.schemaChanges} {
		c.DeletePartialMatch(of)
	}
	m.duration.DeletePartialMatch(of)
}

// SetGeneration shows the number of the server's current generation, which only the registry knows.
func (m *Metrics) SetGeneration(server string, number uint64) {
	m.generation.WithLabelValues(server).Set(float64(number))
}

// probed counts one probe.
func (m *Metrics) probed(server, probe string, took time.Duration, err error) {
	m.probes.WithLabelValues(server, probe).Inc()
	m.duration.WithLabelValues(server, probe).Observe(took.Seconds())
	switch reason := reasonOf(err); reason {
	case "":
		m.lastSuccess.WithLabelValues(server).SetToCurrentTime()
	case ReasonCanceled:
	default:
		m.probesFailed.WithLabelValues(server, probe, string(reason)).Inc()
	}
}

func (m *Metrics) setUp(server string, up bool) {
	value, to := 0.0, toDown
	if up {
		value, to = 1, toUp
	}
	m.up.WithLabelValues(server).Set(value)
	m.transitions.WithLabelValues(server, to).Inc()
}

func (m *Metrics) settled(server string, ts *Toolset) {
	m.hash.WithLabelValues(server).Set(low48(ts.Hash))
	m.tools.WithLabelValues(server).Set(float64(len(ts.Tools)))
}

func (m *Metrics) changed(server, cause string) {
	m.schemaChanges.WithLabelValues(server, cause).Inc()
	m.lastChange.WithLabelValues(server).SetToCurrentTime()
}

// low48 makes a number of a hash that a float holds exactly.
func low48(hash string) float64 {
	digits := strings.TrimPrefix(hash, "sha256:")
	if len(digits) > 12 {
		digits = digits[len(digits)-12:]
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		return 0
	}
	return float64(n)
}

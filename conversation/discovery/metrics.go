package discovery

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Results of runs, as a label value.
const (
	resultSuccess = "success"
	resultFailed  = "failed"
)

// Metrics are the metrics of the package. One instance is shared by everything that works for one registerer.
type Metrics struct {
	runs        *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	lastSuccess *prometheus.GaugeVec
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	const namespace, agentServer = "mcp_sidecar", "agent_server"
	factory := promauto.With(reg)
	return &Metrics{
		runs: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "discovery_runs_total",
			Help: "Searches for conversations at agent servers, by result.",
		}, []string{agentServer, "result"}),
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "discovery_run_duration_seconds",
			Help:                        "Time one search took, with the registrations of what it found.",
			Buckets:                     []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}, []string{agentServer}),
		lastSuccess: factory.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "discovery_last_success_timestamp_seconds",
			Help: "When a search last succeeded, 0 before the first.",
		}, []string{agentServer}),
	}
}

// InitAgentServer creates every series of an agent server. It is idempotent.
func (m *Metrics) InitAgentServer(name string) {
	m.runs.WithLabelValues(name, resultSuccess)
	m.runs.WithLabelValues(name, resultFailed)
	m.duration.WithLabelValues(name)
	m.lastSuccess.WithLabelValues(name)
}

func (m *Metrics) ran(name string, took time.Duration, err error) {
	m.duration.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.runs.WithLabelValues(name, resultFailed).Inc()
		return
	}
	m.runs.WithLabelValues(name, resultSuccess).Inc()
	m.lastSuccess.WithLabelValues(name).Set(float64(time.Now().UnixMilli()) / 1000)
}

package conversation

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const namespace = "mcp_sidecar"

// Results of registrations, as a label value.
const (
	resultCreated  = "created"
	resultRenewed  = "renewed"
	resultRejected = "rejected"
	resultRemoved  = "removed"
	resultExpired  = "expired"
)

// Metrics are the metrics of the package. One instance is shared by everything that works for one registerer.
type Metrics struct {
	registrations *prometheus.CounterVec
	operations    *prometheus.CounterVec
	failures      *prometheus.CounterVec
	durations     *prometheus.HistogramVec
	storeUp       prometheus.Gauge
	replicas      prometheus.Gauge
	mixedSince    *prometheus.GaugeVec
	conversations *conversationCollector
	sizer         atomic.Pointer[Sizer]
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	m := &Metrics{
		registrations: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "conversation_registrations_total",
			Help: "Registrations of conversations and their ends, by result.",
		}, []string{"result"}),
		operations: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "store_operations_total",
			Help: "Store operations.",
		}, []string{"op"}),
		failures: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "store_operations_failed_total",
			Help: "Store operations that failed; lost races and missing records are none.",
		}, []string{"op"}),
		durations: factory.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "store_operation_duration_seconds",
			Help:                        "Duration of store operations.",
			Buckets:                     []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}, []string{"op"}),
		storeUp: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "store_up",
			Help: "Whether the store can be used: 0 while it is away and changes wait in memory.",
		}),
		replicas: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "group_replicas",
			Help: "Ready replicas that share the store, this one included; 0 without a shared store.",
		}),
		mixedSince: factory.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "group_mixed_since_timestamp_seconds",
			Help: "Since when ready replicas offer different tools, so that refreshes wait; 0 when they agree.",
		}, []string{"server"}),
		conversations: newConversationCollector(),
	}
	m.storeUp.Set(1)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "store_size_bytes",
		Help: "Size of the store, 0 where that can't be told.",
	}, m.storeSize)
	if reg != nil {
		reg.MustRegister(m.conversations)
	}
	for _, result := range []string{resultCreated, resultRenewed, resultRejected, resultRemoved, resultExpired} {
		m.registrations.WithLabelValues(result)
	}
	for _, op := range storeOps() {
		m.operations.WithLabelValues(op)
		m.failures.WithLabelValues(op)
		m.durations.WithLabelValues(op)
	}
	return m
}

// SetStoreUp notes that the store went away or came back, where something else than an operation tells.
func (m *Metrics) SetStoreUp(up bool) {
	if up {
		m.storeUp.Set(1)
	} else {
		m.storeUp.Set(0)
	}
}

func (m *Metrics) storeSize() float64 {
	s := m.sizer.Load()
	if s == nil {
		return 0
	}
	n, err := (*s).Size()
	if err != nil {
		return 0
	}
	return float64(n)
}

// conversationCollector reads the registry when it is scraped.
type conversationCollector struct {
	registry atomic.Pointer[Registry]
	count    *prometheus.Desc
	oldest   *prometheus.Desc
}

func newConversationCollector() *conversationCollector {
	return &conversationCollector{
		count: prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "conversations"),
			"Registered conversations, by state.", []string{"agent_server", "state"}, nil),
		oldest: prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "conversations_oldest_stale_timestamp_seconds"),
			"Since when the conversation that is stale or failed for longest is so, 0 when none is.", []string{"agent_server"}, nil),
	}
}

// Describe is for the Prometheus registry.
func (c *conversationCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.count
	out <- c.oldest
}

// Collect is for the Prometheus registry.
func (c *conversationCollector) Collect(out chan<- prometheus.Metric) {
	r := c.registry.Load()
	if r == nil {
		return
	}
	r.mu.Lock()
	s := r.currentStats()
	r.mu.Unlock()
	for agent, counts := range s.counts {
		for state, n := range counts {
			out <- prometheus.MustNewConstMetric(c.count, prometheus.GaugeValue, float64(n), agent, string(state))
		}
		oldest := 0.0
		if t := s.oldest[agent]; !t.IsZero() {
			oldest = float64(t.UnixMilli()) / 1000
		}
		out <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, oldest, agent)
	}
}

package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/mcp-sidecar/mcp-sidecar/metrics"
)

// appMetrics are the metrics of the process as a whole.
type appMetrics struct {
	reloadOK      prometheus.Gauge
	reloadTime    prometheus.Gauge
	reloadsFailed prometheus.Counter
}

func newAppMetrics(reg prometheus.Registerer, quiescing func() bool) *appMetrics {
	f := promauto.With(reg)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: metrics.Namespace, Name: name, Help: help}
	}
	f.NewGaugeFunc(prometheus.GaugeOpts(opts("quiescing", "1 while the sidecar prepares for its end, 0 otherwise.")), func() float64 {
		if quiescing() {
			return 1
		}
		return 0
	})
	return &appMetrics{
		reloadOK:      f.NewGauge(prometheus.GaugeOpts(opts("config_last_reload_successful", "1 if the configuration that was read last is in force, 0 if it had mistakes."))),
		reloadTime:    f.NewGauge(prometheus.GaugeOpts(opts("config_last_reload_success_timestamp_seconds", "When a configuration was last put in force."))),
		reloadsFailed: f.NewCounter(prometheus.CounterOpts(opts("config_reloads_failed_total", "Configurations that were read and not put in force."))),
	}
}

// loaded counts a configuration that was read.
func (m *appMetrics) loaded(err error) {
	if err != nil {
		m.reloadsFailed.Inc()
		m.reloadOK.Set(0)
		return
	}
	m.reloadOK.Set(1)
	m.reloadTime.Set(float64(time.Now().UnixMilli()) / 1000)
}

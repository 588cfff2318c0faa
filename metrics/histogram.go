package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	nativeFactor     = 1.1
	nativeMaxBuckets = 100
	nativeMinReset   = time.Hour
)

// DurationBuckets returns the upper bounds, in seconds, that all durations share:
// from 1 ms, which a proxied call takes, to 300 s, after which the slowest tool
// calls and refreshes are seen to come back. Each call returns a new slice.
func DurationBuckets() []float64 {
	return []float64{
		0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
		1, 2.5, 5, 10, 30, 60, 120, 300,
	}
}

// DurationOpts returns the options of a histogram of seconds. It has both kinds
// of buckets, the classic ones of [DurationBuckets] and native ones, so that it
// reads the same with every Prometheus. The name comes without [Namespace] and
// ends in "_seconds".
//
// A request's duration ends with the first byte of its answer: the life of a
// stream is no latency.
func DurationOpts(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Namespace:                       Namespace,
		Name:                            name,
		Help:                            help,
		Buckets:                         DurationBuckets(),
		NativeHistogramBucketFactor:     nativeFactor,
		NativeHistogramMaxBucketNumber:  nativeMaxBuckets,
		NativeHistogramMinResetDuration: nativeMinReset,
	}
}

// Package metrics holds what every other package needs to be observed: the
// registry with the collectors of the process, the handler of the ops listener
// (metrics and probes), the facts about the build, the label values of JSON-RPC
// methods, and the histogram settings that all durations share.
//
// It is a leaf: it imports no other package of the sidecar. The metrics
// themselves live with the code that moves them. Each package has its own
// NewMetrics(prometheus.Registerer), which creates every label value up front so
// that the first failure is a step from 0 to 1 and not a new series.
//
// Everything here is safe for concurrent use.
package metrics

// Namespace is the prefix of every metric of the sidecar.
const Namespace = "mcp_sidecar"

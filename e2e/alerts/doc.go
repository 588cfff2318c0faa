// Package alerts tests the shipped alerts from end to end: a real Prometheus scrapes real sidecars, and a real
// Alertmanager pages a webhook when conversations stay behind or a backend is gone, and stays silent at a rollout.
//
// It needs the programs prometheus and alertmanager, and the build tag alerts.
package alerts

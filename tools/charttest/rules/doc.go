// Package rules tests the alerts and the dashboard of the Helm chart: what promtool says of them, that they name
// only what the sidecar exposes, and that each alert has its tests and its runbook.
package rules

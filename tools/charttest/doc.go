// Package charttest tests the Helm charts: it renders them with the real helm, reads what comes out as the
// API server would, and checks what a pod of it does.
//
// Its subpackage rules tests the alerts and the dashboard.
package charttest

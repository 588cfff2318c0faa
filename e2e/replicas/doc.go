// Package replicas tests several sidecars that share a registry: each next to a backend of its own, behind a load balancer that spreads every
// request over all of them. It needs redis-server and haproxy: make e2e-replicas.
package replicas

// Package rivals puts other proxies through the replacements of mcp-sidecar-swaptest, next to the sidecar: nginx and
// HAProxy, the bridges mcp-remote, mcp-proxy and supergateway of npm, PyPI's mcp-proxy, and a bare httputil.ReverseProxy.
// What came out is a table and a list of reasons, for docs/comparison.md.
//
// It needs npm, Python, nginx and haproxy; what is missing is said and left out. It is built with the tag "comparison"
// (make comparison). requirements.txt is made of requirements.in, with
//
//	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -o requirements.txt requirements.in
package rivals

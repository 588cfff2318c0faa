package tracing

import (
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/health"
)

func TestWanted(t *testing.T) {
	t.Parallel()
	const endpoint, own = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for name, tt := range map[string]struct {
		env  map[string]string
		want bool
		bad  bool
	}{
		"nothing":              {nil, false, false},
		"service name only":    {map[string]string{"OTEL_SERVICE_NAME": "x"}, false, false},
		"endpoint":             {map[string]string{endpoint: "http://h:4318"}, true, false},
		"endpoint for traces":  {map[string]string{own: "http://h:4318/v1/traces"}, true, false},
		"disabled":             {map[string]string{endpoint: "http://h:4318", "OTEL_SDK_DISABLED": "true"}, false, false},
		"no exporter":          {map[string]string{endpoint: "http://h:4318", "OTEL_TRACES_EXPORTER": "none"}, false, false},
		"protocol":             {map[string]string{endpoint: "http://h:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true, false},
		"another protocol":     {map[string]string{endpoint: "http://h:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, true},
		"protocol for traces":  {map[string]string{endpoint: "http://h:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, true, false},
		"protocol of somebody": {map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, false},
	} {
		got, err := Wanted(func(k string) string { return tt.env[k] })
		if got != tt.want || (err != nil) != tt.bad {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestOff: without tracing there is no function to call.
func TestOff(t *testing.T) {
	t.Parallel()
	var off *Tracing
	if off.Request() != nil || off.Refresh() != nil {
		t.Error("there are functions")
	}
	off.Backend(health.Event{Swap: &health.Swap{}})
}

func TestClient(t *testing.T) {
	t.Parallel()
	const prefix = "OTEL_EXPORTER_OTLP_"
	for name, tt := range map[string]struct {
		env  map[string]string
		url  string
		bad  bool
		more func(*client) bool
	}{
		"base":           {map[string]string{"ENDPOINT": "http://h:4318/"}, "http://h:4318/v1/traces", false, nil},
		"base with path": {map[string]string{"ENDPOINT": "https://h/otlp"}, "https://h/otlp/v1/traces", false, nil},
		"for traces":     {map[string]string{"ENDPOINT": "http://h:4318", "TRACES_ENDPOINT": "http://t/x"}, "http://t/x", false, nil},
		"no URL":         {map[string]string{"ENDPOINT": "h:4318"}, "", true, nil},
		"headers": {map[string]string{"ENDPOINT": "http://h", "HEADERS": "a=x%20y, b = z,"}, "http://h/v1/traces", false, func(c *client) bool {
			return c.header.Get("A") == "x y" && c.header.Get("B") == "z"
		}},
		"bad headers": {map[string]string{"ENDPOINT": "http://h", "HEADERS": "secret"}, "", true, nil},
		"timeout": {map[string]string{"ENDPOINT": "http://h", "TIMEOUT": "1500", "TRACES_TIMEOUT": "500"}, "http://h/v1/traces", false, func(c *client) bool {
			return c.timeout == 500*time.Millisecond
		}},
		"bad timeout":     {map[string]string{"ENDPOINT": "http://h", "TIMEOUT": "10s"}, "", true, nil},
		"compression":     {map[string]string{"ENDPOINT": "http://h", "COMPRESSION": "gzip"}, "http://h/v1/traces", false, func(c *client) bool { return c.gzip }},
		"bad compression": {map[string]string{"ENDPOINT": "http://h", "COMPRESSION": "zip"}, "", true, nil},
		"no certificate":  {map[string]string{"ENDPOINT": "https://h", "CERTIFICATE": "/nowhere"}, "", true, nil},
	} {
		c, err := newClient(func(k string) string { return tt.env[strings.TrimPrefix(k, prefix)] })
		if (err != nil) != tt.bad || err == nil && (c.url != tt.url || tt.more != nil && !tt.more(c)) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows a header: %v", name, err)
		}
	}
}

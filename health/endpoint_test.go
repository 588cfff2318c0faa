package health

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func TestEndpointBody(t *testing.T) {
	const first = ": hello\r\nretry: 5\r\n\r\n"
	for _, tt := range []struct{ base, named, want, foreign string }{
		{"http://127.0.0.1:9000/sse", "/messages?id=1", "http://127.0.0.1:9000/messages?id=1", ""},
		{"http://127.0.0.1:9000/x/sse", "messages", "http://127.0.0.1:9000/x/messages", ""},
		{"http://127.0.0.1:9000/sse", "http://127.0.0.1:9000/m", "http://127.0.0.1:9000/m", ""},
		{"http://127.0.0.1:9000/sse", "http://localhost:9000/m", "http://127.0.0.1:9000/m", ""},
		{"http://LOCALHOST:9000/sse", "http://[::1]:9000/m%2Fn", "http://LOCALHOST:9000/m%2Fn", ""},
		{"http://tools/sse", "http://TOOLS:80/m", "http://tools/m", ""},
		{"http://127.0.0.1:9000/sse", "http://localhost:9001/m", "http://localhost:9001/m", "localhost:9001"},
		{"http://127.0.0.1:9000/sse", "https://localhost:9000/m", "https://localhost:9000/m", "localhost:9000"},
		{"http://127.0.0.1:9000/sse", "http://evil:9000/m", "http://evil:9000/m", "evil:9000"},
		{"http://127.0.0.1:9000/sse", "//evil/m", "//evil/m", "evil"},
		{"http://127.0.0.1:9000/sse", "http://named.example/m", "http://127.0.0.1:9000/m", ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.base, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(tt.named, "named.example") {
			req.Host = "named.example"
		}
		x := &exchange{}
		rest := "data: {}\n\nevent: endpoint\ndata: /other\n\n"
		stream := first + "data: " + tt.named + "\r\nevent:endpoint\r\n\r\n" + rest
		got, err := io.ReadAll(newEndpointBody(io.NopCloser(iotest.OneByteReader(strings.NewReader(stream))), req, x))
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(": hello\nretry: 5\n\nevent: endpoint\ndata: %s\n\n", tt.want)
		if text := string(got); !strings.HasPrefix(text, want) || strings.TrimPrefix(strings.TrimPrefix(text, want), "\n") != rest {
			t.Errorf("%s at %s: %q", tt.named, tt.base, got)
		}
		if host := x.result().foreign; host != tt.foreign {
			t.Errorf("%s at %s: foreign host %q, want %q", tt.named, tt.base, host, tt.foreign)
		}
	}
}

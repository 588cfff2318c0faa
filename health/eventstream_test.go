package health

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func readAll(r io.Reader, limit int) ([]string, error) {
	e := newEventReader(r, limit)
	var events []string
	for {
		data, err := e.next()
		if err != nil {
			return events, err
		}
		events = append(events, string(data))
	}
}

func TestEventStream(t *testing.T) {
	text := "\ufeffdata: one\n\n: comment\n\nid: 7\ndata:two\ndata: lines\nretry: 5\n\nevent: x\n\ndata\n\ndata: é\n\ndata: cut off"
	want := []string{"one", "two\nlines", "", "é"}
	for name, end := range map[string]string{"LF": "\n", "CRLF": "\r\n", "CR": "\r"} {
		for way, r := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader} {
			got, err := readAll(r(strings.NewReader(strings.ReplaceAll(text, "\n", end))), 100)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s:\n%s", name, way, diff)
			}
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s %s: %v", name, way, err)
			}
		}
	}
	for _, text := range []string{"data: " + strings.Repeat("x", 200), strings.Repeat("data: xxxxxxxx\n", 20), strings.Repeat("y", 200)} {
		if _, err := readAll(strings.NewReader(text), 100); !errors.Is(err, errTooLarge) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

// However a stream is cut into pieces, the events are the same, and never larger than the limit.
func FuzzEventStream(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\ndata: b\r\rdata: c\n\n"))
	f.Add([]byte("\ufeff:\ndata\ndata:  x\nid\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		const limit = 64
		got, err := readAll(bytes.NewReader(text), limit)
		again, errAgain := readAll(iotest.OneByteReader(bytes.NewReader(text)), limit)
		if diff := cmp.Diff(got, again); diff != "" || !errors.Is(errAgain, err) {
			t.Errorf("%q: %v, %v:\n%s", text, err, errAgain, diff)
		}
		for _, e := range got {
			if len(e) > limit {
				t.Errorf("%q: an event of %d bytes", text, len(e))
			}
			if strings.ContainsAny(e, "\r") {
				t.Errorf("%q: a line end in %q", text, e)
			}
		}
	})
}

func TestBoundedStream(t *testing.T) {
	event := "data: " + strings.Repeat("x", 50) + "\r\n\r\n"
	body := func(text string, stream bool) *boundedBody {
		return &boundedBody{body: io.NopCloser(iotest.OneByteReader(strings.NewReader(text))), x: &exchange{stream: stream}, limit: 70}
	}
	if _, err := io.ReadAll(body(strings.Repeat(event, 10), true)); err != nil {
		t.Errorf("a long stream of short events: %v", err)
	}
	if _, err := io.ReadAll(body(strings.Repeat("data: 12345678\n", 10), true)); !errors.Is(err, errTooLarge) {
		t.Errorf("a long event: %v", err)
	}
	b := body(strings.Repeat(event, 10), false)
	if _, err := io.ReadAll(b); !errors.Is(err, errTooLarge) || !b.x.result().large {
		t.Errorf("a long answer: %v", err)
	}
}

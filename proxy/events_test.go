package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// seen is what a client makes of an event.
type seen struct {
	Type, Data, ID string
	HasID, HasData bool
	Retry          time.Duration
}

// readAll returns the events of a stream, comments left out, all raw bytes in
// one, and the error at the end.
func readEvents(r io.Reader, limit int) (events []seen, raw string, err error) {
	er := newEventReader(r, limit)

	var all strings.Builder

	for {
		e, err := er.Next()
		if err != nil {
			return events, all.String(), err
		}

		all.Write(e.raw)

		if !e.isComment() {
			events = append(events, seen{e.typ, string(e.data), e.id, e.hasID, e.hasData, e.retry})
		}
	}
}

// chunks is a reader that ends a read after each given position.
type chunks struct {
	s   string
	cut []int
	at  int
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.at == len(c.s) {
		return 0, io.EOF
	}

	end := len(c.s)
	for _, cut := range c.cut {
		if cut > c.at && cut < end {
			end = cut
		}
	}

	n := copy(p, c.s[c.at:end])
	c.at += n

	return n, nil
}

// tenMessages are ten events, with %s for each line end.
func tenMessages() (lines []string, want []seen) {
	add := func(w seen, l ...string) {
		lines = append(append(lines, l...), "")
		want = append(want, w)
	}

	add(seen{Type: "message", Data: `{"id":1}`, HasData: true}, `data: {"id":1}`)
	add(seen{Type: "message", Data: `{"id":2}`, HasData: true, ID: "a", HasID: true}, `id: a`, `data:{"id":2}`)
	add(seen{Type: "endpoint", Data: "/x?y", HasData: true}, `event: endpoint`, `data: /x?y`)
	add(seen{Type: "message", Data: "a\nb\n\nc", HasData: true}, `data: a`, `data: b`, `data`, `data: c`)
	add(seen{Type: "message", Data: "😀é日", HasData: true, Retry: 1500 * time.Millisecond}, `retry: 1500`, `data: 😀é日`)
	add(seen{Type: "message", HasData: true, ID: "prime", HasID: true}, `id: prime`, `data:`)
	add(seen{Type: "message", HasID: true}, `id`)
	add(seen{Type: "message", Data: " two", HasData: true}, `: a comment`, `unknown: field`, `data:  two`)
	add(seen{Type: "x:y", Data: "a: b", HasData: true}, `event: x:y`, `data: a: b`, `:`)
	add(seen{Type: "message", Data: `{"last":true}`, HasData: true, ID: "ü", HasID: true}, `data: {"last":true}`, `id: ü`, `retry: soon`)

	return lines, want
}

func TestEventReaderFraming(t *testing.T) {
	t.Parallel()

	lines, want := tenMessages()
	ends := map[string][]string{"LF": {"\n"}, "CRLF": {"\r\n"}, "CR": {"\r"}, "mixed": {"\n", "\r\n", "\r"}, "mixed too": {"\r", "\r\n", "\n", "\r", "\n"}}

	for name, end := range ends {
		for _, bom := range []string{"", "\xef\xbb\xbf"} {
			t.Run(fmt.Sprintf("%s, mark %v", name, bom != ""), func(t *testing.T) {
				t.Parallel()

				var body strings.Builder

				for i, l := range lines {
					e := end[i%len(end)]
					if i > 0 && l == "" && e == "\n" && end[(i-1)%len(end)] == "\r" {
						e = "\r" // CR, LF would be one line end
					}

					body.WriteString(l + e)
				}

				check := func(r io.Reader, how string) {
					got, raw, err := readEvents(r, maxEvent)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s: %s", how, diff)
					}

					if raw != body.String() {
						t.Errorf("%s: the bytes changed: %q", how, raw)
					}

					if !errors.Is(err, io.EOF) {
						t.Errorf("%s: ended with %v", how, err)
					}
				}

				stream := bom + body.String()
				check(strings.NewReader(stream), "whole")
				check(iotest.OneByteReader(strings.NewReader(stream)), "byte by byte")
				check(iotest.DataErrReader(strings.NewReader(stream)), "end with the data")

				for cut := range len(stream) {
					check(&chunks{s: stream, cut: []int{cut, cut + 1}}, fmt.Sprint("cut at ", cut))
				}
			})
		}
	}
}

// TestEventReaderTruncated cuts the stream off at each position: no event may be
// invented, joined or delivered incomplete.
func TestEventReaderTruncated(t *testing.T) {
	t.Parallel()

	lines, want := tenMessages()
	for _, end := range []string{"\n", "\r\n", "\r"} {
		stream := strings.Join(lines, end) + end
		for cut := range len(stream) {
			got, raw, err := readEvents(&chunks{s: stream[:cut]}, maxEvent)
			if diff := cmp.Diff(want[:len(got)], got); diff != "" && len(got) > 0 {
				t.Fatalf("%q at %d: %s", end, cut, diff)
			}

			if !strings.HasPrefix(stream[:cut], raw) {
				t.Fatalf("%q at %d: the bytes changed: %q", end, cut, raw)
			}

			if errors.Is(err, io.EOF) && raw != stream[:cut] {
				t.Fatalf("%q at %d: clean end, but %q is missing", end, cut, stream[len(raw):cut])
			}

			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%q at %d: %v", end, cut, err)
			}
		}
	}
}

func TestEventReaderErrors(t *testing.T) {
	t.Parallel()

	broken := errors.New("reset")
	tests := []struct {
		name   string
		r      io.Reader
		events int
		want   error
	}{
		{"empty", strings.NewReader(""), 0, io.EOF},
		{"half a mark", strings.NewReader("\xef\xbb"), 0, io.ErrUnexpectedEOF},
		{"unterminated", strings.NewReader("data: a\n\ndata: b\n"), 1, io.ErrUnexpectedEOF},
		{"broken between events", io.MultiReader(strings.NewReader("data: a\n\n"), iotest.ErrReader(broken)), 1, broken},
		{"broken within", io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken)), 1, broken},
		{"a reader that reads nothing", zeroReader{}, 0, io.ErrNoProgress},
		{"NUL in an id", strings.NewReader("id: a\x00\ndata: x\n\n"), 1, io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			got, _, err := readEvents(tt.r, maxEvent)
			if len(got) != tt.events || !errors.Is(err, tt.want) {
				t.Errorf("%d events and %v, want %d and %v", len(got), err, tt.events, tt.want)
			}

			for _, e := range got {
				if e.HasID {
					t.Errorf("id %q", e.ID)
				}
			}
		})
	}
}

type zeroReader struct{}

func (zeroReader) Read([]byte) (int, error) { return 0, nil }

// TestEventReaderDoesNotWait feeds a stream that stays open: what is complete must
// come without another byte.
func TestEventReaderDoesNotWait(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ name, in, want string }{
		{"event", "data: a\n\n", "data: a\n\n"},
		{"event ended by CR", "data: a\r\r", "data: a\r\r"},
		{"comment without a blank line", ": ping\n", ": ping\n"},
		{"comment, and an event that has begun", ": ping\ndata: a", ": ping\n"},
		{"comment, and a field", ": ping\ndata: a\n", ": ping\n"},
		{"blank line", "\n", "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			open := iotest.ErrReader(errors.New("asked for more"))

			e, err := newEventReader(io.MultiReader(strings.NewReader(tt.in), open), maxEvent).Next()
			if err != nil || string(e.raw) != tt.want {
				t.Errorf("got %q, %v, want %q", e.raw, err, tt.want)
			}
		})
	}
}

func TestEventReaderSplitLineEnd(t *testing.T) {
	t.Parallel()

	r := newEventReader(&chunks{s: "data: a\r\n\r\n: c\r\ndata: b\r\n\r\n", cut: []int{10, 11, 15}}, maxEvent)

	var got []string

	for {
		e, err := r.Next()
		if err != nil {
			break
		}

		got = append(got, string(e.raw))
	}

	want := []string{"data: a\r\n\r", "\n", ": c\r", "\ndata: b\r\n\r\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEventReaderBounds(t *testing.T) {
	t.Parallel()

	line := "data: " + strings.Repeat("x", 1<<20) + "\n"
	large := strings.Repeat(line, 3) + "\n"

	got, _, err := readEvents(strings.NewReader(large+"data: b\n\n"), 4<<20)
	if !errors.Is(err, io.EOF) || len(got) != 2 || len(got[0].Data) != 3<<20+2 || got[1].Data != "b" {
		t.Errorf("a large event: %d events, %v", len(got), err)
	}

	for name, endless := range map[string]string{"a line": "data: xxxxxxxx", "lines": "data: x\n", "CR lines": "x\r", "a comment": ":::::::"} {
		r := &endlessReader{s: endless}

		if got, _, err := readEvents(r, 1<<20); !errors.Is(err, errEventTooLarge) || len(got) != 0 || r.n > 2<<20 {
			t.Errorf("%s without end: %d events, %v after %d bytes", name, len(got), err, r.n)
		}
	}

	// The bound is the same however the bytes arrive.
	for _, n := range []int{99, 100, 101} {
		s := "data: " + strings.Repeat("x", n-8) + "\n\n"
		_, _, whole := readEvents(strings.NewReader(s), 100)
		_, _, bytewise := readEvents(iotest.OneByteReader(strings.NewReader(s)), 100)

		if errors.Is(whole, io.EOF) != (n <= 100) || errors.Is(bytewise, io.EOF) != (n <= 100) {
			t.Errorf("%d bytes of 100: %v, byte by byte %v", n, whole, bytewise)
		}
	}
}

// TestEventReaderGivesMemoryBack watches the buffer of a stream that is silent
// after a large event.
func TestEventReaderGivesMemoryBack(t *testing.T) {
	t.Parallel()

	large := "data: " + strings.Repeat("x", 1<<20) + "\n\n"
	r := newEventReader(&chunks{s: large + "data: b\n\n", cut: []int{len(large)}}, maxEvent)

	for range 2 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}

	if cap(r.buf) > keepEventBuffer {
		t.Errorf("the buffer still has %d bytes", cap(r.buf))
	}
}

type endlessReader struct {
	s string
	n int
}

func (r *endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.s[(r.n+i)%len(r.s)]
	}

	r.n += len(p)

	return len(p), nil
}

func TestAppendEvent(t *testing.T) {
	t.Parallel()

	tests := []struct{ typ, id, data, want string }{
		{"", "", `{}`, "data: {}\n\n"},
		{"message", "7", `{}`, "event: message\nid: 7\ndata: {}\n\n"},
		{"", "", "", "data: \n\n"},
		{"", "", "a\r\nb\rc\nd\n", "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
	}
	for _, tt := range tests {
		got := appendEvent([]byte("x"), tt.typ, tt.id, []byte(tt.data))
		if string(got) != "x"+tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}

	if got := string(appendComment(nil, "keep-alive")); got != ": keep-alive\n\n" {
		t.Errorf("comment %q", got)
	}
}

// FuzzEventReader checks that neither the cuts between reads nor writing events
// anew change what a client sees, and that the bytes come through.
func FuzzEventReader(f *testing.F) {
	lines, _ := tenMessages()
	for _, end := range []string{"\n", "\r\n", "\r"} {
		f.Add([]byte(strings.Join(lines, end)+end), uint16(7), uint16(9))
	}

	f.Add([]byte("\xef\xbb\xbfdata: a\r\n\r\ndata"), uint16(3), uint16(10))
	f.Add([]byte(": c\n\n\ndata: \xff\xf0\n\n"), uint16(1), uint16(2))
	f.Add([]byte("data\r\rid\n\nretry: 99999999999999\n\n"), uint16(5), uint16(6))

	f.Fuzz(func(t *testing.T, stream []byte, cut1, cut2 uint16) {
		whole, raw, err := readEvents(bytes.NewReader(stream), maxEvent)
		parts, rawParts, errParts := readEvents(&chunks{s: string(stream), cut: []int{int(cut1), int(cut2)}}, maxEvent)

		if diff := cmp.Diff(whole, parts); diff != "" || !errors.Is(err, errParts) {
			t.Fatalf("cuts change the stream: %v, %v\n%s", err, errParts, diff)
		}

		without := strings.TrimPrefix(string(stream), "\xef\xbb\xbf")
		if !strings.HasPrefix(without, raw) || !strings.HasPrefix(without, rawParts) {
			t.Fatalf("the bytes changed: %q, %q", raw, rawParts)
		}

		if errors.Is(err, io.EOF) && (raw != without || rawParts != without) {
			t.Fatalf("clean end, but bytes are missing: %q, %q", raw, rawParts)
		}

		var anew []byte

		var want []seen

		for _, e := range whole {
			if e.HasData && e.ID != "" || !e.HasID && e.HasData {
				anew = appendEvent(anew, e.Type, e.ID, []byte(e.Data))
				e.Retry = 0
				want = append(want, e)
			}
		}

		if got, _, err := readEvents(bytes.NewReader(anew), maxEvent); !errors.Is(err, io.EOF) || !cmp.Equal(want, got) {
			t.Fatalf("written anew: %v\n%s", err, cmp.Diff(want, got))
		}
	})
}

func BenchmarkEventReader(b *testing.B) {
	small := appendEvent(nil, "message", "12", []byte(`{"jsonrpc":"2.0","id":42,"result":{"content":[{"type":"text","text":"hello"}]}}`))
	large := appendEvent(nil, "message", "", bytes.Repeat([]byte("x"), 1<<20))

	for _, bm := range []struct {
		name string
		raw  []byte
	}{{"small", small}, {"1MB", large}} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bm.raw)))

			r := newEventReader(&repeat{s: bm.raw}, maxEvent)

			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// repeat is an endless reader that costs little.
type repeat struct {
	s  []byte
	at int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.s[r.at:])
	r.at = (r.at + n) % len(r.s)

	return n, nil
}

package stdio

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func FuzzLineReader(f *testing.F) {
	for _, seed := range []string{"", "\n\n", "a\nb", "a\r\n b \n", strings.Repeat("x", 100) + "\ny\n", strings.Repeat("x", 64) + "\r\n"} {
		f.Add([]byte(seed), uint16(64))
	}

	f.Fuzz(func(t *testing.T, in []byte, limit uint16) {
		lim := int(limit)%10_000 + 1
		r := newLineReader(iotest.OneByteReader(bytes.NewReader(in)), lim)

		var got [][]byte

		for {
			l, err := r.next()
			if err == nil {
				if len(l) == 0 || len(l) > lim+2 || bytes.ContainsRune(l, '\n') {
					t.Fatalf("line %q", l)
				}

				got = append(got, l)

				continue
			}

			if errors.Is(err, errTooLong) {
				break
			}

			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}

			// Nothing was lost.
			var want [][]byte

			for l := range bytes.SplitSeq(in, []byte("\n")) {
				if l = bytes.TrimSpace(l); len(l) > 0 {
					want = append(want, l)
				}
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}

			break
		}
	})
}

func FuzzReadMessages(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`[{"id":"a","result":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}},{"method":"x","params":{"progressToken":2}}]`,
		"{\"id\":1e0,\r\n\"method\":\"\\u0061\",\"id\":2,\"params\":{\"_meta\":{\"progressToken\":\"t\"}}}",
		`{"id":1,"error":{"code":-1}}`, `{"method":1}`, `[]`, `{} x`, "\xff", `{"method":"` + "\xff" + `"}`,
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		messages, _, err := readMessages(in)

		if !bytes.Equal(in, before) {
			t.Fatal("the input was changed")
		}

		if err != nil {
			return
		}

		for i := range messages {
			m := &messages[i]

			// With an id of its own put in place, a message is still the same one.
			out := line(splice(m.raw, edit{m.id, []byte("7")}, edit{m.token(), []byte("8")}))
			if n := bytes.Count(out, []byte("\n")); n != 1 {
				t.Fatalf("%d line breaks in %q", n, out)
			}

			again, _, err := readMessages(out)
			if err != nil || len(again) != 1 || again[0].kind != m.kind || again[0].method != m.method {
				t.Fatalf("%q became %q: %v", m.raw, out, err)
			}

			if !m.id.absent() && string(again[0].id.of(out)) != "7" {
				t.Fatalf("%q became %q", m.raw, out)
			}
		}
	})
}

func TestErrorMessage(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		id   []byte
		text string
		want string
	}{
		{nil, "no", `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}`},
		{[]byte(`"x"`), "\"\xff", `{"jsonrpc":"2.0","id":"x","error":{"code":-1,"message":"\"` + "\uFFFD" + `"}}`},
	} {
		if diff := cmp.Diff(tt.want, string(errorMessage(tt.id, -1, tt.text))); diff != "" {
			t.Error(diff)
		}
	}
}

func TestStarts(t *testing.T) {
	t.Parallel()

	s := starts{min: time.Second, max: 8 * time.Second}
	now := time.Now()

	for n := range 100 {
		p := &process{}
		if !s.allowed(now) {
			t.Fatal("no start is allowed")
		}

		s.begin(p)

		if n > 0 && s.allowed(now) {
			t.Fatal("two are tried at a time")
		}

		d := s.ended(p, true, now)

		mean := min(time.Second<<min(n, 3), 8*time.Second)
		if d < mean/2 || d > mean*3/2 {
			t.Errorf("pause %d: %s", n, d)
		}

		if s.allowed(now.Add(d - 1)) {
			t.Error("a start is allowed in the pause")
		}

		now = now.Add(d)
	}

	p := &process{}
	s.begin(p)
	s.ended(p, false, now)

	if !s.allowed(now) {
		t.Error("an end that was asked for counts")
	}

	s.begin(p)
	s.spoke(p)

	if !s.allowed(now) {
		t.Error("one that speaks keeps others from being tried")
	}

	s.proved()

	if !s.allowed(time.Time{}) {
		t.Error("success doesn't count")
	}
}

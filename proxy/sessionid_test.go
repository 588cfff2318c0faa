package proxy

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const typicalParams = `{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"a client","version":"1.2.3"}}`

func testClaims(tb testing.TB, params string) sessionClaims {
	tb.Helper()

	c := newSession(time.Unix(1800000000, 123))
	c.server, c.path, c.version = "default", "/c/abc/mcp", "2025-11-25"
	c.conversation, c.agentServer, c.principal = "5d3c1e0a-0000-4000-8000-000000000000", "main", strings.Repeat("p", 32)
	c.backend = "mcp-session-0f8fad5b-d9cb-469f-a165-70867728950e"

	if err := c.setParams([]byte(params)); err != nil {
		tb.Fatal(err)
	}

	return c
}

func TestSessionRoundTrip(t *testing.T) {
	t.Parallel()

	noise := make([]byte, 4<<10)
	rand.Read(noise)

	tests := []struct {
		name, params, backend string
		spills                bool
		maxLen                int
	}{
		{"typical", typicalParams, "b", false, 512},
		{"stateless backend", typicalParams, "", false, 512},
		{"no params", "", "b", false, 512},
		{"repetitive params", `{"a":"` + strings.Repeat("lorem ipsum ", 1000) + `"}`, "b", false, 1024},
		{"large params", `{"a":"` + base64.StdEncoding.EncodeToString(noise) + `"}`, "b", true, 512},
		{"long backend id", typicalParams, strings.Repeat("b", 4<<10), true, 512},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			k := testKeyring(t)
			c := testClaims(t, tt.params)
			c.backend = tt.backend

			id, spill, err := k.sealSession(c)
			if err != nil {
				t.Fatal(err)
			}

			if len(id) > tt.maxLen || !validSessionID(id) {
				t.Errorf("the id has %d bytes: %s", len(id), id)
			}

			got, err := k.openSession(id)
			if err != nil {
				t.Fatal(err)
			}

			if got.spilled != tt.spills || (spill != nil) != tt.spills {
				t.Fatalf("spilled %v, %d bytes of spill", got.spilled, len(spill))
			}

			if got.spilled {
				other := newSession(time.Now())
				if err := k.unspill(&other, spill); !errors.Is(err, ErrNotOurs) {
					t.Errorf("the spill of another session: %v", err)
				}

				if err := k.unspill(&got, spill); err != nil {
					t.Fatal(err)
				}
			}

			if diff := cmp.Diff(c, got, cmp.AllowUnexported(sessionClaims{}), cmp.Comparer(func(a, b []byte) bool { return string(a) == string(b) })); diff != "" {
				t.Error(diff)
			}

			params, err := got.initializeParams()
			if err != nil || string(params) != tt.params {
				t.Errorf("parameters %q, %v", params, err)
			}
		})
	}
}

func TestSessionIDsDiffer(t *testing.T) {
	t.Parallel()

	a, b := newSession(time.Now()), newSession(time.Now())
	if a.key() == b.key() || len(a.key()) != 32 {
		t.Errorf("keys %s and %s", a.key(), b.key())
	}
}

func TestSealSessionRefuses(t *testing.T) {
	t.Parallel()

	c := testClaims(t, typicalParams)
	if err := c.setParams(make([]byte, maxParams+1)); err == nil {
		t.Error("parameters without bound")
	}

	c.path = strings.Repeat("/x", 4<<10)
	if _, _, err := testKeyring(t).sealSession(c); err == nil {
		t.Error("an id over the bound")
	}
}

func TestOpenSessionRefuses(t *testing.T) {
	t.Parallel()

	k := testKeyring(t)

	id, _, err := k.sealSession(testClaims(t, typicalParams))
	if err != nil {
		t.Fatal(err)
	}

	foreign, _, err := testKeyring(t, testKey(9)).sealSession(testClaims(t, typicalParams))
	if err != nil {
		t.Fatal(err)
	}

	other, err := k.Seal("another purpose", []byte{claimsFormat}, nil)
	if err != nil {
		t.Fatal(err)
	}

	short, err := k.Seal(purposeSession, []byte{claimsFormat, 0, 1}, nil)
	if err != nil {
		t.Fatal(err)
	}

	later, err := k.Seal(purposeSession, append([]byte{claimsFormat + 1}, make([]byte, 64)...), nil)
	if err != nil {
		t.Fatal(err)
	}

	encode := base64.RawURLEncoding.EncodeToString
	tests := []struct {
		name, id string
		want     error
	}{
		{"empty", "", errMalformedSession},
		{"spaces", "a b", errMalformedSession},
		{"trailing space", id + " ", errMalformedSession},
		{"line end inside", id[:8] + "\n" + id[8:], errMalformedSession},
		{"control byte", id + "\x00", errMalformedSession},
		{"delete byte", id + "\x7f", errMalformedSession},
		{"not ASCII", id + "é", errMalformedSession},
		{"10 KiB", strings.Repeat("a", 10<<10), errMalformedSession},
		{"6 KiB", strings.Repeat("a", 6<<10), errForeignSession},
		{"a backend's", "mcp-session-0f8fad5b-d9cb-469f-a165-70867728950e", errForeignSession},
		{"not base64", strings.Repeat("~", 100), errForeignSession},
		{"padded", id + "=", errForeignSession},
		{"other key", foreign, errForeignSession},
		{"other purpose", encode(other), errForeignSession},
		{"claims cut short", encode(short), errForeignSession},
		{"claims of a later format", encode(later), errForeignSession},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			if _, err := k.openSession(tt.id); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}

	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := range id {
		for _, c := range []byte(alphabet) {
			if c == id[i] {
				continue
			}

			if _, err := k.openSession(id[:i] + string(c) + id[i+1:]); !errors.Is(err, errForeignSession) {
				t.Fatalf("with %c at %d: %v", c, i, err)
			}
		}

		if _, err := k.openSession(id[:i]); err == nil {
			t.Fatalf("cut to %d: %v", i, err)
		}
	}
}

// FuzzOpenSession checks that no id but the ones that were sealed opens, and that
// claims survive whatever stands in them.
func FuzzOpenSession(f *testing.F) {
	k := testKeyring(f)
	good := fixedID(f, k)

	f.Add(good, "backend", []byte(typicalParams))
	f.Add("mcp-session-0f8fad5b", "", []byte(nil))
	f.Add("AQ"+strings.Repeat("A", 60), strings.Repeat("b", 5000), []byte(strings.Repeat("x", 600)))

	f.Fuzz(func(t *testing.T, id, text string, params []byte) {
		if _, err := k.openSession(id); err == nil && id != good {
			t.Fatalf("a forged id opens: %q", id)
		}

		c := testClaims(t, typicalParams)
		c.backend = text

		if len(text) < 256 {
			c.conversation, c.server, c.path = text, text, text
		}

		if c.setParams(params) != nil {
			return
		}

		id, spill, err := k.sealSession(c)
		if err != nil {
			t.Fatal(err)
		}

		got, err := k.openSession(id)
		if err != nil {
			t.Fatal(err)
		}

		if got.spilled {
			if err := k.unspill(&got, spill); err != nil {
				t.Fatal(err)
			}
		}

		again, err := got.initializeParams()
		if err != nil || string(again) != string(params) || got.backend != text || got.conversation != c.conversation || got.sid != c.sid {
			t.Fatalf("claims %+v came back as %+v (%v)", c, got, err)
		}
	})
}

// fixedID seals claims with a nonce of zeros, so that every worker of a fuzz run
// makes the same id.
func fixedID(tb testing.TB, k *Keyring) string {
	tb.Helper()

	c := testClaims(tb, typicalParams)
	c.sid = [16]byte{1}

	aead, err := k.set.Load().first.aead(purposeSession)
	if err != nil {
		tb.Fatal(err)
	}

	head := append([]byte{sealFormat}, k.set.Load().first.id[:]...)
	nonce := make([]byte, sealNonce)

	return base64.RawURLEncoding.EncodeToString(aead.Seal(append(head, nonce...), nonce, c.encode(), nil))
}

// FuzzDecodeSession reads claims that were authentic but are nonsense.
func FuzzDecodeSession(f *testing.F) {
	c := testClaims(f, typicalParams)
	f.Add(c.encode())
	f.Add([]byte{claimsFormat, 3})
	f.Add(append(make([]byte, 18), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))

	f.Fuzz(func(t *testing.T, plain []byte) {
		c, ok := decodeSession(plain)
		if !ok {
			return
		}

		again, ok := decodeSession(c.encode())
		if !ok || cmp.Diff(c, again, cmp.AllowUnexported(sessionClaims{})) != "" {
			t.Fatalf("%+v came back as %+v", c, again)
		}
	})
}

func BenchmarkOpenSession(b *testing.B) {
	k := testKeyring(b)

	id, _, err := k.sealSession(testClaims(b, typicalParams))
	if err != nil {
		b.Fatal(err)
	}

	b.ReportAllocs()

	for b.Loop() {
		if _, err := k.openSession(id); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSealSession(b *testing.B) {
	k := testKeyring(b)
	c := testClaims(b, typicalParams)

	b.ReportAllocs()

	for b.Loop() {
		if _, _, err := k.sealSession(c); err != nil {
			b.Fatal(err)
		}
	}
}

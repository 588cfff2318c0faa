package proxy

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func testKey(b byte) []byte { return bytes.Repeat([]byte{b}, KeySize) }

func testKeyring(tb testing.TB, keys ...[]byte) *Keyring {
	tb.Helper()

	if len(keys) == 0 {
		keys = [][]byte{testKey(1)}
	}

	k, err := NewKeyring(keys...)
	if err != nil {
		tb.Fatal(err)
	}

	return k
}

func TestKeyringOpens(t *testing.T) {
	t.Parallel()

	old := testKeyring(t, testKey(1))
	rotated := testKeyring(t, testKey(2), testKey(1), testKey(2))
	other := testKeyring(t, testKey(3))

	sealed, err := old.Seal("a", []byte("secret"), []byte("for x"))
	if err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name, purpose, additional string
		ring                      *Keyring
		sealed                    []byte
		ok                        bool
	}{
		{"same keys", "a", "for x", old, sealed, true},
		{"after a rotation", "a", "for x", rotated, sealed, true},
		{"other keys", "a", "for x", other, sealed, false},
		{"other purpose", "b", "for x", old, sealed, false},
		{"other data", "a", "for y", old, sealed, false},
		{"longer", "a", "for x", old, append(bytes.Clone(sealed), 0), false},
		{"nothing", "a", "for x", old, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			got, err := tt.ring.Open(tt.purpose, tt.sealed, []byte(tt.additional))
			if tt.ok && (err != nil || string(got) != "secret") {
				t.Errorf("got %q, %v", got, err)
			}

			if !tt.ok && (!errors.Is(err, ErrNotOurs) || got != nil) {
				t.Errorf("got %q, %v, want ErrNotOurs", got, err)
			}
		})
	}

	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1

		if _, err := old.Open("a", changed, []byte("for x")); !errors.Is(err, ErrNotOurs) {
			t.Errorf("with byte %d changed: %v", i, err)
		}

		if _, err := old.Open("a", sealed[:i], []byte("for x")); !errors.Is(err, ErrNotOurs) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}

	newer, err := rotated.Seal("a", []byte("secret"), nil)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := old.Open("a", newer, nil); !errors.Is(err, ErrNotOurs) {
		t.Errorf("the first key must seal: the second one opened it (%v)", err)
	}
}

func TestSealIsNotRepeatable(t *testing.T) {
	t.Parallel()

	k := testKeyring(t)
	a, _ := k.Seal("a", []byte("secret"), nil)
	b, _ := k.Seal("a", []byte("secret"), nil)

	if bytes.Equal(a, b) || bytes.Contains(a, []byte("secret")) {
		t.Errorf("sealed %x and %x", a, b)
	}
}

func TestNewKeyringRefuses(t *testing.T) {
	t.Parallel()

	if _, err := NewKeyring(); err == nil {
		t.Error("no key")
	}

	if _, err := NewKeyring(testKey(1), make([]byte, KeySize-1)); err == nil || !strings.Contains(err.Error(), "key 2 has 31 bytes") {
		t.Errorf("short key: %v", err)
	}
}

func TestNewKey(t *testing.T) {
	t.Parallel()

	a, b := NewKey(), NewKey()
	if len(a) != KeySize || bytes.Equal(a, b) {
		t.Errorf("keys %x and %x", a, b)
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()

	key := []byte("\xfb\xff\xfe0123456789abcdefghijklmnopqrst") // has the characters in which the alphabets differ
	std, url := base64.StdEncoding.EncodeToString(key), base64.URLEncoding.EncodeToString(key)
	long := bytes.Repeat(key, 2)

	tests := []struct {
		name, file string
		want       [][]byte
	}{
		{"hex", hex.EncodeToString(key), [][]byte{key}},
		{"upper-case hex", strings.ToUpper(hex.EncodeToString(key)) + "\n", [][]byte{key}},
		{"base64", std + "\n", [][]byte{key}},
		{"base64url", url, [][]byte{key}},
		{"no padding", strings.TrimRight(url, "="), [][]byte{key}},
		{"longer than needed", base64.StdEncoding.EncodeToString(long), [][]byte{long}},
		{"several, comments, blank lines, CRLF, mark", "\xef\xbb\xbf# keys\r\n\r\n  " + std + "  # new\r\n\t\n" + hex.EncodeToString(long) + "\r\n", [][]byte{key, long}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			got, err := ParseKeys([]byte(tt.file))
			if err != nil {
				t.Fatal(err)
			}

			if string(bytes.Join(got, []byte("|"))) != string(bytes.Join(tt.want, []byte("|"))) {
				t.Errorf("got %x, want %x", got, tt.want)
			}
		})
	}
}

func TestParseKeysRefuses(t *testing.T) {
	t.Parallel()

	short := base64.StdEncoding.EncodeToString(testKey(7)[:31])
	tests := []struct{ name, file, want string }{
		{"empty", "", "there is none"},
		{"comments only", "# nothing\n\n", "there is none"},
		{"short", "\n" + short + "\n", "line 2: the key has 31 bytes, it needs at least 32"},
		{"short hex", strings.Repeat("ab", 16), "line 1: the key has 24 bytes"},
		{"a passphrase", "correct horse battery staple", "line 1: the key is neither hex nor base64"},
		{"all problems", short + "\n!\n", "line 2: the key is neither"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			keys, err := ParseKeys([]byte(tt.file))
			if err == nil || !strings.Contains(err.Error(), tt.want) || keys != nil {
				t.Fatalf("got %v, %v, want an error that says %q", keys, err, tt.want)
			}

			for line := range strings.Lines(tt.file) {
				if line = strings.TrimSpace(line); len(line) > 4 && strings.Contains(err.Error(), line) {
					t.Errorf("the error shows the key: %v", err)
				}
			}
		})
	}
}

func TestKeyringUpdate(t *testing.T) {
	t.Parallel()

	one, two := NewKey(), NewKey()

	k, err := NewKeyring(one)
	if err != nil {
		t.Fatal(err)
	}

	seal := func() []byte {
		t.Helper()

		sealed, err := k.Seal("test", []byte("x"), nil)
		if err != nil {
			t.Fatal(err)
		}

		return sealed
	}
	update := func(want bool, keys ...[]byte) {
		t.Helper()

		if changed, err := k.Update(keys...); err != nil || changed != want {
			t.Errorf("changed: %v, %v, want %v", changed, err, want)
		}
	}
	opens := func(sealed []byte) bool {
		_, err := k.Open("test", sealed, nil)
		return err == nil
	}

	old := seal()
	update(false, one)
	update(true, two, one)

	if fresh := seal(); !opens(old) || !opens(fresh) || bytes.Equal(old[:sealHeader-sealNonce], fresh[:sealHeader-sealNonce]) {
		t.Error("a new key in front doesn't seal, or the old one doesn't open")
	}

	if _, err := k.Update(); err == nil || !opens(old) {
		t.Errorf("no keys: %v", err)
	}

	update(true, two)

	if opens(old) {
		t.Error("a key that was taken out still opens")
	}
}

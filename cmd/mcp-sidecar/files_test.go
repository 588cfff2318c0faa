package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSecretFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	read := secretFile(file)
	if _, err := read(); err == nil {
		t.Error("a missing file is no error")
	}
	for _, empty := range []string{"", " \n"} {
		writeFile(t, file, empty)
		if got, err := read(); err == nil || !strings.Contains(err.Error(), "is empty") {
			t.Errorf("%q gives %q, %v", empty, got, err)
		}
	}
	for _, s := range []string{"one", "two\r\n"} { // rotated
		writeFile(t, file, s)
		if got, err := read(); err != nil || got != strings.TrimSpace(s) {
			t.Errorf("%q gives %q, %v", s, got, err)
		}
	}
}

func TestHeadersFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	for _, tt := range []struct {
		content string
		want    http.Header
		err     string
	}{
		{"Authorization: Bearer a:b\r\n\n# no header\n x-tenant :  t 1 \nX-Tenant: t2", http.Header{"Authorization": {"Bearer a:b"}, "X-Tenant": {"t 1", "t2"}}, ""},
		{"", nil, "there is no header in it"},
		{"A: 1\nsecret", nil, "line 2: want NAME: VALUE"},
		{"A B: secret", nil, "line 1: want NAME: VALUE"},
		{"A: sec\x00ret", nil, "line 1: want NAME: VALUE"},
		{": secret", nil, "line 1: want NAME: VALUE"},
	} {
		writeFile(t, file, tt.content)
		got, err := headersFile(file)()
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.content, diff)
		}
		if (err == nil) != (tt.err == "") || err != nil && !strings.HasSuffix(err.Error(), tt.err) {
			t.Errorf("%q: error %v", tt.content, err)
		}
	}
}

func FuzzParseHeaders(f *testing.F) {
	f.Add([]byte("Authorization: Bearer x\n# c\nA:b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeaders(b)
		if err != nil {
			return
		}
		for name, values := range h {
			if name == "" || strings.ContainsAny(name, " \r\n:") || strings.ContainsAny(strings.Join(values, ""), "\r\n\x00") {
				t.Errorf("header %q: %q", name, values)
			}
		}
	})
}

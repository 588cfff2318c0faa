package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"unicode"
)

// secretFile returns a function that reads a secret whenever it is needed, so
// that it can be rotated. An empty file is an error, not an empty secret.
func secretFile(file string) func() (string, error) {
	return func() (string, error) {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading a secret: %w", err)
		}
		s := strings.TrimSpace(string(b))
		if s == "" {
			return "", fmt.Errorf("reading a secret: %s is empty", file)
		}
		return s, nil
	}
}

// headersFile returns a function that reads headers, one NAME: VALUE a line.
// Empty lines and lines that begin with # don't count. Errors don't repeat the
// content.
func headersFile(file string) func() (http.Header, error) {
	return func() (http.Header, error) {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading headers: %w", err)
		}
		h, err := parseHeaders(b)
		if err != nil {
			return nil, fmt.Errorf("reading headers: %s: %w", file, err)
		}
		return h, nil
	}
}

func parseHeaders(b []byte) (http.Header, error) {
	h := http.Header{}
	n := 0
	for line := range bytes.Lines(b) {
		n++
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		name, value, ok := strings.Cut(text, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !isHeaderName(name) || strings.ContainsFunc(value, unicode.IsControl) {
			return nil, fmt.Errorf("line %d: want NAME: VALUE", n)
		}
		h.Add(name, value)
	}
	if len(h) == 0 {
		return nil, errors.New("there is no header in it")
	}
	return h, nil
}

// isHeaderName tells whether s is a token of RFC 9110, section 5.6.2.
func isHeaderName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTellPanics(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		value any
		told  bool
	}{
		{"bug", "index out of range", true},
		{"broken off on purpose", http.ErrAbortHandler, false},
	} {
		var log bytes.Buffer
		srv := httptest.NewServer(tellPanics(slog.New(slog.NewJSONHandler(&log, nil)), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(tt.value) })))
		resp, err := srv.Client().Get(srv.URL)
		if err == nil {
			resp.Body.Close()
			t.Errorf("%s: the answer is %d", tt.name, resp.StatusCode)
		}
		srv.Close()
		if told := strings.Contains(log.String(), "panicked") && strings.Contains(log.String(), "panics_test.go"); told != tt.told {
			t.Errorf("%s: the log has %q", tt.name, log.String())
		}
	}
}

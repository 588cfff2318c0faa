package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestLogFormats(t *testing.T) {
	for format, want := range map[string]string{"auto": `"msg":"hello"`, "json": `"msg":"hello"`, "text": "INF hello a=1"} {
		var out bytes.Buffer
		log := newLogger(&out, format, slog.LevelInfo, func(string) string { return "" })
		log.Info("hello", "a", 1)
		log.Debug("not this")
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "not this") || strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q", format, got)
		}
	}
}

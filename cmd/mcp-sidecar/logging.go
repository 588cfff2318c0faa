package main

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
)

// newLogger returns a logger of the configured format: auto is text on a
// terminal and JSON elsewhere.
func newLogger(w io.Writer, format string, level slog.Leveler, getenv func(string) string) *slog.Logger {
	terminal := isTerminal(w)
	if format == "json" || format == "auto" && !terminal {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{
		Level: level, TimeFormat: time.TimeOnly, NoColor: !terminal || getenv("NO_COLOR") != "",
	}))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

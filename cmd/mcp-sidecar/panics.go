package main

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
)

// tellPanics passes requests on to next and writes an error to the log when that panics: a bug, which net/http would only
// mention among the mistakes of clients. The connection breaks, and the sidecar goes on.
func tellPanics(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				log.Error("serving a request panicked: please report this", "panic", v, "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}()
		next.ServeHTTP(w, r)
	})
}

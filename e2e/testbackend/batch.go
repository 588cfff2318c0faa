package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// isBatch reports whether a body is an array of messages, which revision 2025-03-26 has and mcp-go doesn't.
func isBatch(body []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) }

// first is what the handler reads of a batch: its first request.
func first(body []byte) (message envelope, all []json.RawMessage) {
	_ = json.Unmarshal(body, &all)
	for _, one := range all {
		if _ = json.Unmarshal(one, &message); len(message.ID) > 0 {
			break
		}
	}
	return message, all
}

// batch executes the messages all at once. An even number of them is answered by one array, an odd number by a stream,
// on which each response comes when it is there.
func (b *backend) batch(w http.ResponseWriter, r *http.Request, all []json.RawMessage, next http.Handler) {
	b.mu.Lock()
	_, known := b.sessions[r.Header.Get(mcp.HeaderSessionID)]
	b.mu.Unlock()
	if !known && b.o.mode == modeStateful { // as mcp-go says it
		http.Error(w, "Invalid session ID", http.StatusNotFound)
		return
	}
	stream := len(all)%2 == 1
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
	}
	var mu sync.Mutex
	var responses []json.RawMessage
	var gone bool
	var running sync.WaitGroup
	for _, body := range all {
		running.Go(func() {
			response := execute(r, body, next)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case response == nil:
			case len(response) == 0:
				gone = true
			case stream:
				fmt.Fprintf(w, "event: message\ndata: %s\n\n", response)
				_ = http.NewResponseController(w).Flush()
			default:
				responses = append(responses, response)
			}
		})
	}
	running.Wait()
	switch {
	case gone:
		panic(http.ErrAbortHandler)
	case stream:
	case len(responses) == 0:
		w.WriteHeader(http.StatusAccepted)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(responses)
	}
}

// execute executes one message, and returns the response, nil for a notification, and empty when its caller is gone.
// What else comes with it is dropped.
func execute(r *http.Request, body []byte, next http.Handler) json.RawMessage {
	var message envelope
	_ = json.Unmarshal(body, &message)
	one := r.WithContext(withID(r.Context(), message.ID))
	one.Body, one.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, one)
	if len(message.ID) == 0 {
		return nil
	}
	out := bytes.TrimSpace(answer.Body.Bytes())
	if strings.HasPrefix(answer.Header().Get("Content-Type"), "text/event-stream") {
		for line := range bytes.Lines(out) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				out = bytes.TrimSpace(data) // the response is the last
			}
		}
	}
	return append(json.RawMessage{}, out...)
}

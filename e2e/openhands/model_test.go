//go:build openhands && unix

package openhands

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// model is a fake model with an endpoint as OpenAI's. It keeps what each conversation offers it, and calls a tool when a
// test wants it to. Conversations are told apart by the API keys that they were created with.
type model struct {
	url string

	mu    sync.Mutex
	talks map[string]*talk
}

func startModel(t *testing.T) *model {
	t.Helper()
	m := &model{talks: map[string]*talk{}}
	srv := httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(srv.Close)
	m.url = srv.URL + "/v1"
	return m
}

// talk returns the model's side of a conversation.
func (m *model) talk(key string) *talk {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.talks[key] == nil {
		m.talks[key] = &talk{}
	}
	return m.talks[key]
}

// talk is what the model knows of one conversation.
type talk struct {
	mu       sync.Mutex
	offered  []offer // in each completion request
	call     call    // that comes next
	left     int     // calls, before it answers with a text
	expected string  // of the call that is out
	done     int     // calls that were answered as expected
	failures []string
}

// call is a tool call, whose result must contain something.
type call struct {
	tool   string
	args   func(n int) string
	result func(n int) string
}

// offer is the tools of one request: the names, with the names of their parameters.
type offer map[string][]string

// completion is a request to the model, as far as it is of interest.
type completion struct {
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name       string `json:"name"`
			Parameters struct {
				Properties map[string]any `json:"properties"`
			} `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
}

func (m *model) serve(w http.ResponseWriter, r *http.Request) {
	var c completion
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || r.URL.Path != "/v1/chat/completions" || len(c.Messages) == 0 {
		http.Error(w, fmt.Sprintf("%s: %v", r.URL.Path, err), http.StatusBadRequest)
		return
	}
	message := m.talk(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")).answer(c)
	reason := "stop"
	if message["tool_calls"] != nil {
		reason = "tool_calls"
		<-time.After(300 * time.Millisecond) // as if it had to think: every call makes the next requests longer
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": "completion", "object": "chat.completion", "created": 1, "model": "fake",
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": reason}},
		"usage":   map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
	})
}

// answer notes a request and returns the model's message.
func (t *talk) answer(c completion) map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := offer{}
	for _, tool := range c.Tools {
		o[tool.Function.Name] = nil
		for parameter := range tool.Function.Parameters.Properties {
			o[tool.Function.Name] = append(o[tool.Function.Name], parameter)
		}
	}
	t.offered = append(t.offered, o)
	if last := c.Messages[len(c.Messages)-1]; last.Role == "tool" {
		if t.expected != "" && strings.Contains(string(last.Content), t.expected) {
			t.done++
		} else {
			t.failures = append(t.failures, fmt.Sprintf("want %q, got %.500s", t.expected, last.Content))
		}
	}
	t.expected = ""
	if t.left == 0 {
		return map[string]any{"role": "assistant", "content": "That is all."}
	}
	t.left--
	n := len(t.offered)
	t.expected = t.call.result(n)
	return map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
		"id": fmt.Sprintf("call-%d", n), "type": "function",
		"function": map[string]any{"name": t.call.tool, "arguments": t.call.args(n)},
	}}}
}

// plan makes the model call a tool, times over, when it is asked next.
func (t *talk) plan(c call, times int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.call, t.left = c, times
}

// count returns how many calls were answered as expected, and what went wrong.
func (t *talk) count() (done int, failures []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done, t.failures
}

// requests returns what was offered in the requests after the first n.
func (t *talk) requests(n int) []offer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offered[n:len(t.offered):len(t.offered)]
}

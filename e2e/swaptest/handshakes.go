//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// together calls at once: many times for the first client, once for each other.
func (w *world) together(ctx context.Context, clients []*client) error {
	var t tally
	var wg sync.WaitGroup
	for i := range stormSize {
		wg.Go(func() { t.add(w.add(ctx, clients[0], i)) })
	}
	for _, c := range clients[1:] {
		wg.Go(func() { t.add(w.add(ctx, c, 1)) })
	}
	wg.Wait()
	return t.err()
}

// handshakes looks at the sessions that the running backend has for this many clients: there may be no more of them, each
// with one handshake, that came before anything else.
func (w *world) handshakes(clients int) error {
	entries, err := w.entries(false)
	if err != nil {
		return err
	}
	ours, used, made := 0, map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		switch {
		case e.Event == "initialize":
			if made[e.Session] {
				return errors.New("a session was initialized twice")
			}
			made[e.Session] = true
			if byClient(e) {
				ours++
			}
		case e.Event == "tools/call" && e.Phase == journal.Begin:
			used[e.Session] = true
		}
	}
	for _, e := range entries {
		if e.Event == journal.Refused && made[e.Session] {
			return fmt.Errorf("%s came before notifications/initialized", e.Method)
		}
	}
	if n := max(ours, len(used)); n > clients {
		return fmt.Errorf("%d handshakes for %d sessions", n, clients)
	}
	return nil
}

// byClient reports whether an initialize says that it is a client's of ours. A proxy may have sessions for itself.
func byClient(e journal.Entry) bool {
	raw, err := json.Marshal(e.Params)
	if err != nil {
		return false
	}
	var params struct {
		ClientInfo struct {
			Name string `json:"name"`
		} `json:"clientInfo"`
	}
	return json.Unmarshal(raw, &params) == nil && params.ClientInfo.Name == clientName
}

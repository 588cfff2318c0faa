package notify

import (
	"context"
	"net/http"
	"net/url"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// ProbeResult is what [Probe] found out about an agent server.
type ProbeResult struct {
	// Reachable: it, and not something in front of it, answered.
	Reachable bool
	// Version is what it says of itself, "" when it doesn't.
	Version string
	// KeyAccepted: its conversations may be read with the configured key, or without
	// one where none is configured.
	KeyAccepted bool
	// ActionPresent: it has the refresh action.
	ActionPresent bool
	// ReconnectPresent: it has the action that is used where there is no refresh action.
	ReconnectPresent bool
}

// probedID is a conversation that doesn't exist: looking at an action needs one in
// its path.
const probedID conversation.ID = "00000000-0000-0000-0000-000000000000"

// Probe asks an agent server what a refresh will need, and changes nothing there.
// The error is an [Error] and says what is in the way; what was found before it
// is in the result. A missing action is no error.
func Probe(ctx context.Context, s AgentServer) (ProbeResult, error) {
	var r ProbeResult
	if err := s.validate(); err != nil {
		return r, err
	}
	c := newClient(s, NewMetrics(nil).client(s.Name))
	defer c.close()
	ctx, cancel := context.WithTimeoutCause(ctx, DefaultConfig().CallTimeout, errCallTimeout)
	defer cancel()

	// Other agent servers than the reference need not have this.
	info, err := c.info(ctx)
	switch {
	case err == nil:
		r.Version = info.Version
	case err.Status == 0:
		return r, err
	}
	search := c.server.URL.JoinPath(conversationsPath, "search")
	query := search.Query()
	query.Set("limit", "1")
	search.RawQuery = query.Encode()
	if _, err := c.do(ctx, http.MethodGet, search); err != nil {
		r.Reachable = err.Status != 0 && err.Reason != ReasonIngress && err.Reason != ReasonRedirect

		return r, err
	}
	r.Reachable, r.KeyAccepted = true, true
	for _, action := range []struct {
		url   *url.URL
		there *bool
	}{
		{c.action(probedID, s.RefreshPath), &r.ActionPresent},
		{c.action(probedID, reconnectPath), &r.ReconnectPresent},
	} {
		present, err := c.present(ctx, action.url)
		if err != nil {
			return r, err
		}
		*action.there = present
	}

	return r, nil
}

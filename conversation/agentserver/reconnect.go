package agentserver

import (
	"context"
	"errors"
)

// ClientStatus says how connecting one client anew went.
type ClientStatus struct {
	Server      string   `json:"server"`
	Tools       []string `json:"tools"` // the names that the conversation offers for it now
	Connected   bool     `json:"connected"`
	Reconnected bool     `json:"reconnected"`
	Error       *string  `json:"error"`
}

// ReconnectMCP connects every client anew, whatever the state of its session, and
// lists its tools. The error is what [Conversation.RefreshMCPTools] would return;
// the statuses say the same, one for each client.
func (c *Conversation) ReconnectMCP(ctx context.Context) ([]ClientStatus, error) {
	statuses := []ClientStatus{}
	err := c.forEachClient(ctx, func(ctx context.Context, m *mcpClient) error {
		ctx, cancel := context.WithTimeoutCause(ctx, c.srv.cfg.RefreshTimeout, errRefreshTimeout)
		defer cancel()
		err := c.reconnect(ctx, m)
		if errors.Is(err, errClientClosed) {
			return err
		}
		status := ClientStatus{Server: m.server.Name, Tools: []string{}, Reconnected: err == nil}
		if err != nil {
			text := err.Error()
			status.Error = &text
		}
		c.mu.Lock()
		status.Connected = m.session != nil && !m.down && err == nil
		for _, tool := range m.tools {
			status.Tools = append(status.Tools, tool.Name)
		}
		c.mu.Unlock()
		statuses = append(statuses, status)
		return err
	})
	return statuses, err
}

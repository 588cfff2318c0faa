package agentserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// redacted stands for a header's value in what the API shows.
const redacted = "**********"

// Info is what the HTTP API tells about a conversation.
type Info struct {
	ID              ID        `json:"id"`
	ExecutionStatus string    `json:"execution_status"`
	Agent           agentInfo `json:"agent"`
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
}

type agentInfo struct {
	Kind      string                  `json:"kind,omitempty"`
	MCPConfig map[string]serverConfig `json:"mcp_config"`
}

// serverConfig is an entry of mcp_config.
type serverConfig struct {
	Transport string            `json:"transport,omitempty"` // "http" or "streamable-http"
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers,omitempty"`
	Timeout   float64           `json:"timeout,omitempty"` // seconds, for a tool call
	Enabled   *bool             `json:"enabled,omitempty"`
}

// Servers returns the conversation's MCP servers, with the values of their headers
// left out.
func (i Info) Servers() []MCPServer {
	servers := make([]MCPServer, 0, len(i.Agent.MCPConfig))
	for _, name := range slices.Sorted(maps.Keys(i.Agent.MCPConfig)) {
		config := i.Agent.MCPConfig[name]
		servers = append(servers, MCPServer{
			Name: name, URL: config.URL, Headers: config.Headers, Timeout: config.timeout(),
		})
	}
	return servers
}

// Info describes the conversation as the HTTP API shows it. The values of headers
// are redacted; URLs are shown whole.
func (c *Conversation) Info() Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	config := make(map[string]serverConfig, len(c.clients))
	for _, m := range c.clients {
		config[m.server.Name] = m.server.config(redactHeaders(m.server.Headers))
	}
	return Info{
		ID:              c.id,
		ExecutionStatus: "idle", // without a model nothing ever runs
		Agent:           agentInfo{Kind: "Agent", MCPConfig: config},
		CreatedAt:       c.created,
		UpdatedAt:       c.updated,
	}
}

func (s MCPServer) config(headers map[string]string) serverConfig {
	return serverConfig{Transport: "http", URL: s.URL, Headers: headers, Timeout: s.Timeout.Seconds()}
}

func (c serverConfig) timeout() time.Duration {
	return time.Duration(c.Timeout * float64(time.Second))
}

func redactHeaders(headers map[string]string) map[string]string {
	shown := make(map[string]string, len(headers))
	for name := range headers {
		shown[name] = redacted
	}
	return shown
}

// serversFrom reads an mcp_config object, whose entries it returns sorted by name.
// An entry that is switched off is left out. problem is nil when all is well.
func serversFrom(raw json.RawMessage) (servers []MCPServer, problem *invalid) {
	loc := []string{"body", "agent", "mcp_config"}
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, &invalid{"dict_type", loc, "Input should be a valid dictionary"}
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		at := append(slices.Clone(loc), name)
		var config serverConfig
		decoder := json.NewDecoder(bytes.NewReader(entries[name]))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&config); err != nil {
			return nil, &invalid{"value_error", at, "Value error, unknown key or wrong type"}
		}
		if config.Enabled != nil && !*config.Enabled {
			continue
		}
		if config.Transport != "" && config.Transport != "http" && config.Transport != "streamable-http" {
			return nil, &invalid{"value_error", at, fmt.Sprintf("Value error, transport %q is not supported: use http", config.Transport)}
		}
		server := MCPServer{Name: name, URL: config.URL, Headers: config.Headers, Timeout: config.timeout()}
		if err := server.validate(); err != nil {
			return nil, &invalid{"value_error", at, "Value error, " + err.Error()}
		}
		servers = append(servers, server)
	}
	return servers, nil
}

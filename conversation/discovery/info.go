package discovery

import (
	"errors"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const (
	// maxServers bounds how many MCP servers of one conversation are looked at.
	maxServers = 256
	// maxURL bounds the length of the URL of an MCP server, in bytes.
	maxURL = 4096
)

// ErrMalformed is returned for what isn't JSON of the expected shape. It says nothing of the content.
var ErrMalformed = errors.New("it is not JSON of the expected shape")

// Info is what is read of a conversation as its agent server describes it.
type Info struct {
	ID        conversation.ID
	Deleting  bool      // it is about to be deleted
	External  bool      // its agent is another program, which a refresh of MCP tools doesn't reach
	CreatedAt time.Time // zero when unknown
	UpdatedAt time.Time // likewise
	URLs      []string  // of the MCP servers that it uses
}

// Registration returns how to register the conversation at an agent server, and false when it doesn't use any of the servers.
func (i *Info) Registration(m *Matcher, at conversation.Instance, source conversation.Source) (conversation.Registration, bool) {
	if i.ID == "" || i.Deleting || i.External {
		return conversation.Registration{}, false
	}
	servers := m.Servers(i.URLs)
	return conversation.Registration{
		ID: i.ID, AgentServer: at.AgentServer, AgentURL: at.URL, Servers: servers, Source: source,
		CreatedAt: i.CreatedAt, LastActive: i.UpdatedAt,
	}, len(servers) > 0
}

// ReadInfo reads one conversation. The caller bounds r. An error is that of r, or ErrMalformed.
func ReadInfo(r io.Reader) (Info, error) {
	d := newDecoder(r)
	var i Info
	if err := d.info(&i); err != nil {
		return Info{}, err
	}
	return i, d.end()
}

// ReadEvents reads an array of events of a conversation and returns the last full state in it, or nil. The caller bounds r. An error is that of
// r, or ErrMalformed.
func ReadEvents(r io.Reader) (*Info, error) {
	d := newDecoder(r)
	var last *Info
	err := d.array(func() error {
		var key string
		var i Info
		err := d.object(func(name string) error {
			switch name {
			case "key":
				return d.text(&key)
			case "value":
				return d.info(&i)
			default:
				return d.skip()
			}
		})
		if key == "full_state" && i.ID != "" {
			last = &i
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return last, d.end()
}

// decoder reads a stream of JSON token by token. Values of another type than the expected one are passed over: agent servers of other versions
// may have them.
type decoder struct {
	*jsontext.Decoder
	source *source
}

// source remembers the error of a reader, to tell it from malformed content.
type source struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func newDecoder(r io.Reader) *decoder {
	s := &source{r: r}
	return &decoder{jsontext.NewDecoder(s, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)), s}
}

// fail returns the error of a token that could not be read, without what it quotes.
func (d *decoder) fail(err error) error {
	switch {
	case err == nil:
		return nil
	case d.source.err != nil:
		return d.source.err
	default:
		return ErrMalformed
	}
}

// end makes sure that nothing follows.
func (d *decoder) end() error {
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		if err == nil {
			return ErrMalformed
		}
		return d.fail(err)
	}
	return nil
}

func (d *decoder) skip() error { return d.fail(d.SkipValue()) }

// object calls member for each member of an object, to read its value.
func (d *decoder) object(member func(name string) error) error {
	if d.PeekKind() != '{' {
		return d.skip()
	}
	if _, err := d.ReadToken(); err != nil {
		return d.fail(err)
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return d.fail(err)
		}
		if err := member(name.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return d.fail(err)
}

// array calls element for each element of an array, to read it. Anything else is malformed.
func (d *decoder) array(element func() error) error {
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		if err == nil {
			return ErrMalformed
		}
		return d.fail(err)
	}
	for k := d.PeekKind(); k != ']' && k != 0; k = d.PeekKind() {
		if err := element(); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return d.fail(err)
}

// text reads a text.
func (d *decoder) text(to *string) error {
	if d.PeekKind() != '"' {
		return d.skip()
	}
	t, err := d.ReadToken()
	if err == nil {
		*to = t.String()
	}
	return d.fail(err)
}

// truth reads a boolean.
func (d *decoder) truth(to *bool) error {
	if k := d.PeekKind(); k != 't' && k != 'f' {
		return d.skip()
	}
	t, err := d.ReadToken()
	if err == nil {
		*to = t.Bool()
	}
	return d.fail(err)
}

// time reads a time as Python writes it: RFC 3339, or without a zone, which is UTC then.
func (d *decoder) time(to *time.Time) error {
	var s string
	if err := d.text(&s); err != nil {
		return err
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", time.DateTime} {
		if t, err := time.Parse(layout, s); err == nil {
			*to = t.UTC()
			return nil
		}
	}
	return nil
}

// info reads a conversation. Anything but an object leaves it empty.
func (d *decoder) info(i *Info) error {
	var id, status, kind string
	err := d.object(func(name string) error {
		switch name {
		case "id":
			return d.text(&id)
		case "execution_status":
			return d.text(&status)
		case "created_at":
			return d.time(&i.CreatedAt)
		case "updated_at":
			return d.time(&i.UpdatedAt)
		case "agent":
			return d.object(func(name string) error {
				switch name {
				case "kind":
					return d.text(&kind)
				case "mcp_config":
					i.URLs = nil
					return d.servers(i)
				default:
					return d.skip()
				}
			})
		default:
			return d.skip()
		}
	})
	if err != nil {
		return err
	}
	i.Deleting, i.External = status == "deleting", kind == "ACPAgent"
	i.ID, err = conversation.ParseID(id)
	if err != nil {
		i.ID = ""
	}
	return nil
}

// servers reads an mcp_config: MCP servers by name, bare or in a member "mcpServers".
func (d *decoder) servers(i *Info) error {
	return d.object(func(name string) error { return d.server(i, name == "mcpServers") })
}

// server reads an MCP server; wrapper says that its members may be MCP servers themselves.
func (d *decoder) server(i *Info, wrapper bool) error {
	var url string
	enabled, disabled := true, false
	err := d.object(func(member string) error {
		switch {
		case wrapper && d.PeekKind() == '{':
			return d.server(i, false)
		case member == "url":
			return d.text(&url)
		case member == "enabled":
			return d.truth(&enabled)
		case member == "disabled":
			return d.truth(&disabled)
		default:
			return d.skip()
		}
	})
	if url != "" && len(url) <= maxURL && enabled && !disabled && len(i.URLs) < maxServers {
		i.URLs = append(i.URLs, url)
	}
	return err
}

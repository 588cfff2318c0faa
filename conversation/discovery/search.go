package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const (
	searchPath = "api/conversations/search"
	// pageLimit is the largest page that agent servers give; one more is an error there.
	pageLimit = 100
	// maxRepeats is how often one page may be asked for in a search: when its first conversation moved, the search begins anew by itself.
	maxRepeats = 3
)

// Client asks an agent server.
type Client interface {
	// Get returns the body of a 2xx answer for a path below the agent server's URL. It ends with ctx. Anything else is an error without secrets.
	Get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error)
}

// Limits bound a search.
type Limits struct {
	// Timeout is for one page.
	Timeout time.Duration
	// MaxPages is how many pages are read, of 100 conversations each.
	MaxPages int
	// MaxPageBytes is how large a page may be.
	MaxPageBytes int64
}

// DefaultLimits returns the defaults.
func DefaultLimits() Limits {
	return Limits{Timeout: 30 * time.Second, MaxPages: 1000, MaxPageBytes: 64 << 20}
}

// errTooMany ends a search that doesn't come to an end by itself.
var errTooMany = errors.New("the agent server has more conversations than are read, or its list doesn't end")

// errSlow is the cause of a page that took too long.
var errSlow = errors.New("the agent server did not answer in time")

// search calls visit with the conversations of one page after the other, the last changed ones first and each once, until it returns false.
func search(ctx context.Context, c Client, l Limits, visit func([]Info) (more bool)) error {
	seen := make(map[conversation.ID]struct{})
	asked := make(map[string]int)
	next := ""
	for range l.MaxPages {
		infos, after, err := readPage(ctx, c, l, next)
		if err != nil {
			return err
		}
		infos = slices.DeleteFunc(infos, func(i Info) bool {
			_, again := seen[i.ID]
			seen[i.ID] = struct{}{}
			return again
		})
		if !visit(infos) || after == "" {
			return nil
		}
		if asked[after]++; asked[after] > maxRepeats {
			return errTooMany
		}
		next = after
	}
	return errTooMany
}

// readPage reads the page that begins with the conversation of id from, and the id that the next one begins with.
func readPage(ctx context.Context, c Client, l Limits, from string) (infos []Info, next string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.Timeout, errSlow)
	defer cancel()
	query := url.Values{"limit": {strconv.Itoa(pageLimit)}, "sort_order": {"UPDATED_AT_DESC"}}
	if from != "" {
		query.Set("page_id", from)
	}
	body, err := c.Get(ctx, searchPath, query)
	if err != nil {
		return nil, "", err
	}
	defer body.Close()
	bounded := &io.LimitedReader{R: body, N: l.MaxPageBytes}
	infos, next, err = decodePage(bounded)
	switch {
	case err == nil:
		return infos, next, nil
	case ctx.Err() != nil:
		return nil, "", context.Cause(ctx)
	case bounded.N <= 0:
		return nil, "", fmt.Errorf("a page of the agent server's conversations has more than %d bytes", l.MaxPageBytes)
	case errors.Is(err, ErrMalformed):
		return nil, "", fmt.Errorf("the agent server's list of conversations can't be read: %w", err)
	default: // of the connection; its text may quote what was sent
		return nil, "", errors.New("the agent server's list of conversations broke off")
	}
}

func decodePage(r io.Reader) (infos []Info, next string, err error) {
	d := newDecoder(r)
	there := false
	err = d.object(func(name string) error {
		switch name {
		case "items":
			there = true
			return d.array(func() error {
				var i Info
				if err := d.info(&i); err != nil {
					return err
				}
				if i.ID != "" && len(infos) < 10*pageLimit {
					infos = append(infos, i)
				}
				return nil
			})
		case "next_page_id":
			return d.text(&next)
		default:
			return d.skip()
		}
	})
	if err == nil && !there {
		err = ErrMalformed
	}
	return infos, next, err
}

// Survey is what one look at an agent server's conversations found.
type Survey struct {
	// Conversations is how many there are, as far as was looked.
	Conversations int
	// Using is how many of them use this sidecar.
	Using int
	// Ours is how many use each server.
	Ours map[string]int
	// Others are URLs that the others name, without queries; a few of them.
	Others []string
	// Complete tells whether all conversations were looked at.
	Complete bool
}

// maxOthers bounds Survey.Others.
const maxOthers = 10

// Look takes one look at the conversations of an agent server, as far as the limits allow. Nothing changes there.
func Look(ctx context.Context, c Client, m *Matcher, l Limits) (Survey, error) {
	s := Survey{Ours: make(map[string]int)}
	err := search(ctx, c, l, func(infos []Info) bool {
		s.Conversations += len(infos)
		for _, i := range infos {
			r, ok := i.Registration(m, conversation.Instance{}, conversation.SourceDiscovery)
			if ok {
				s.Using++
			}
			for _, name := range r.Servers {
				s.Ours[name]++
			}
			if ok {
				continue
			}
			for _, u := range i.URLs {
				if shown := Shown(u); shown != "" && len(s.Others) < maxOthers && !slices.Contains(s.Others, shown) {
					s.Others = append(s.Others, shown)
				}
			}
		}
		return true
	})
	if errors.Is(err, errTooMany) {
		return s, nil
	}
	s.Complete = err == nil
	return s, err
}

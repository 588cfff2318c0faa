package conversation

import (
	"context"
	"errors"
	"time"
)

var errTODO = errors.New("not implemented yet")

// Registry knows every conversation and what each needs. See the package comment.
type Registry struct {
	changed chan struct{}
}

// NewRegistry returns an empty registry. Call Load before use, and Run for as long as it is used.
func NewRegistry(cfg RegistryConfig, d RegistryDeps) (*Registry, error) {
	return &Registry{changed: make(chan struct{}, 1)}, cfg.validate()
}

// SetConfig replaces the configuration.
func (r *Registry) SetConfig(cfg RegistryConfig) error { return errTODO }

// Load reads everything that the store has.
func (r *Registry) Load(ctx context.Context) error { return errTODO }

// Run writes what waits to be written and forgets registrations whose time is over, until ctx ends; then it writes once more.
func (r *Registry) Run(ctx context.Context) error { return errTODO }

// Registration asks for a conversation to be known.
type Registration struct {
	ID          ID
	AgentServer string        // "" on a renewal keeps the one it has, else the only configured one, or "default"
	Servers     []string      // none on a renewal keeps those it has, else every configured one
	Source      Source        // config and admin replace the servers, others add to them
	CreatedAt   time.Time     // when the agent server created it; zero when unknown
	LastActive  time.Time     // its last activity as the agent server tells it; zero when unknown
	TTL         time.Duration // 0 is the default of the source
	By          string        // the agent server whose token is used; "" is the operator
}

// Register registers a conversation or renews its registration. Errors wrap ErrInvalid, ErrForbidden or *UnknownNameError.
func (r *Registry) Register(ctx context.Context, reg Registration) (c Conversation, created bool, err error) {
	return Conversation{}, false, errTODO
}

// Remove forgets a conversation. Traffic doesn't register it again for a while. ErrNotFound if there is none.
func (r *Registry) Remove(ctx context.Context, id ID) error { return errTODO }

// Get returns a conversation, or ErrNotFound.
func (r *Registry) Get(id ID) (View, error) { return View{}, errTODO }

// Query selects conversations; empty fields select all.
type Query struct {
	State       State
	Server      string
	AgentServer string
	Cursor      string // Page.Next of the page before
	Limit       int    // 0 is 100
}

// Page is a part of a list.
type Page struct {
	Items []View `json:"items"`
	Next  string `json:"next,omitempty"` // cursor of the next page, "" on the last one
}

// List returns conversations ordered by id. A cursor stays valid whatever is added or removed meanwhile.
func (r *Registry) List(q Query) (Page, error) { return Page{}, errTODO }

// Settle says which tools a server offers, after its list has settled. An unchanged hash keeps the generation, any other begins the next one.
// changed tells that a generation took the place of another, so it is false for the very first of a server. The error is about ctx and
// arguments only: without the store the generation holds in memory and is written later.
func (r *Registry) Settle(ctx context.Context, server, hash string, tools map[string]string, at time.Time) (g Generation, changed bool, err error) {
	return Generation{}, false, errTODO
}

// Swapped begins a new generation of a server with the tools of the one before, so that all its conversations become stale.
func (r *Registry) Swapped(server string) {}

// Generation returns the newest generation of a server, false while none is known.
func (r *Registry) Generation(server string) (Generation, bool) { return Generation{}, false }

// Sighting is a request that names the conversation it belongs to.
type Sighting struct {
	ID          ID
	AgentServer string // "" is the only configured one, or "default"
	Server      string
	Source      Source // url or header
}

// Seen notes traffic of a conversation: it registers or renews, and never waits for the store.
func (r *Registry) Seen(s Sighting) {}

// Listing is a tools/list of a conversation that was answered to its last page.
type Listing struct {
	ID           ID
	Server       string
	Generation   uint64 // settled generation when the list began, 0 while unsettled
	Began, Ended time.Time
	Complete     bool // reached the last page, from one process
}

// Listed notes a listing. It never waits for the store.
func (r *Registry) Listed(l Listing) {}

// Observed tells whether the conversation completely listed generation (or a newer one) of the server in a listing that began at or after since.
func (r *Registry) Observed(id ID, server string, since time.Time, generation uint64) bool {
	return false
}

// Mapped tells whether traffic of the conversation for the server was seen since the registry was made.
func (r *Registry) Mapped(id ID, server string) bool { return false }

// SessionLost notes that a session of the conversation could not be carried across a swap: it is refreshed even if the tools are the same. It
// never waits for the store. Unknown conversations are ignored.
func (r *Registry) SessionLost(id ID, server string) {}

// Refresh asks for a refresh whatever the state. ErrNotFound if there is no such conversation.
func (r *Registry) Refresh(ctx context.Context, id ID) error { return errTODO }

// Update changes a conversation: fn gets the present value and may be called several times, when others change it meanwhile; it must not keep
// the pointer. An error of fn ends the update and is returned as it is. ErrNotFound if there is no such conversation. Without the store the
// change holds in memory and is written later.
func (r *Registry) Update(ctx context.Context, id ID, fn func(*Conversation) error) (Conversation, error) {
	return Conversation{}, errTODO
}

// Changed is signalled (one consumer) when conversations may have become due, or due earlier.
func (r *Registry) Changed() <-chan struct{} { return r.changed }

// Due returns the conversations that need a refresh attempt now, in no particular order, and when the next one will (zero: not before Changed
// is signalled). Conversations at agent servers that aren't configured are left out. It does not claim: an id is returned until the attempt
// was recorded by Update.
func (r *Registry) Due(now time.Time) (ids []ID, next time.Time) { return nil, time.Time{} }

// Counts returns the number of conversations by agent server and state, zeros included, for the configured agent servers. It may be up to a
// second old.
func (r *Registry) Counts() map[string]map[State]int { return nil }

// OldestStale returns since when the conversation that is stale or failed for longest is so; zero when none is. It may be up to a second old.
func (r *Registry) OldestStale() time.Time { return time.Time{} }

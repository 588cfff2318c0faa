package admin

import (
	"errors"
	"log/slog"
	"net/http"
)

// maxBody bounds request bodies, in bytes.
const maxBody = 64 << 10

// Deps is what the handlers work with. All but Logger and Token are required.
type Deps struct {
	Logger        *slog.Logger // nil is silent
	Servers       Servers
	Conversations Conversations
	Control       Control
	Feed          *Feed
	// Token returns the bearer token that requests must carry, if one is needed.
	// It is called for every request, so that a rotated token counts at once. An
	// error refuses the request. Nil: no token is ever needed.
	Token func() (token string, needed bool, err error)
}

type api struct {
	registrar
	Deps
}

// New returns the handler of the admin listener.
func New(d Deps) http.Handler {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{registrar: registrar{conversations: d.Conversations, logger: d.Logger}, Deps: d}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", a.status)
	mux.HandleFunc("GET /v1/servers", a.listServers)
	mux.HandleFunc("GET /v1/servers/{name}", a.getServer)
	mux.HandleFunc("POST /v1/servers/{name}/check", a.checkServer)
	mux.HandleFunc("GET /v1/conversations", a.listConversations)
	mux.HandleFunc("GET /v1/conversations/{id}", a.getConversation)
	mux.HandleFunc("PUT /v1/conversations/{id}", a.putConversation)
	mux.HandleFunc("DELETE /v1/conversations/{id}", a.deleteConversation)
	mux.HandleFunc("POST /v1/conversations/{id}/refresh", a.refreshConversation)
	mux.HandleFunc("GET /v1/events", a.Feed.serve)
	mux.HandleFunc("POST /v1/reload", a.reload)
	mux.HandleFunc("POST /v1/quiesce", a.quiesce)
	protected := a.authenticate(withProblems(mux))
	page := http.NewServeMux()
	servePage(page)
	page.Handle("/", protected)
	return guard(page)
}

func (a *api) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.Token != nil {
			want, needed, err := a.Token()
			if err != nil {
				a.Logger.Warn("admin request refused: the token can't be read", "err", err)
				unavailable.with("the admin token file can't be read: see the log of the sidecar").write(w)
				return
			}
			if needed && !sameToken(bearer(r), want) {
				refuseUnauthorized(w, "send the admin token as Authorization: Bearer TOKEN")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (a *api) status(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.Control.Status())
}

func (a *api) listServers(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, ServerList{Servers: a.Servers.Servers()})
}

func (a *api) getServer(w http.ResponseWriter, r *http.Request) {
	s, err := a.Servers.Server(r.PathValue("name"))
	if err != nil {
		unknownServer.with(err.Error()).write(w)
		return
	}
	writeJSON(w, http.StatusOK, s)
}

func (a *api) checkServer(w http.ResponseWriter, r *http.Request) {
	s, err := a.Servers.Check(r.Context(), r.PathValue("name"))
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, s)
	case errors.Is(err, ErrUnknownServer):
		unknownServer.with(err.Error()).write(w)
	default:
		a.fail(w, "checking a server", err)
	}
}

func (a *api) reload(w http.ResponseWriter, r *http.Request) {
	err := a.Control.Reload(r.Context())
	if err == nil {
		writeJSON(w, http.StatusOK, map[string]bool{"reloaded": true})
		return
	}
	p := configRejected.with(err.Error())
	if rejected, ok := errors.AsType[*RejectedError](err); ok {
		p.Detail, p.Problems = "correct them and reload again", rejected.Problems
	}
	p.write(w)
}

func (a *api) quiesce(w http.ResponseWriter, r *http.Request) {
	if err := a.Control.Quiesce(r.Context()); err != nil {
		a.fail(w, "quiescing", err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]bool{"quiescing": true})
}

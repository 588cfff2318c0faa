package proxy

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestOldHoldOver: a backend that doesn't come back costs an error, not the stream.
func TestOldHoldOver(t *testing.T) {
	r := oldRig(t, func(cfg *Config, _ *Deps, _ *rig) {
		cfg.Servers[0].Hold, cfg.Servers[0].HoldCall = 50*time.Millisecond, 100*time.Millisecond
		cfg.HeldComment = 10 * time.Millisecond
	})

	c := r.connect("/team/sse") // nobody is there yet
	c.request(oldInit)

	if _, code, data := c.response(t, 0); code != CodeBackendAway || data["retryable"] != true {
		t.Errorf("%d %v", code, data)
	}

	r.backend.start((&oldStub{}).process())
	eventually(t, "the client gets through", func() error {
		c.request(oldInit)

		if _, code, _ := c.response(t, 0); code != 0 {
			return errNotYet
		}

		return nil
	})
}

func TestOldTooManyHeld(t *testing.T) {
	r := oldRig(t, func(cfg *Config, _ *Deps, _ *rig) {
		cfg.MaxHeld = 1
		cfg.HeldComment = 10 * time.Millisecond
	})

	c := r.connect("/team/sse")
	c.request(callBody(1, "a"))
	eventually(t, "the first is held", func() error {
		if r.proxy.Stats()[0].Held != 1 {
			return errNotYet
		}

		return nil
	})
	c.request(callBody(2, "a"))

	if _, code, _ := c.response(t, 2); code != CodeTooManyHeld {
		t.Error(code)
	}

	// A cancelled request is not held any longer, and not answered.
	c.request(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	eventually(t, "nothing is held", func() error {
		if r.proxy.Stats()[0].Held != 0 {
			return errNotYet
		}

		return nil
	})
	c.none(t)
}

// TestOldKept: a session that lives is not given up when the process is said to be
// another one, or was away.
func TestOldKept(t *testing.T) {
	release := make(chan struct{})
	stub := &oldStub{call: func(s *oldSession, m stubMessage) {
		go func() {
			<-release
			s.result(m, `{"content":[]}`)
		}()
	}}

	r := oldRig(t)
	r.backend.start(stub.process())

	c := r.connect("/team/sse")
	c.initialize(t)
	c.request(callBody(1, "a"))

	for _, s := range []BackendState{{Phase: Away, Epoch: 1}, {Phase: Ready, Epoch: 7}} {
		r.proxy.SetBackend("default", s)
	}

	eventually(t, "the session was looked at", func() error {
		stub.mu.Lock()
		defer stub.mu.Unlock()

		if !slices.Contains(stub.log, methodPing) {
			return errNotYet
		}

		return nil
	})
	close(release)

	if result, code, _ := c.response(t, 1); code != 0 {
		t.Error(result, code)
	}

	if n := r.backend.count(1, methodInitialize); n != 1 {
		t.Errorf("%d initialize", n)
	}
}

// TestOldFrozen: a stream of a process that is gone without the connection showing
// it is given up.
func TestOldFrozen(t *testing.T) {
	began := make(chan string, 1)
	first, second := &oldStub{call: neverAnswers(began)}, &oldStub{}

	var current atomic.Pointer[oldStub]

	current.Store(first)

	r := oldRig(t)
	r.backend.start(process{handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { current.Load().ServeHTTP(w, req) })})

	c := r.connect("/team/sse")
	c.initialize(t)
	r.settled()
	c.request(callBody(1, "a"))
	<-began
	current.Store(second)
	r.proxy.SetBackend("default", BackendState{Phase: Ready, Epoch: 7})

	if _, code, _ := c.response(t, 1); code != CodeInterrupted {
		t.Error(code)
	}

	c.request(callBody(2, "a"))

	if result, _, _ := c.response(t, 2); !strings.Contains(result, "ran a") {
		t.Error(result)
	}
}

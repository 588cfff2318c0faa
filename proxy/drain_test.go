package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestClientLeaves: the backend learns of it at once, and it is no failure of the
// backend.
func TestClientLeaves(t *testing.T) {
	m := NewMetrics(prometheus.NewPedanticRegistry())
	r := newRig(t, func(_ *Config, d *Deps, _ *rig) { d.Metrics = m })
	began, left := make(chan struct{}), make(chan struct{})
	s := &stub{}
	s.handle = func(_ http.ResponseWriter, r *http.Request, m stubMessage) bool {
		if m.Method == methodCall {
			close(began)
			<-r.Context().Done()
			close(left)
		}

		return m.Method == methodCall
	}
	r.backend.start(process{handler: s})

	id := r.initialize()
	ctx, cancel := context.WithCancel(t.Context())

	var wg sync.WaitGroup

	wg.Go(func() { r.do(ctx, http.MethodPost, "/mcp", id, callBody(1, "x")) })
	<-began
	cancel()
	<-left
	wg.Wait()
	eventually(t, "it is counted", func() error {
		if n := testutil.ToFloat64(m.requests.WithLabelValues("default", methodCall, string(outcomeClosed))); n != 1 {
			return fmt.Errorf("%v times", n)
		}

		return nil
	})

	if v := r.proxy.current.Load().servers["default"].gate.look(); v.breaks != 0 {
		t.Error("the backend was suspected")
	}
}

// TestDrain: calls finish, streams end, new requests are still served.
func TestDrain(t *testing.T) {
	r := newRig(t)
	began, finish := make(chan struct{}, 5), make(chan struct{})
	s := &stub{}
	s.handle = func(_ http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Params.Name == "slow" {
			began <- struct{}{}
			<-finish
		}

		return false
	}
	r.backend.start(process{handler: s})

	id := r.initialize()
	l := r.listen(id)

	var wg sync.WaitGroup

	for range 5 {
		wg.Go(func() {
			if g := r.post(id, callBody(1, "slow")); g.status != 200 || !strings.Contains(g.body, "ran slow") {
				t.Errorf("%d %s", g.status, g.body)
			}
		})
	}

	for range 5 {
		<-began
	}

	drained := make(chan error, 1)

	go func() { drained <- r.proxy.Drain(t.Context()) }()

	l.end(t)

	if !l.resp.Close {
		t.Error("the client may send its next request on the connection of its stream, which is about to be closed")
	}

	g := r.post(id, callBody(2, "quick"))
	if g.status != 200 || g.header.Get("Connection") != "close" && !strings.Contains(g.body, "ran quick") {
		t.Errorf("%d %s", g.status, g.body)
	}

	select {
	case err := <-drained:
		t.Errorf("drained while calls run: %v", err)
	default:
	}

	close(finish)
	wg.Wait()

	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// TestDrainGivesUp: a call that doesn't end isn't waited for without end.
func TestDrainGivesUp(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &stub{}})

	id := r.initialize()
	r.settled()
	r.backend.kill()

	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	r.proxy.running.begin()

	var wg sync.WaitGroup

	wg.Go(func() {
		if err := r.proxy.Drain(ctx); !errors.Is(err, over) {
			t.Error(err)
		}
	})

	// Nothing is held any more.
	eventually(t, "the proxy is quiet", func() error {
		if !r.proxy.quiet.Load() {
			return errors.New("it isn't")
		}

		return nil
	})

	if _, _, code, data := r.post(id, callBody(1, "x")).rpc(t); code != CodeBackendAway || data["reason"] != string(ReasonStopping) {
		t.Errorf("%d %v", code, data)
	}

	cancel(over)
	wg.Wait()
	r.proxy.running.end()
}

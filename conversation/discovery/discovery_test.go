package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// rig is a discoverer that runs, with what it registers and logs.
type rig struct {
	*Discoverer

	t        *testing.T
	metrics  *Metrics
	gatherer *prometheus.Registry

	mu     sync.Mutex
	regs   []conversation.Registration
	logs   strings.Builder
	refuse error
}

func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.Write(p)
}

// taken returns and forgets what was registered: the ids, sorted.
func (r *rig) taken() []conversation.ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []conversation.ID
	for _, reg := range r.regs {
		ids = append(ids, reg.ID)
	}
	r.regs = nil
	slices.Sort(ids)
	return ids
}

func newRig(t *testing.T, cfg Config, targets ...Target) *rig {
	t.Helper()
	r := &rig{t: t, gatherer: prometheus.NewPedanticRegistry()}
	r.metrics = NewMetrics(r.gatherer)
	var err error
	r.Discoverer, err = New(cfg, ourMatcher(t), Deps{
		Register: func(_ context.Context, reg conversation.Registration) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.regs = append(r.regs, reg)
			return r.refuse
		},
		Logger: slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug})), Metrics: r.metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.SetTargets(targets)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func at(name string, c Client) Target {
	return Target{Instance: conversation.Instance{AgentServer: name}, Client: c}
}

// after lets virtual time pass and everything come to rest.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) want(ids ...conversation.ID) {
	r.t.Helper()
	if diff := cmp.Diff(ids, r.taken()); diff != "" {
		r.t.Errorf("registered (-want +got):\n%s", diff)
	}
}

func TestDiscovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{}
		f.put("old", time.Now().Add(-time.Hour), ours)
		f.put("other", time.Now(), "http://other/mcp")
		f.put("new", time.Now(), "http://other/mcp", "http://sidecar:8080/c/new/mcp")
		r := newRig(t, DefaultConfig(), Target{conversation.Instance{AgentServer: "sandboxes", URL: "https://a"}, f})
		after(time.Second)
		r.mu.Lock()
		slices.SortFunc(r.regs, func(a, b conversation.Registration) int { return strings.Compare(string(a.ID), string(b.ID)) })
		now := time.Now().Add(-time.Second).UTC()
		want := []conversation.Registration{
			{ID: "new", AgentServer: "sandboxes", AgentURL: "https://a", Servers: []string{"tools"}, Source: conversation.SourceDiscovery, CreatedAt: now, LastActive: now},
			{
				ID: "old", AgentServer: "sandboxes", AgentURL: "https://a", Servers: []string{"tools"}, Source: conversation.SourceDiscovery,
				CreatedAt: now.Add(-time.Hour), LastActive: now.Add(-time.Hour),
			},
		}
		if diff := cmp.Diff(want, r.regs); diff != "" {
			t.Errorf("registered (-want +got):\n%s", diff)
		}
		r.mu.Unlock()
		if got := testutil.ToFloat64(r.metrics.runs.WithLabelValues("sandboxes", "success")); got != 1 {
			t.Errorf("%v runs", got)
		}
	})
}

// TestReadsWhatChanged has most runs read one page, and some all of them.
func TestReadsWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{}
		begin := time.Now().Add(-time.Hour)
		for i := range 450 {
			f.put(fmt.Sprint("c", i), begin.Add(time.Duration(i)*time.Second), ours)
		}
		r := newRig(t, DefaultConfig(), at("default", f))
		after(time.Second)
		if n := len(r.taken()); n != 450 || f.taken() != 5 {
			t.Errorf("%d registered at first", n)
		}
		after(40 * time.Second)
		if n := len(r.taken()); n != 100 || f.taken() != 1 {
			t.Errorf("%d registered when nothing changed", n)
		}
		for i := range 150 {
			f.put(fmt.Sprint("d", i), time.Now(), ours)
		}
		r.Wake()
		after(3 * time.Second)
		if got := r.taken(); len(got) != 300 || !slices.Contains(got, "d0") || f.taken() != 3 {
			t.Errorf("%d registered after 150 changes", len(got))
		}
		after(10 * time.Minute)
		if got := r.taken(); !slices.Contains(got, "c0") {
			t.Error("not everything is read again")
		}
		f.taken()
		r.SetMatcher(matcher(t, map[string]string{"other": "/mcp"}, "http://sidecar:8080"))
		after(time.Second)
		if n := len(r.taken()); n != 600 || f.taken() != 6 {
			t.Errorf("%d registered after the public URL changed", n)
		}
	})
}

// TestUnorderedList has an agent server that doesn't sort.
func TestUnorderedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{}
		for i := range 150 {
			f.put(fmt.Sprint("c", i), time.Now().Add(-time.Duration(i)*time.Hour), ours)
		}
		r := newRig(t, DefaultConfig(), at("default", f))
		after(time.Second)
		r.taken()
		after(40 * time.Second)
		if n := len(r.taken()); n != 150 {
			t.Errorf("%d registered", n)
		}
	})
}

func TestPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{}
		r := newRig(t, DefaultConfig(), at("default", f))
		after(time.Second)
		if n := f.taken(); n != 1 {
			t.Errorf("%d requests at first", n)
		}
		after(10 * time.Minute)
		if n := f.taken(); n < 16 || n > 25 {
			t.Errorf("%d requests in 10 minutes", n)
		}
		r.Wake()
		r.Wake()
		after(100 * time.Millisecond)
		if n := f.taken(); n != 1 {
			t.Errorf("%d requests when woken", n)
		}
	})
}

// TestSetConfig: another interval counts at once, not after the wait of before.
func TestSetConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{}
		slow := DefaultConfig()
		slow.Interval = 24 * time.Hour
		r := newRig(t, slow, at("default", f))
		after(time.Hour)
		f.taken()
		if err := r.SetConfig(DefaultConfig()); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Minute)
		if n := f.taken(); n < 16 || n > 25 {
			t.Errorf("%d requests in 10 minutes", n)
		}
		if err := r.SetConfig(Config{}); err == nil {
			t.Error("an empty configuration is taken")
		}
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{fail: errors.New("the agent server is away")}
		r := newRig(t, DefaultConfig(), at("default", f))
		after(10 * time.Second)
		if n := f.taken(); n < 3 || n > 5 {
			t.Errorf("%d requests in the first 10 s", n)
		}
		after(time.Hour)
		f.taken()
		after(time.Hour)
		if n := f.taken(); n < 9 || n > 16 {
			t.Errorf("%d requests in an hour without an agent server", n)
		}
		r.mu.Lock()
		if n := strings.Count(r.logs.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings", n)
		}
		r.mu.Unlock()
		f.mu.Lock()
		f.fail = nil
		f.mu.Unlock()
		f.put("x", time.Now(), ours)
		after(6 * time.Minute)
		if got := r.taken(); !slices.Contains(got, "x") {
			t.Error("not found after the agent server is back")
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if !strings.Contains(r.logs.String(), "works again") {
			t.Error("nobody is told that it works again")
		}
		if testutil.ToFloat64(r.metrics.runs.WithLabelValues("default", "failed")) < 10 {
			t.Error("failures aren't counted")
		}
	})
}

// TestRefusedRegistrations: some are refused for good reason, others are tried
// again.
func TestRefusedRegistrations(t *testing.T) {
	for err, failed := range map[error]float64{
		fmt.Errorf("%w: another's", conversation.ErrForbidden): 0, conversation.ErrRemoved: 0, conversation.ErrClosed: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeServer{}
			f.put("x", time.Now(), ours)
			r := newRig(t, DefaultConfig())
			r.mu.Lock()
			r.refuse = err
			r.mu.Unlock()
			r.SetTargets([]Target{at("default", f)})
			after(500 * time.Millisecond)
			if got := testutil.ToFloat64(r.metrics.runs.WithLabelValues("default", "failed")); got != failed {
				t.Errorf("%v: %v failures", err, got)
			}
		})
	}
}

func TestSlowAgentServerDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &funcClient{func(ctx context.Context) (io.ReadCloser, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}
		f := &fakeServer{}
		f.put("x", time.Now(), ours)
		r := newRig(t, DefaultConfig(), at("slow", slow), at("well", f))
		after(time.Second)
		r.want("x")
		after(time.Minute)
		if got := testutil.ToFloat64(r.metrics.runs.WithLabelValues("slow", "failed")); got == 0 {
			t.Error("the slow one is waited for without end")
		}
	})
}

func TestTargetsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeServer{}, &fakeServer{}
		r := newRig(t, DefaultConfig(), at("a", a))
		after(time.Second)
		a.taken()
		r.SetTargets([]Target{at("a", a), at("b", b)})
		after(time.Second)
		if a.taken() != 0 || b.taken() != 1 {
			t.Error("not just the new one is asked")
		}
		r.SetTargets([]Target{at("b", b)})
		after(time.Minute)
		if a.taken() != 0 || b.taken() == 0 {
			t.Error("the one that was taken out is asked, or the other isn't")
		}
		other := &fakeServer{}
		r.SetTargets([]Target{at("b", other)})
		after(time.Second)
		if b.taken() != 0 || other.taken() != 1 {
			t.Error("another client isn't used at once")
		}
		other.put("x", time.Now(), "http://elsewhere/mcp")
		r.SetMatcher(ourMatcher(t))
		after(time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		if !strings.Contains(r.logs.String(), "no conversation of the agent server names this sidecar") {
			t.Error("nobody is told")
		}
		if problems, err := testutil.GatherAndLint(r.gatherer); err != nil || len(problems) > 0 {
			t.Errorf("metrics: %v %v", problems, err)
		}
	})
}

func TestNewChecks(t *testing.T) {
	if _, err := New(Config{}, ourMatcher(t), Deps{Register: func(context.Context, conversation.Registration) error { return nil }}); err == nil {
		t.Error("no limits are accepted")
	}
	if _, err := New(DefaultConfig(), ourMatcher(t), Deps{}); err == nil {
		t.Error("nobody to register with is accepted")
	}
}

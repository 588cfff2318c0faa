package health

import (
	"strings"
	"testing"
	"time"
)

func TestConfigTellsEveryProblem(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Transport = "carrier pigeon"
	cfg.HealthURL = mustURL(t, "/health")
	cfg.Settle = -time.Second
	cfg.Fails = 0
	cfg.MaxTools = 0
	_, err := New(cfg, Deps{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"server:", "transport:", "carrier pigeon", "url: must be set", "health url:", "settle:", "fails", "max tools"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q isn't in: %v", want, err)
		}
	}
	cfg = DefaultConfig()
	cfg.Server, cfg.URL = "s", mustURL(t, "http://127.0.0.1:1")
	if _, err := New(cfg, Deps{}); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

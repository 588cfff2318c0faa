//go:build unix && alerts

package alerts

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// patience is how long a page may take. Scrapes and evaluations are late on a machine that is busy.
const patience = 100 * time.Second

// stack is Prometheus with the shipped alerts, Alertmanager, and somebody to be paged.
type stack struct {
	t          *testing.T
	prometheus string // address
	targets    string // file

	mu      sync.Mutex
	scraped map[*pod]bool
	pages   []page
}

// page is an alert as the webhook gets it.
type page struct {
	Status string            `json:"status"` // firing or resolved
	Labels map[string]string `json:"labels"`
}

func startStack(t *testing.T) *stack {
	t.Helper()
	prometheus, alertmanager := proc.Need(t, "prometheus"), needAlertmanager(t)
	dir := t.TempDir()
	s := &stack{t: t, prometheus: proc.ReserveAddr(t), targets: filepath.Join(dir, "targets.json"), scraped: map[*pod]bool{}}
	webhook := httptest.NewServer(http.HandlerFunc(s.receive))
	t.Cleanup(webhook.Close)
	s.writeTargets()

	manager := proc.ReserveAddr(t)
	write(t, filepath.Join(dir, "alertmanager.yaml"), fmt.Sprintf(`route:
  receiver: webhook
  group_by: [alertname]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
receivers:
- name: webhook
  webhook_configs:
  - url: %s
    send_resolved: true
%s`, webhook.URL, inhibitRules(t)))
	proc.Start(t, alertmanager, "--config.file="+filepath.Join(dir, "alertmanager.yaml"), "--storage.path="+filepath.Join(dir, "alertmanager"),
		"--web.listen-address="+manager, "--cluster.listen-address=", "--log.level=warn")

	write(t, filepath.Join(dir, "rules.yaml"), quickRules(t))
	write(t, filepath.Join(dir, "prometheus.yaml"), fmt.Sprintf(`global:
  scrape_interval: 1s
  scrape_timeout: 1s
  evaluation_interval: 1s
rule_files: [rules.yaml]
alerting:
  alertmanagers:
  - static_configs:
    - targets: [%q]
scrape_configs:
- job_name: mcp-sidecar
  file_sd_configs:
  - files: [targets.json]
    refresh_interval: 1s
`, manager))
	proc.Start(t, prometheus, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "tsdb"),
		"--web.listen-address="+s.prometheus, "--rules.alert.resend-delay=1s", "--log.level=warn")
	proc.WaitListening(t, manager)
	proc.WaitListening(t, s.prometheus)
	return s
}

// needAlertmanager returns the path of alertmanager, which Debian calls prometheus-alertmanager.
func needAlertmanager(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("alertmanager"); err == nil {
		return path
	}
	return proc.Need(t, "prometheus-alertmanager")
}

// inhibitRules returns the example that the runbooks give, which has to be one that Alertmanager takes.
func inhibitRules(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```yaml\n(inhibit_rules:.*?)```").FindSubmatch(b)
	if m == nil {
		t.Fatal("docs/runbooks.md has no example of inhibit_rules")
	}
	return string(m[1])
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// receive is the webhook.
func (s *stack) receive(_ http.ResponseWriter, r *http.Request) {
	var body struct {
		Alerts []page `json:"alerts"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		s.t.Errorf("a page that can't be read: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages = append(s.pages, body.Alerts...)
}

// scrape makes a pod's sidecar a target, or ends that.
func (s *stack) scrape(p *pod, on bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scraped[p] = on
	s.writeTargets()
}

func (s *stack) writeTargets() {
	s.t.Helper()
	type target struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	list := []target{}
	for p, on := range s.scraped {
		if on {
			list = append(list, target{[]string{p.ops}, map[string]string{"namespace": "ns", "pod": p.name}})
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		s.t.Fatal(err)
	}
	write(s.t, s.targets+".new", string(b))
	if err := os.Rename(s.targets+".new", s.targets); err != nil {
		s.t.Fatal(err)
	}
}

// paged returns the pages about sidecars.
func (s *stack) paged() []page {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.pages), func(p page) bool {
		return p.Labels["alertname"] == "McpSidecarAbsent" // while none has started
	})
}

// await waits for a page.
func (s *stack) await(t *testing.T, status, alert string) {
	t.Helper()
	eventually(t, alert+" to be "+status, func() bool {
		return slices.ContainsFunc(s.paged(), func(p page) bool { return p.Status == status && p.Labels["alertname"] == alert })
	})
}

// query returns the series that a query gives, as sets of labels.
func (s *stack) query(t *testing.T, expr string) []map[string]string {
	t.Helper()
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
			} `json:"result"`
		} `json:"data"`
	}
	s.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &answer)
	series := []map[string]string{}
	for _, r := range answer.Data.Result {
		series = append(series, r.Metric)
	}
	return series
}

func (s *stack) get(t *testing.T, path string, into any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.prometheus+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		t.Fatalf("%s: %d, %v", path, answer.StatusCode, err)
	}
}

// watch waits until Prometheus has evaluated the alerts for so long from now on.
func (s *stack) watch(t *testing.T, d time.Duration) {
	t.Helper()
	until := time.Now().Add(d)
	eventually(t, "evaluations of the alerts", func() bool {
		var answer struct {
			Data struct {
				Groups []struct {
					LastEvaluation time.Time `json:"lastEvaluation"`
				} `json:"groups"`
			} `json:"data"`
		}
		s.get(t, "/api/v1/rules", &answer)
		return len(answer.Data.Groups) > 0 && answer.Data.Groups[0].LastEvaluation.After(until)
	})
}

// eventually is like that of proc, with the time that a page takes.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.NewTimer(patience), time.NewTicker(100*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("waited in vain for:", strings.TrimSpace(what))
		}
	}
}

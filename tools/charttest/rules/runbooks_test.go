package rules

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every alert has a runbook, where its annotation says, with all parts.
func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	text := string(read(t, filepath.Join(repository, "docs/runbooks.md")))
	sections := map[string]string{}
	for _, s := range strings.Split(text, "\n## ")[1:] {
		heading, body, _ := strings.Cut(s, "\n")
		sections[heading] = body
	}
	documented := 0
	for _, rule := range alerts(t) {
		body, ok := sections[rule.Alert]
		if !ok {
			t.Errorf("docs/runbooks.md has no section %s", rule.Alert)
			continue
		}
		documented++
		for _, part := range []string{"Meaning", "Impact", "Diagnosis", "Mitigation", "False positives"} {
			if !strings.Contains(body, "\n**"+part+".** ") {
				t.Errorf("runbook of %s: no %s", rule.Alert, part)
			}
		}
		severity := rule.Labels["severity"]
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) || !strings.Contains(body, "*"+severity+"*") {
			t.Errorf("runbook of %s doesn't say that it is %s", rule.Alert, severity)
		}
		if want := "https://github.com/mcp-sidecar/mcp-sidecar/blob/main/docs/runbooks.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q", rule.Alert, rule.Annotations["runbook_url"])
		}
		if s := rule.Annotations["summary"]; s == "" || strings.Contains(s, "{{") {
			t.Errorf("%s: the summary must be a text without templates, got %q", rule.Alert, s)
		}
		if !strings.HasPrefix(rule.Alert, "McpSidecar") {
			t.Errorf("%s: alerts begin with McpSidecar", rule.Alert)
		}
	}
	for heading := range sections {
		if !slices.ContainsFunc(alerts(t), alertNamed(heading)) {
			t.Errorf("docs/runbooks.md has a section %s, and there is no such alert", heading)
		}
	}
	for _, name := range regexp.MustCompile(`McpSidecar[A-Za-z]+`).FindAllString(text+string(read(t, dashboardFile)), -1) {
		if !slices.ContainsFunc(alerts(t), alertNamed(name)) {
			t.Errorf("there is no alert %s", name)
		}
	}
}

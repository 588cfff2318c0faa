//go:build unix

package statuspage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestSwap watches a deployment from a page that is never loaded again.
func TestSwap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.deploy("-version", "v1")
	b := open(t, r.admin)
	b.sees("#no-conversations", "No conversation is registered")
	b.picture("empty")
	r.converse(12)
	b.sees("#verdict", "Everything is current", "12 conversations")
	b.sees("#servers", "default", "settled", "/mcp", "testbackend", "none since the start")
	b.sees("#conversations", "c0ffee00-0000-4000-8000-000000000012", "current")
	b.sees("#link", "Live")
	b.picture("rest")

	r.away()
	b.sees("#verdict", "default is away")
	b.sees("#servers", "away")
	b.sees("#news", "default is away")
	b.picture("away")
	r.deploy("-version", "v2")
	b.sees("#verdict", "Everything is current")
	b.sees("#servers", "1 added, 1 removed, 1 changed", "breaking", "multiply", `required parameter "times" added`)
	b.sees("#timeline", "default: another process", "default: generation 2", "Refreshed 12 conversations to generation 2", "12 done")
	ask[any](b, `document.querySelector('.changed details summary').click()`)
	b.sees(".diff", `−   "description": "Says the same."`, `+       "times": {`)
	b.picture("swapped")
	b.do(chromedp.EmulateViewport(390, 844))
	if wide := ask[float64](b, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		t.Errorf("on a telephone the page is %v pixels too wide", wide)
	}
	b.picture("narrow")
}

// TestFailingRefreshes: what doesn't work is told first, and why.
func TestFailingRefreshes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.deploy("-version", "v1")
	r.converse(6)
	b := open(t, r.admin)
	b.sees("#verdict", "Everything is current", "6 conversations")
	r.refuse.Store(true)
	r.deploy("-version", "v2")
	b.sees("#verdict", "cannot be refreshed", "oldest since")
	b.sees("#conversations", "failed", "server_error", "the sandbox is on fire", "1 → 2", "Again")
	b.sees("#timeline", "failing", "server_error")
	b.picture("failing")
	r.refuse.Store(false)
	ask[any](b, `document.querySelectorAll('#conversations button').forEach((button) => button.click())`)
	b.sees("#verdict", "Everything is current")
	b.sees("#timeline", "Refreshed 6 conversations", "6 done")
}

// TestHostileNames: what a server calls its tools is shown, and does nothing.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tools.json")
	write := func(names ...string) {
		tools := []map[string]any{}
		for _, n := range names {
			tools = append(tools, map[string]any{"name": n, "description": n, "inputSchema": map[string]any{"type": "object", "properties": map[string]any{n: map[string]any{"type": "string"}}}})
		}
		text, err := json.Marshal(tools)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hostile := []string{
		`<img src=x onerror="window.pwned=1">`, `"><script>window.pwned=1</script>`, `javascript:window.pwned=1`, `</bdi></article><h2>gone</h2>`,
		"abc\u202egnp.exe", "zero\u200bwidth", "bell\u0007", "__proto__", "constructor", strings.Repeat("long", 1000), "{{7*7}}", "a\nb",
	}
	r := newRig(t)
	write("plain")
	r.deploy("-tools", file)
	b := open(t, r.admin)
	b.sees("#servers", "settled")
	write(hostile...)
	r.deploy("-tools", file)
	b.sees("#servers", "12 added, 1 removed", `<img src=x onerror="window.pwned=1">`, `"><script>window.pwned=1</script>`, `abc\u{202e}gnp.exe`, `zero\u{200b}width`, "__proto__", "{{7*7}}")
	ask[any](b, `document.querySelectorAll('details').forEach((d) => { d.open = true; })`)
	b.sees(".diff", "inputSchema")
	ask[any](b, `document.querySelectorAll('.changes details').forEach((d, i) => { d.open = i === 0; })`)
	b.sees("#timeline", "12 added")
	if ask[bool](b, `'pwned' in window || document.querySelectorAll('main img, main script, main h2').length !== 5`) {
		t.Error("names of tools became elements")
	}
	if wide := ask[float64](b, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		t.Errorf("the page is %v pixels too wide", wide)
	}
	b.picture("hostile")
}

// TestKeyboard uses the page without a pointer.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.deploy("-version", "v1")
	r.converse(2)
	b := open(t, r.admin)
	b.sees("#verdict", "Everything is current", "2 conversations")
	b.sees("#conversations", "000000000002")
	var reached []string
	for range 60 {
		b.key(kb.Tab)
		at := ask[string](b, `(() => {
			const e = document.activeElement;
			if (e === document.body) return '';
			const s = getComputedStyle(e.matches('.chip input') ? e.nextElementSibling : e);
			return (s.outlineStyle === 'none' ? 'unseen: ' : '') + (e.id || e.className || e.innerText || e.name || e.tagName);
		})()`)
		if at == "" {
			break
		}
		reached = append(reached, at)
	}
	all := strings.Join(reached, " | ")
	for _, want := range []string{"skip", "Look now", "state", "id-filter", "Refresh", "kind", "All tools"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s can't be reached by the keyboard: %s", want, all)
		}
	}
	if strings.Contains(all, "unseen") {
		t.Errorf("where the focus is can't be seen: %s", all)
	}

	b.do(chromedp.Focus(chromedp.CSS("#states input")))
	b.key(kb.ArrowRight, kb.ArrowRight) // current, then the next state that there is, or round to all
	b.do(chromedp.Focus(chromedp.CSS("#id-filter")), chromedp.SendKeys(chromedp.CSS("#id-filter"), "nobody"))
	b.sees("#no-conversations", "No conversation is like that")
	b.do(chromedp.Focus(chromedp.CSS("#no-conversations button")))
	b.key(kb.Enter)
	b.sees("#conversations", "000000000001", "000000000002")
	b.do(chromedp.Focus(chromedp.CSS(".server button")))
	b.key(kb.Enter)
	b.sees("#news", "default was looked at: settled")
	if ask[string](b, `document.activeElement.innerText`) == "" {
		t.Error("the focus is lost after a look")
	}
}

// TestToken: the page asks for it, keeps it for the tab, and asks again when it
// was rotated.
func TestToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	rotate := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rotate("first")
	r := newRig(t, "--admin-token-file", file)
	r.deploy("-version", "v1")
	b := open(t, r.admin)
	enter := func(token string) {
		b.do(chromedp.WaitVisible(chromedp.CSS("#token-value")), chromedp.SendKeys(chromedp.CSS("#token-value"), token+kb.Enter))
	}
	b.sees("#token", "asks for its admin token")
	b.picture("token")
	enter("wrong")
	b.sees("#token-error", "not accepted")
	enter("nöt a token")
	b.sees("#token-error", "not accepted")
	enter("first")
	b.sees("#servers", "settled")
	b.do(chromedp.Reload())
	b.sees("#servers", "settled")
	rotate("second")
	r.away() // something happens, so that the page asks
	b.sees("#token", "not accepted")
	enter("second")
	b.sees("#verdict", "default is away")
	if ask[int](b, `localStorage.length`) != 0 || strings.Contains(ask[string](b, `location.href + document.cookie`), "second") {
		t.Error("the token is kept for longer than the tab")
	}
}

// TestRejectedConfiguration: a file with mistakes is told of as soon as it is written.
func TestRejectedConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sidecar.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("logLevel: info\n")
	r := newRig(t, "--config", file)
	r.deploy("-version", "v1")
	b := open(t, r.admin)
	b.sees("#servers", "settled")
	write("logLevel: info\nhodl: 5s\n<b>: bold\n")
	b.sees("#config-error", "the last good one stays in force", `hodl: unknown key, did you mean "hold"?`, "<b>")
	b.sees("#timeline", "Configuration rejected")
	b.picture("rejected")
	write("logLevel: warn\n")
	b.sees("#timeline", "Configuration reloaded")
	proc.Eventually(t, "the mistakes to go", func() bool { return b.text("#config-error") == "" })
}

// TestSidecarRestart: the page finds its way back, and doesn't mix up the events
// of two processes.
func TestSidecarRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.deploy("-version", "v1")
	b := open(t, r.admin)
	b.sees("#timeline", "generation 1")
	r.deploy("-version", "v2")
	b.sees("#timeline", "another process", "generation 2")
	r.sidecar.Kill()
	b.sees("#link", "Not connected")
	r.start()
	b.sees("#link", "Live")
	b.sees("#timeline", "generation 2")
	proc.Eventually(t, "the events of the process before to go", func() bool { return !strings.Contains(b.text("#timeline"), "another process") })
}

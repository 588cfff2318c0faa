//go:build unix

package statuspage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/install"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// tab is a page in a browser of its own. Whatever the browser complains of, and
// every request to another host, fails the test.
type tab struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // it is the browser
	host string          // of the only address that may be asked
	axe  string          // the rules for accessible pages

	mu         sync.Mutex
	complaints []string
}

// open opens the page of a sidecar whose admin API is at addr.
func open(t *testing.T, addr string) *tab {
	t.Helper()
	b := &tab{t: t, host: addr, axe: rules(t)}
	var end context.CancelFunc
	b.ctx, end = chromedp.NewContext(context.Background(), chromedp.WithListener(b.heard), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(proc.Need(t, "chromium")), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1440, 1000),
		chromedp.Flag("no-proxy-server", true), chromedp.WSURLReadTimeout(4*proc.Patience),
	))
	t.Cleanup(end)
	if err := chromedp.Do(b.ctx); err != nil { // the browser lives as long as the context of its first call
		t.Fatal(err)
	}
	b.do(chromedp.Navigate("http://" + addr + "/"))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, c := range b.complaints {
			t.Errorf("the browser complains: %s", c)
		}
	})
	return b
}

// rules returns axe-core, a script.
func rules(t *testing.T) string {
	t.Helper()
	npm := proc.Need(t, "npm")
	files := []string{filepath.Join(here, "package.json"), filepath.Join(here, "package-lock.json")}
	dir := install.Cached(t, "statuspage", files, func(dir string) { install.Run(t, dir, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund") })
	script, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

func (b *tab) heard(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text, _ := json.Marshal(e.ExceptionDetails)
		b.complain("exception: %s", text)
	case *runtime.EventConsoleAPICalled:
		text, _ := json.Marshal(e.Args)
		b.complain("console.%s: %s", e.Type, text)
	case *log.EventEntryAdded:
		// A server that is away, or wants a token, is what some tests are about.
		if e.Entry.Source != log.EntrySourceNetwork {
			b.complain("%s %s: %s", e.Entry.Level, e.Entry.Source, e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Host != b.host {
			b.complain("request to %s", e.Request.URL)
		}
	}
}

func (b *tab) complain(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, fmt.Sprintf(format, args...))
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, chromedp.Steps(actions...))
}

// run does something in a tab and returns what comes of it.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*proc.Patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// ask returns the value of an expression in the page.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression))
}

// text is what a person reads in the element with a selector.
func (b *tab) text(selector string) string {
	b.t.Helper()
	quoted, _ := json.Marshal(selector)
	return ask[string](b, fmt.Sprintf(`document.querySelector(%s)?.innerText ?? ''`, quoted))
}

// sees waits until the element with a selector reads like all the words.
func (b *tab) sees(selector string, words ...string) {
	b.t.Helper()
	text := ""
	b.t.Cleanup(func() {
		if b.t.Failed() && text != "" {
			b.t.Logf("%s said at last:\n%s", selector, text)
		}
	})
	proc.Within(b.t, 2*proc.Patience, fmt.Sprintf("%s to say %q", selector, words), func() bool {
		text = b.text(selector)
		for _, w := range words {
			if !strings.Contains(text, w) {
				return false
			}
		}
		text = ""
		return true
	})
}

// picture keeps the page as it looks now, in light and dark, and checks both
// against the rules for accessible pages.
func (b *tab) picture(name string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		b.do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
			return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
		})
		b.accessible(name + " in " + scheme)
		png := run(b, chromedp.FullScreenshot(100))
		if err := os.WriteFile(filepath.Join(pictures, name+"-"+scheme+".png"), png, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

// accessible checks the page against the rules of axe-core.
func (b *tab) accessible(what string) {
	b.t.Helper()
	if !ask[bool](b, `'axe' in window`) {
		ask[any](b, b.axe+"; null")
	}
	broken := run(b, chromedp.Evaluate[[]string](`axe.run(document, { resultTypes: ['violations'] }).then((found) =>
		found.violations.map((rule) => rule.id + ': ' + rule.help + ': ' + rule.nodes.map((node) => node.html + ' ' + node.failureSummary).join('; ')))`,
		chromedp.EvalAwaitPromise))
	for _, rule := range broken {
		b.t.Errorf("%s: %s", what, rule)
	}
}

// key presses keys as a person at the keyboard does.
func (b *tab) key(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

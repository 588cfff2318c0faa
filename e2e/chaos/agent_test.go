//go:build chaos && unix

package chaos

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// agent is one client of one server. Its methods are called by one goroutine at a time.
type agent struct {
	w      *world
	server string
	name   string
	rng    *rand.Rand
	caller caller
	ready  bool          // the handshake is done
	n      int           // requests so far
	waited time.Duration // of the handshake, by which the first listing must wait less
	told   atomic.Int64  // that the tools changed
}

// newAgent returns a client that isn't connected.
func (w *world) newAgent(server, kind string, n int) *agent {
	w.actors++
	a := &agent{
		w: w, server: server, name: fmt.Sprintf("%s-%s-%d", server, kind, n), rng: random(w.seed, w.actors),
		caller: caller{addr: w.sidecar.listen, path: "/" + server, patience: patience},
	}
	switch {
	case kind == "modern":
		a.caller.modern = true
	case kind == "batcher":
		a.caller.old = batching
	case server == "sse":
		a.caller.old = oldest
	}
	return a
}

// streams reports whether the client speaks the transport of 2024-11-05.
func (a *agent) streams() bool { return a.caller.old == oldest }

func (a *agent) revision() string {
	if a.caller.modern {
		return modern
	}
	return legacy
}

// request begins a request: its entry and its id.
func (a *agent) request(method, tool string) (e *entry, id string) {
	a.n++
	e = a.w.ledger.begin(entry{server: a.server, client: a.name, tag: fmt.Sprintf("%s/%d", a.name, a.n), method: method, tool: tool})
	if a.n%2 == 0 {
		return e, strconv.Itoa(a.n)
	}
	return e, strconv.Quote(e.tag)
}

// ended notes what came of a request, and reports whether it has a result.
func (a *agent) ended(e *entry, m *message, got reply, err error) bool {
	l := a.w.ledger
	switch {
	case err == nil && m.Error == nil:
		l.end(e, result, nil)
		return true
	case err == nil:
		l.end(e, failed, m.Error)
		a.checkError(e)
	default:
		l.end(e, unknown, nil)
		a.broke(e, err)
		if got.status == http.StatusNotFound {
			a.ready = false
		}
	}
	return false
}

// broke decides whether a request may have ended like this.
func (a *agent) broke(e *entry, err error) {
	var status statusError
	if errors.As(err, &status) && status == http.StatusServiceUnavailable && a.caller.modern && a.w.server(a.server).wasUnavailable(e.began) {
		return // new clients see what the backend says
	}
	if !a.w.excuses(err, e.began) {
		a.w.ledger.defect(e, "%v", err)
	}
	time.Sleep(between(a.rng, 0, 200*time.Millisecond)) // it may be away for longer
}

// checkError checks that an error is one that the request can have.
func (a *agent) checkError(e *entry) {
	switch code := e.err.Code; {
	case e.err.own():
	case code == -32602 && (e.tool == "multiply" || e.tool == "count"): // the version has no such tool
	case code == -32602 && a.w.server(a.server).wasEmpty(e.began): // nor any other, yet
	case code == -32603 && (e.tool == "slow" || e.tool == "progress" || e.tool == "sample"): // it noticed that its caller is gone
	default:
		a.w.ledger.defect(e, "there is no reason for this error")
	}
}

// handshake begins a session. It returns false when that didn't work.
func (a *agent) handshake() bool {
	switch {
	case a.streams():
		if !a.open() {
			return false
		}
		if a.ready {
			return true
		}
	case a.ready || a.caller.modern:
		return true
	}
	a.caller.session = ""
	version := cmp.Or(a.caller.old, legacy)
	e, id := a.request("initialize", "")
	m, got, err := a.caller.ask(id, e.method, map[string]any{
		"protocolVersion": version, "capabilities": map[string]any{"sampling": map[string]any{}}, "clientInfo": map[string]any{"name": a.name, "version": "1"},
	})
	if !a.ended(e, m, got, err) {
		return false
	}
	a.waited = e.ended.Sub(e.began)
	var about struct {
		ProtocolVersion string `json:"protocolVersion"`
		Capabilities    struct {
			Tools struct {
				ListChanged bool `json:"listChanged"`
			} `json:"tools"`
		} `json:"capabilities"`
	}
	if err := json.Unmarshal(m.Result, &about); err != nil || about.ProtocolVersion != version || !about.Capabilities.Tools.ListChanged {
		a.w.ledger.defect(e, "the result is %s", m.Result)
	}
	if !a.streams() {
		if a.caller.session = got.header.Get("Mcp-Session-Id"); a.caller.session == "" {
			a.w.ledger.defect(e, "there is no session id")
			return false
		}
	}
	a.ready = a.notify("notifications/initialized", "")
	return a.ready
}

// notify sends a notification, and reports whether it was taken.
func (a *agent) notify(method, params string) bool {
	if params == "" {
		params = "{}"
	}
	e := a.w.ledger.begin(entry{server: a.server, client: a.name, method: method})
	body := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params)
	var err error
	got := reply{status: http.StatusAccepted}
	if a.streams() {
		err = a.caller.stream.post(&a.caller, body)
	} else {
		got, err = a.caller.post(body)
	}
	switch {
	case err != nil:
		a.w.ledger.end(e, unknown, nil)
		a.broke(e, err)
	case got.status != http.StatusAccepted || got.body != "":
		a.w.ledger.end(e, unknown, nil)
		a.w.ledger.defect(e, "the answer is %d %q", got.status, got.body)
	default:
		a.w.ledger.end(e, result, nil)
		return true
	}
	return false
}

// leave ends the session as the protocol wants it.
func (a *agent) leave() {
	if s := a.caller.stream; s != nil {
		s.close(&a.caller)
		return
	}
	if a.caller.session == "" {
		return
	}
	e := a.w.ledger.begin(entry{server: a.server, client: a.name, method: http.MethodDelete})
	resp, err := a.caller.send(http.MethodDelete, "")
	if err == nil {
		err = a.caller.finish(resp)
	}
	a.w.ledger.end(e, result, nil)
	switch {
	case err != nil:
		a.broke(e, err)
	case resp.StatusCode == http.StatusMethodNotAllowed:
		return
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusAccepted:
		a.w.ledger.defect(e, "the answer is %d", resp.StatusCode)
	default:
		e := a.w.ledger.begin(entry{server: a.server, client: a.name, method: "ping"})
		got, err := a.caller.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		a.w.ledger.end(e, result, nil)
		if err != nil {
			a.broke(e, err)
		} else if got.status != http.StatusNotFound {
			a.w.ledger.defect(e, "on a session that was deleted the answer is %d %q", got.status, got.body)
		}
	}
	a.ready, a.caller.session = false, ""
}

// hangUp breaks off what is left.
func (a *agent) hangUp() {
	if s := a.caller.stream; s != nil {
		s.drop()
	}
	a.caller.hangUp()
}

// call calls a tool, and checks the result. It reports whether there was one.
func (a *agent) call(tool string) bool {
	e, id := a.request("tools/call", tool)
	args, want := a.arguments(e)
	params := map[string]any{"name": tool, "arguments": args}
	if tool == "progress" {
		params["_meta"] = map[string]any{"progressToken": e.tag}
	}
	m, got, err := a.caller.ask(id, e.method, params)
	if !a.ended(e, m, got, err) {
		return false
	}
	a.checkResult(e, m, want)
	for _, o := range got.others {
		var p struct {
			Token string `json:"progressToken"`
		}
		switch {
		case o.Method == "notifications/tools/list_changed":
		case o.Method == "notifications/progress" && json.Unmarshal(o.Params, &p) == nil && (p.Token == e.tag || a.mixed()):
		default:
			a.w.ledger.defect(e, "%s %s came before the result", o.Method, o.Params)
		}
	}
	return true
}

// checkResult checks the result of a call, which has the text that is wanted, if any.
func (a *agent) checkResult(e *entry, m *message, want string) {
	var r struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		IsError bool `json:"isError"`
	}
	switch err := json.Unmarshal(m.Result, &r); {
	case err != nil || len(r.Content) != 1 || r.Content[0].Type != "text" || r.IsError:
		a.w.ledger.defect(e, "the result is %.300s", m.Result)
	case want != "" && r.Content[0].Text != want:
		a.w.ledger.defect(e, "the result is %.300q, want %.300q", r.Content[0].Text, want)
	}
}

// mixed reports whether the backend doesn't tell its clients apart, so that notices for one of them come to another.
func (a *agent) mixed() bool { return a.server == "stateless" }

// arguments are those for a call, and the text that the result must have, "" if any.
func (a *agent) arguments(e *entry) (args json.RawMessage, want string) {
	tag, n := strconv.Quote(e.tag), a.n
	switch e.tool {
	case "echo":
		text := e.tag
		if n%3 == 0 { // what doesn't fit into one piece can break in the middle
			text += strings.Repeat(" and so on", a.rng.IntN(8000))
		}
		return json.RawMessage(fmt.Sprintf(`{"tag":%s,"text":%q,"times":1}`, tag, text)), text
	case "add":
		return json.RawMessage(fmt.Sprintf(`{"tag":%s,"a":%d,"b":1}`, tag, n)), strconv.Itoa(n + 1)
	case "multiply":
		return json.RawMessage(fmt.Sprintf(`{"tag":%s,"a":%d,"b":2}`, tag, n)), strconv.Itoa(2 * n)
	case "balance", "set_limit":
		args := fmt.Sprintf(`{"tag":%s,"limit":%d}`, tag, n)
		return json.RawMessage(args), args
	case "slow":
		return json.RawMessage(fmt.Sprintf(`{"tag":%s,"ms":%d}`, tag, 1+a.rng.IntN(700))), "slow"
	case "progress":
		return json.RawMessage(fmt.Sprintf(`{"tag":%s,"steps":%d}`, tag, 1+a.rng.IntN(4))), "done"
	case "transfer":
		return json.RawMessage(fmt.Sprintf(`{"tag":%s,"amount":%d}`, tag, n)), "transferred"
	default:
		return json.RawMessage(fmt.Sprintf(`{"tag":%s}`, tag)), ""
	}
}

// giveUp calls a tool and doesn't wait long.
func (a *agent) giveUp(tool string) {
	e, id := a.request("tools/call", tool)
	args, _ := a.arguments(e)
	a.caller.patience = between(a.rng, time.Millisecond, 200*time.Millisecond)
	m, got, err := a.caller.ask(id, e.method, map[string]any{"name": tool, "arguments": args})
	a.caller.patience = patience
	if errors.Is(err, errSilent) {
		a.w.ledger.end(e, left, nil)
		return
	}
	a.ended(e, m, got, err)
}

// cancel calls a tool and cancels the call, as the protocol wants it. Then it needs no response.
func (a *agent) cancel(tool string) {
	e, id := a.request("tools/call", tool)
	args, _ := a.arguments(e)
	other := &agent{w: a.w, server: a.server, name: a.name, caller: a.caller, rng: random(a.w.seed, a.n)}
	other.caller.c = nil
	told := make(chan struct{})
	delay := between(a.rng, 0, 300*time.Millisecond)
	go func() {
		defer close(told)
		time.Sleep(delay)
		other.notify("notifications/cancelled", `{"requestId":`+id+`}`)
		other.caller.hangUp()
	}()
	if a.streams() { // perhaps nothing comes any more
		a.caller.patience = delay + time.Second
	}
	m, got, err := a.caller.ask(id, e.method, map[string]any{"name": tool, "arguments": args})
	a.caller.patience = patience
	<-told
	// Nothing keeps the stream of a sidecar that stops for what was cancelled.
	if _, broke := errors.AsType[connectionError](err); a.streams() && (errors.Is(err, errSilent) || broke && a.w.time.stopped(e.began)) {
		a.w.ledger.end(e, left, nil)
		return
	}
	if err != nil && got.answer == nil && (got.status == http.StatusAccepted || got.status == http.StatusOK) {
		if _, broke := errors.AsType[connectionError](err); !broke {
			a.w.ledger.end(e, left, nil)
			return
		}
	}
	a.ended(e, m, got, err)
}

// toolset has the definition of each tool by name, with its keys in order.
type toolset map[string]string

// toolsOf reads the result of tools/list.
func toolsOf(raw json.RawMessage) (toolset, error) {
	var r struct {
		Tools      []map[string]any `json:"tools"`
		NextCursor string           `json:"nextCursor"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	tools := toolset{}
	for _, tool := range r.Tools {
		text, err := json.Marshal(tool)
		if err != nil {
			return nil, err
		}
		tools[fmt.Sprint(tool["name"])] = string(text)
	}
	if len(tools) != len(r.Tools) || r.NextCursor != "" {
		return nil, fmt.Errorf("there is more than one of a kind, or of the pages: %.300s", raw)
	}
	return tools, nil
}

// list asks for the tools, and returns the version that they are, "" without a result.
func (a *agent) list() string {
	e, id := a.request("tools/list", "")
	m, got, err := a.caller.ask(id, e.method, nil)
	waited := a.waited
	a.waited = 0
	if !a.ended(e, m, got, err) {
		return ""
	}
	tools, err := toolsOf(m.Result)
	if err != nil {
		a.w.ledger.defect(e, "%v", err)
		return ""
	}
	for version, want := range a.w.tools[a.revision()] {
		if maps.Equal(tools, want) {
			return version
		}
	}
	// A list that isn't complete yet is answered only to those who have waited for it as long as they may.
	if held := e.ended.Sub(e.began); held+waited < a.w.server(a.server).at().hold {
		a.w.ledger.defect(e, "%d tools are those of no version, after %v", len(tools), held)
	}
	return ""
}

// ping sends a ping.
func (a *agent) ping() {
	e, id := a.request("ping", "")
	m, got, err := a.caller.ask(id, e.method, nil)
	a.ended(e, m, got, err)
}

// work is what a client does all the time until the world ends.
func (a *agent) work() {
	for !a.w.ending(between(a.rng, 5*time.Millisecond, 120*time.Millisecond)) {
		if !a.handshake() {
			continue
		}
		switch n := a.rng.IntN(100); {
		case a.caller.old == batching && n%3 > 0:
			a.batch()
		case n < 22:
			a.call("transfer")
		case n < 35:
			a.call("balance")
		case n < 45:
			a.call("set_limit")
		case n < 52:
			a.call("echo")
		case n < 59:
			a.call("add")
		case n < 62:
			a.call("multiply")
		case n < 64:
			a.call("count")
		case n < 69:
			a.call("slow")
		case n < 75:
			a.call("progress")
		case n < 85:
			a.list()
		case n < 88 && !a.caller.modern:
			a.ping()
		case n < 91:
			a.giveUp("transfer")
		case n < 93:
			a.giveUp("slow")
		case n < 95 && !a.caller.modern:
			a.cancel("slow")
		case n < 96 && !a.caller.modern:
			a.leave()
		case n < 97:
			a.w.ending(between(a.rng, sessionIdle, 2*sessionIdle)) // long enough to be forgotten
		default:
			a.caller.hangUp()
		}
	}
}

// prove shows that the client isn't stuck: a call and a listing work at once, and the tools are those of the version.
func (a *agent) prove(version string) {
	deadline := time.Now().Add(soon)
	for !a.handshake() {
		if time.Now().After(deadline) {
			a.w.ledger.defect(nil, "%s: no session can be had", a.name)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	if !a.call("balance") {
		a.w.ledger.defect(nil, "%s: a call fails although all is well", a.name)
	}
	if got := a.list(); got != version {
		a.w.ledger.defect(nil, "%s: the tools are those of %q, want %q", a.name, got, version)
	}
	if took := time.Since(deadline.Add(-soon)); took > soon {
		a.w.ledger.defect(nil, "%s: that took %v", a.name, took)
	}
}

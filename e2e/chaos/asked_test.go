//go:build chaos && unix

package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// asked is the part of a listener that answers what its backend asks: one question after the other, and not at once. So
// an answer may come when the process is another one, which has asked something with the same id.
type asked struct {
	to   caller // where answers are posted
	done sync.WaitGroup

	mu      sync.Mutex
	rng     *rand.Rand
	tag     string   // of the call under way, which is what it is asked about
	answers []string // to be posted
	running bool
}

// take takes a request of the backend.
func (q *asked) take(w *world, m message) error {
	if m.Method != "sampling/createMessage" {
		return fmt.Errorf("the backend asks for %s", m.Method)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answers = append(q.answers, fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%s,"result":{"role":"assistant","model":"none","content":{"type":"text","text":%q}}}`, m.ID, answerTo(q.tag)))
	if !q.running {
		q.running = true
		q.done.Go(func() { q.answer(w) })
	}
	return nil
}

// answerTo is the answer to what is asked during a call.
func answerTo(tag string) string { return "about " + tag }

// answer posts all answers.
func (q *asked) answer(w *world) {
	for {
		q.mu.Lock()
		if len(q.answers) == 0 {
			q.to.hangUp()
			q.running = false
			q.mu.Unlock()
			return
		}
		next := q.answers[0]
		q.answers = q.answers[1:]
		delay := between(q.rng, 0, 600*time.Millisecond)
		q.mu.Unlock()
		time.Sleep(delay)
		began := time.Now()
		// Whether it is of any use then is for the call to say.
		if _, err := q.to.post(next); err != nil && !w.excuses(err, began) {
			w.ledger.defect(nil, "answering what the backend asks: %v: %s", err, next)
		}
	}
}

// canBeAsked reports whether the backend asks its clients for something.
func (l *listener) canBeAsked() bool {
	return !l.caller.modern && (l.server == "stateful" || l.server == "stdio")
}

// sample calls a tool that asks its client. It needn't end: a question or an answer may be lost with its connection.
func (l *listener) sample() {
	e, id := l.request("tools/call", "sample")
	l.asked.mu.Lock()
	l.asked.tag = e.tag
	l.asked.mu.Unlock()
	l.caller.patience = 3 * time.Second
	m, got, err := l.caller.ask(id, e.method, map[string]any{"name": e.tool, "arguments": map[string]any{"tag": e.tag}})
	l.caller.patience = patience
	if errors.Is(err, errSilent) {
		l.w.ledger.end(e, left, nil)
		return
	}
	// A sidecar that was replaced can't tell the answers to the process before.
	want := answerTo(e.tag)
	if l.w.time.stopped(e.began.Add(-time.Second)) {
		want = ""
	}
	if l.ended(e, m, got, err) {
		l.checkResult(e, m, want)
	}
}

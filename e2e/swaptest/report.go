//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// bound is how long a scenario may take beyond what its clients wait for, when everything goes wrong.
const bound = 2 * time.Minute

// What comes of a scenario.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "n/a"
)

// result is what came of one scenario.
type result struct {
	Scenario string  `json:"scenario"`
	Asks     string  `json:"asks"`
	Result   string  `json:"result"`
	Why      string  `json:"why,omitempty"`
	Seconds  float64 `json:"seconds"`
}

// report is what came of all.
type report struct {
	URL           string   `json:"url"`
	Command       []string `json:"command"`
	Results       []result `json:"results"`
	Passed        int      `json:"passed"`
	Failed        int      `json:"failed"`
	NotApplicable int      `json:"notApplicable"`
}

// all runs scenarios, several at a time if that was asked for. An error says that the proxy didn't start.
func (o *options) all(ctx context.Context, dir string, chosen []scenario) (report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := report{URL: o.URL, Command: o.Command, Results: make([]result, len(chosen))}
	var wg sync.WaitGroup
	var says sync.Mutex
	slots := make(chan struct{}, o.Parallel)
	for i, s := range chosen {
		slots <- struct{}{}
		if ctx.Err() != nil {
			<-slots
			break
		}
		if o.Parallel == 1 {
			fmt.Fprintf(o.stderr, "%s …\n", s.name)
		}
		wg.Go(func() {
			defer func() { <-slots }()
			began := time.Now()
			text, err := o.one(ctx, dir, s)
			res := result{Scenario: s.name, Asks: s.asks, Result: passed, Seconds: float64(time.Since(began).Milliseconds()) / 1000}
			if na, ok := errors.AsType[notApplicableError](err); ok {
				res.Result, res.Why = skipped, oneLine(na.why)
			} else if err != nil {
				res.Result, res.Why = failed, oneLine(err.Error())
			}
			says.Lock()
			defer says.Unlock()
			if r.fatal(err) {
				cancel(err)
			}
			if ctx.Err() != nil {
				return
			}
			r.Results[i] = res
			switch res.Result {
			case passed:
				r.Passed++
			case failed:
				r.Failed++
			default:
				r.NotApplicable++
			}
			fmt.Fprintf(o.stderr, "%s: %s (%.1f s)\n", s.name, res.Result, res.Seconds)
			if o.Verbose && res.Result == failed {
				fmt.Fprintf(o.stderr, "The last that the proxy wrote:\n%s\n", text)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return r, cause
		}
		return r, errors.New("interrupted")
	}
	return r, nil
}

// fatal reports whether after this error nothing can be said about any scenario. That the proxy doesn't start is, until
// it has started once.
func (r report) fatal(err error) bool {
	_, start := errors.AsType[startError](err)
	_, setup := errors.AsType[setupError](err)
	_, usage := errors.AsType[usageError](err)
	return setup || usage || start && r.Passed+r.Failed+r.NotApplicable == 0
}

// one runs one scenario with a proxy and a backend of its own, and returns the last that the proxy wrote.
func (o *options) one(ctx context.Context, dir string, s scenario) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, bound+o.Start+o.Away+4*o.Patience)
	defer cancel()
	place := filepath.Join(dir, s.name)
	if err := os.Mkdir(place, 0o700); err != nil {
		return "", err
	}
	w, err := o.open(ctx, place, s.args...)
	defer w.close()
	if err == nil {
		err = s.run(ctx, w)
	}
	if w.proxy != nil {
		output = w.proxy.output()
		_, na := errors.AsType[notApplicableError](err)
		if _, start := errors.AsType[startError](err); err != nil && !na && !start && w.proxy.ended() {
			err = fmt.Errorf("%w (the proxy's process has ended)", err)
		}
	}
	return output, err
}

// print prints the report.
func (r report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	for _, s := range r.Results {
		if _, err := fmt.Fprintf(out, "%-4s  %-14s  %s\n", s.Result, s.Scenario, s.Asks); err != nil {
			return err
		}
		if s.Why != "" {
			fmt.Fprintf(out, "%20s  → %s\n", "", s.Why)
		}
	}
	_, err := fmt.Fprintf(out, "\n%d passed, %d failed, %d not applicable\n", r.Passed, r.Failed, r.NotApplicable)
	return err
}

package health

import (
	"context"
	"slices"
	"strings"
	"time"
)

// settling is how far the tools of the process are known.
type settling struct {
	fresh bool     // nothing settled since the swap, or the start
	last  *Toolset // the last that settled, ever
	names []string // its tools, sorted
	shown *Toolset // what settled events tell; nil while the tools can't be known

	candidate *candidate // a new hash that has to last

	nextList    time.Time
	listedAt    time.Time // when the last listing began
	listFails   int       // in a row
	failedSince time.Time
	failedWith  Reason

	notices  pace // what the backend said
	suspects pace // what others said
	byClient clientHashes
}

// candidate is a toolset that differs from the last good one.
type candidate struct {
	tools Toolset
	since time.Time     // end of the first listing that showed it
	wait  time.Duration // before the next listing
	cause string        // what it is a change by, if no swap came before
}

// unsettle begins anew with another process.
func (s *settling) unsettle() {
	s.fresh, s.shown, s.candidate = true, nil, nil
	s.listFails, s.failedSince, s.failedWith = 0, time.Time{}, ""
	s.notices, s.suspects = pace{}, pace{}
}

// listDue returns when the next listing is due.
func (c *Checker) listDue() time.Time {
	if c.opaque.Load() {
		return time.Now().Add(c.cfg.ListInterval)
	}
	if !c.notices.due.IsZero() && c.notices.due.Before(c.nextList) {
		return c.notices.due
	}
	return c.nextList
}

// listTools lists the tools once.
func (c *Checker) listTools(ctx context.Context) {
	began := time.Now()
	c.listedAt = began
	losses := c.box.lossCount()
	raw, err := c.backend.list(ctx)
	if ctx.Err() != nil || c.quiesced.Load() {
		return
	}
	counted := err != nil
	var ts Toolset
	switch {
	case err != nil:
	case c.box.lossCount() != losses:
		err = failure(ProbeList, ReasonSwapped, "the process went away while it listed its tools")
	default:
		ts, err = HashTools(raw, HashOptions{IncludeMeta: c.cfg.IncludeMeta, MaxTools: c.cfg.MaxTools})
	}
	if err != nil {
		if !counted {
			c.metrics.probesFailed.WithLabelValues(c.cfg.Server, ProbeList, string(reasonOf(err))).Inc()
		}
		c.listFailed(err)
		return
	}
	ts.ServerName, ts.ServerVersion, ts.ListedAt = c.server.name, c.server.version, began
	c.listed(ts, began)
}

// listed decides what a good listing means.
func (c *Checker) listed(ts Toolset, began time.Time) {
	now := time.Now()
	same := ts.Hash == c.lastHash()
	byNotice := c.notices.listed(began, same, c.quiet(), c.cfg.ListInterval)
	c.suspects.listed(began, same, 0, c.cfg.ListInterval)
	c.listFails, c.failedSince, c.failedWith = 0, time.Time{}, ""
	if same {
		c.candidate = nil
		c.accept(ts, "")
		return
	}
	if c.candidate == nil || c.candidate.tools.Hash != ts.Hash {
		c.candidate = &candidate{since: now, wait: c.cfg.Settle, cause: ChangeSilent}
		if byNotice {
			c.candidate.cause = ChangeByListChanged
		}
	}
	k := c.candidate
	k.tools = ts
	need := c.patience(&ts)
	if began.Sub(k.since) >= need {
		c.accept(ts, k.cause)
		return
	}
	const slowest = time.Second
	c.nextList = earlier(now.Add(k.wait), k.since.Add(need))
	k.wait = max(c.cfg.Settle, min(2*k.wait, slowest))
}

// patience is how long a toolset must stay as it is.
func (c *Checker) patience(ts *Toolset) time.Duration {
	switch {
	case !c.fresh:
		return c.cfg.Settle
	case len(ts.Tools) == 0:
		return max(c.cfg.Settle, c.cfg.EmptyGrace)
	case ts.lacks(c.names):
		return max(c.cfg.Settle, c.cfg.ShrinkGrace)
	default:
		return c.cfg.Settle
	}
}

func (c *Checker) lastHash() string {
	if c.last != nil {
		return c.last.Hash
	}
	return c.cfg.LastHash
}

// accept makes a toolset the settled one.
func (c *Checker) accept(ts Toolset, cause string) {
	before, hashBefore := c.last, c.lastHash()
	if c.fresh {
		cause = ChangeByRestart
	}
	news := c.state != Settled || c.shown == nil
	c.last, c.shown, c.names = &ts, &ts, ts.names()
	c.candidate, c.fresh = nil, false
	c.nextList = time.Now().Add(c.cfg.ListInterval)
	c.state = Settled
	c.metrics.settled(c.cfg.Server, &ts)
	if hashBefore == "" || hashBefore == ts.Hash {
		if news {
			c.log.Info("the tools are settled", "hash", ts.Hash, "tools", len(ts.Tools))
			c.emit(nil, "")
		}
		return
	}
	var changes []Change
	if before != nil {
		changes = Diff(*before, ts)
	}
	c.metrics.changed(c.cfg.Server, cause)
	c.logChange(&ts, changes, cause)
	c.emit(changes, cause)
}

func (c *Checker) logChange(ts *Toolset, changes []Change, cause string) {
	byKind := map[string][]string{}
	breaking := false
	for _, ch := range changes {
		byKind[ch.Kind] = append(byKind[ch.Kind], shorten(ch.Tool))
		breaking = breaking || ch.Breaking
	}
	list := func(kind string) string {
		const most = 20
		names := byKind[kind]
		if len(names) > most {
			names = append(slices.Clone(names[:most]), "…")
		}
		return strings.Join(names, " ")
	}
	c.log.Info("the tools changed", "hash", ts.Hash, "tools", len(ts.Tools), "cause", cause, "breaking", breaking,
		"added", list(ChangeAdded), "removed", list(ChangeRemoved), "changed", list(ChangeChanged))
}

// listFailed keeps what was known, and tries again. A process whose list stays unusable must not keep everybody waiting.
func (c *Checker) listFailed(err error) {
	now := time.Now()
	reason := reasonOf(err)
	if c.failedSince.IsZero() {
		c.failedSince = now
	}
	if reason != c.failedWith {
		c.log.Warn("cannot list the tools, keeping the last good ones", "reason", string(reason), "err", err)
		c.failedWith = reason
	}
	c.notices.due = time.Time{}
	c.listFails++
	slowest := c.cfg.ListInterval
	patience := c.cfg.EmptyGrace
	switch reason {
	case ReasonRefused, ReasonReset, ReasonSessionLost, ReasonSwapped, ReasonTimeout:
		if c.listFails == 1 {
			c.nextProbe = now // this says more about the process than about its tools
		}
	case ReasonUnauthorized:
		patience = 0
	case ReasonDuplicateName, ReasonRepeatedCursor, ReasonTooLarge, ReasonTooMany, ReasonInvalid:
		patience = c.cfg.ShrinkGrace
	default:
	}
	if c.state == Ready {
		if now.Sub(c.failedSince) >= patience {
			c.settleUnknown(reason)
		} else {
			slowest = min(slowest, time.Second)
		}
	}
	const doublings = 16
	c.nextList = now.Add(min(c.cfg.Settle<<min(c.listFails-1, doublings), slowest))
}

// settleUnknown lets everybody go on without a list of the process's tools: with the last good one, or with none where the
// probe may not see it.
func (c *Checker) settleUnknown(reason Reason) {
	if c.state != Ready {
		return
	}
	c.shown = c.last
	if reason == ReasonUnauthorized && c.fresh {
		c.shown = nil
	}
	c.state = Settled
	c.log.Warn("going on without a list of the tools", "reason", string(reason))
	c.emit(nil, "")
}

package health

import "time"

// pace slows down listings that somebody else causes, as long as they show nothing new. Otherwise a server that says
// list_changed whenever it is asked for its list would keep the two busy forever.
type pace struct {
	same  int       // listings in a row, caused by this, that showed the known hash
	heard time.Time // the last report
	first time.Time // the first report that no listing followed yet
	due   time.Time // when to list; zero: no need
}

// hear notes a report. After a long silence it counts as the first one.
func (p *pace) hear(at time.Time, forget time.Duration) {
	if at.Sub(p.heard) > forget {
		p.same = 0
	}
	p.heard = at
	if p.first.IsZero() {
		p.first = at
	}
}

// listed takes note of a listing that began then and showed the known hash or another one. It reports whether reports came
// before it. A listing that began too soon after the last of them may have been too early to see what they are about, so that
// another one follows.
func (p *pace) listed(began time.Time, same bool, quiet, slowest time.Duration) (reported bool) {
	if p.first.IsZero() {
		return false
	}
	if same {
		p.same++
	} else {
		p.same = 0
	}
	early := began.Sub(p.heard) < quiet
	p.first, p.due = time.Time{}, time.Time{}
	if early {
		p.first = began
		p.due = later(p.heard.Add(quiet), began.Add(p.delay(slowest)))
	}
	return true
}

// delay is the time from one fruitless listing to the next.
func (p *pace) delay(slowest time.Duration) time.Duration {
	const (
		first  = 2 * time.Second
		factor = 2 // as a shift: four times
		most   = 8
	)
	if p.same == 0 {
		return 0
	}
	return min(first<<(factor*min(p.same-1, most)), slowest)
}

// quiet is how long the backend must say nothing more before its notice is acted on.
func (c *Checker) quiet() time.Duration { return c.cfg.Settle / 2 }

// heard plans a listing for a notice of the backend: at the end of a burst, to see its last change, but not later than some
// settle times after its beginning.
func (c *Checker) heard(at time.Time) {
	if at.IsZero() {
		return
	}
	const longest = 10
	c.notices.hear(at, 2*c.cfg.ListInterval)
	if k := c.candidate; k != nil {
		// The confirming listing does it.
		k.cause = ChangeByListChanged
		c.nextList = later(c.nextList, earlier(at.Add(c.quiet()), k.since.Add(longest*c.cfg.Settle)))
		return
	}
	c.notices.due = later(
		earlier(at.Add(c.quiet()), c.notices.first.Add(longest*c.cfg.Settle)),
		c.listedAt.Add(c.notices.delay(c.cfg.ListInterval)),
	)
}

// suspected plans a listing because somebody asked for a look: now, or a while after the last one that showed nothing new.
func (c *Checker) suspected(now time.Time) {
	c.suspects.hear(now, 2*c.cfg.ListInterval)
	c.nextList = earlier(c.nextList, later(now, c.listedAt.Add(c.suspects.delay(c.cfg.ListInterval))))
}

func earlier(x, y time.Time) time.Time {
	if x.Before(y) {
		return x
	}
	return y
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

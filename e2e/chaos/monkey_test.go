//go:build chaos && unix

package chaos

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// torment lets a backend and its wire fail until the time is over.
func (b *backend) torment(until time.Time) {
	for time.Now().Before(until) {
		b.misfortune()
		pause := between(b.rng, 100*time.Millisecond, 2500*time.Millisecond)
		if b.rng.IntN(5) == 0 {
			pause = between(b.rng, 3*time.Second, 7*time.Second) // time to settle
		}
		time.Sleep(pause)
	}
	b.calm()
}

// calm lets everything go on.
func (b *backend) calm() {
	b.w.time.note("%s: calm", b.mode)
	b.wire.setWeather(weather{})
	b.wire.each(100, (*pipe).reset)
}

// misfortune is one thing that happens.
func (b *backend) misfortune() {
	const all = 100
	note := func(what string, n int) { b.w.time.note("%s: %s of %d connections", b.mode, what, n) }
	percent := []int{20, 50, 100}[b.rng.IntN(3)]
	switch n := b.rng.IntN(100); {
	case n < 16:
		b.end(syscall.SIGKILL)
		b.restart()
	case n < 28:
		b.end(syscall.SIGTERM)
		b.restart()
	case n < 31, b.hold == longHold && n < 35: // for longer than anybody waits, perhaps
		b.end(syscall.SIGKILL)
		time.Sleep(between(b.rng, b.hold, b.holdCall+2*time.Second))
		b.restart()
	case n < 35: // crash upon crash
		for range 2 + b.rng.IntN(3) {
			b.end(syscall.SIGKILL)
			b.start(b.version)
			time.Sleep(between(b.rng, 0, 300*time.Millisecond))
		}
	case n < 46:
		d := between(b.rng, 50*time.Millisecond, 4*time.Second)
		b.w.time.note("%s: freeze for %v", b.mode, d)
		b.p.Freeze()
		time.Sleep(d)
		if b.rng.IntN(4) == 0 {
			b.end(syscall.SIGKILL)
			b.restart()
			return
		}
		b.p.Thaw()
	case n < 52:
		b.offer(b.other())
	case n < 60:
		note("reset", b.wire.each(percent, (*pipe).reset))
	case n < 68:
		note("reset of the sidecar's side", b.wire.each(percent, (*pipe).resetSidecar))
	case n < 75:
		note("end of what comes back", b.wire.each(percent, func(p *pipe) { p.down.end() }))
	case n < 80:
		note("end of what goes there", b.wire.each(percent, func(p *pipe) { p.up.end() }))
	case n < 92:
		b.stall(percent)
	case n < 97:
		now := weather{delay: between(b.rng, time.Millisecond, 50*time.Millisecond), cut: 10 + b.rng.IntN(40)}
		b.w.time.note("%s: weather %+v", b.mode, now)
		b.wire.setWeather(now)
		time.Sleep(between(b.rng, time.Second, 3*time.Second))
		b.wire.setWeather(weather{})
	default:
		note("reset, again and again,", b.wire.each(all, (*pipe).reset))
		for range 10 {
			time.Sleep(between(b.rng, 0, 100*time.Millisecond))
			b.wire.each(all, (*pipe).reset)
		}
	}
}

// stall holds back what is on some connections, and what becomes of them then.
func (b *backend) stall(percent int) {
	var stalled []*pipe
	which := b.rng.IntN(3)
	n := b.wire.each(percent, func(p *pipe) {
		if which != 0 {
			p.up.stall()
		}
		if which != 1 {
			p.down.stall()
		}
		stalled = append(stalled, p)
	})
	d := between(b.rng, 50*time.Millisecond, 3*time.Second)
	then := []string{"go on", "reset", "late", "swap"}[b.rng.IntN(4)]
	b.w.time.note("%s: stall of %d connections (%d) for %v, then %s", b.mode, n, which, d, then)
	time.Sleep(d)
	switch then {
	case "swap":
		b.end(syscall.SIGKILL)
		b.restart()
	case "late": // the sidecar knows that it is lost before the backend gets it
		for _, p := range stalled {
			p.resetSidecar()
		}
		time.Sleep(between(b.rng, 0, time.Second))
	}
	for _, p := range stalled {
		if then == "reset" {
			p.reset()
		}
		p.up.goOn()
		p.down.goOn()
	}
}

// restart starts a process, often of another version, and not always a quick one.
func (b *backend) restart() {
	if b.rng.IntN(3) > 0 {
		time.Sleep(between(b.rng, 0, 2*time.Second))
	}
	version := []string{"v1", "v2"}[b.rng.IntN(2)]
	var args []string
	some := func(flag string) {
		if b.rng.IntN(4) == 0 {
			args = append(args, flag, between(b.rng, 50*time.Millisecond, slowest).String())
		}
	}
	some("-closed")
	some("-unavailable")
	some("-empty")
	if b.rng.IntN(2) == 0 {
		args = append(args, "-unavailable-status", "404")
	}
	if b.mode == "stateful" && b.rng.IntN(3) == 0 {
		args = append(args, "-reject-until-initialized")
	}
	if b.mode != "stateless" && b.rng.IntN(2) == 0 { // the ways of saying that a session isn't known
		args = append(args, "-unknown-session", []string{"404", "400", "401", "503", "200error"}[b.rng.IntN(5)])
	}
	b.start(version, args...)
}

// torment restarts, freezes and configures the sidecar now and then.
func (s *sidecar) torment(until time.Time, rng *rand.Rand) {
	for {
		next := time.Now().Add(between(rng, 8*time.Second, 20*time.Second))
		if next.After(until.Add(-5 * time.Second)) {
			return
		}
		time.Sleep(time.Until(next))
		switch rng.IntN(5) {
		case 4:
			s.w.time.note("sidecar: another configuration")
			s.configure()
			s.p.Signal(syscall.SIGHUP)
			continue
		case 0:
			d := between(rng, 50*time.Millisecond, time.Second)
			s.w.time.note("sidecar: freeze for %v", d)
			s.p.Freeze()
			time.Sleep(d)
			s.p.Thaw()
			continue
		case 1:
			s.end(syscall.SIGTERM)
		default:
			s.end(syscall.SIGKILL)
		}
		time.Sleep(between(rng, 0, time.Second))
		s.again()
	}
}

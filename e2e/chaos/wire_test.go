//go:build chaos && unix

package chaos

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// wire is what lies between the sidecar and one backend: it carries bytes, and breaks in the ways in which TCP does.
// Nobody listens on its address while the backend doesn't listen either.
type wire struct {
	t        *testing.T
	addr, to string

	mu       sync.Mutex
	listener *net.TCPListener
	pipes    map[*pipe]struct{}
	weather  weather
	rng      *rand.Rand
	wg       sync.WaitGroup
}

// weather is what happens to connections by themselves.
type weather struct {
	delay time.Duration // each piece is late by up to this
	cut   int           // of a hundred new connections so many break off after some bytes
}

func newWire(t *testing.T, to string, rng *rand.Rand) *wire {
	t.Helper()
	w := &wire{t: t, addr: proc.ReserveAddr(t), to: to, pipes: map[*pipe]struct{}{}, rng: rng}
	t.Cleanup(func() {
		w.shut()
		w.each(100, (*pipe).reset)
		w.wg.Wait()
	})
	return w
}

// open lets connections in.
func (w *wire) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		return
	}
	addr, err := net.ResolveTCPAddr("tcp", w.addr)
	if err != nil {
		w.t.Error(err)
		return
	}
	listener, err := net.ListenTCP("tcp", addr)
	if err != nil {
		w.t.Errorf("listening in front of a backend: %v", err)
		return
	}
	w.listener = listener
	w.wg.Go(func() {
		for {
			c, err := listener.AcceptTCP()
			if err != nil {
				return
			}
			w.wg.Go(func() { w.carry(c) })
		}
	})
}

// shut refuses connections. Those that are there stay.
func (w *wire) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		_ = w.listener.Close()
		w.listener = nil
	}
}

func (w *wire) setWeather(now weather) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.weather = now
}

// each does something to so many of a hundred connections, and returns how many that were.
func (w *wire) each(percent int, f func(*pipe)) int {
	w.mu.Lock()
	var chosen []*pipe
	for p := range w.pipes {
		if w.rng.IntN(100) < percent {
			chosen = append(chosen, p)
		}
	}
	w.mu.Unlock()
	for _, p := range chosen {
		f(p)
	}
	return len(chosen)
}

// carry carries one connection to its end.
func (w *wire) carry(sidecar *net.TCPConn) {
	to, err := net.ResolveTCPAddr("tcp", w.to)
	if err != nil {
		w.t.Error(err)
		return
	}
	backend, err := net.DialTCP("tcp", nil, to)
	if err != nil { // it has just gone
		_ = sidecar.SetLinger(0)
		_ = sidecar.Close()
		return
	}
	p := &pipe{sidecar: sidecar, backend: backend, gone: make(chan struct{})}
	w.mu.Lock()
	for _, h := range []*half{&p.up, &p.down} {
		h.p, h.left = p, -1
		h.delay = w.weather.delay
		h.rng = rand.New(rand.NewPCG(w.rng.Uint64(), 0))
		if w.rng.IntN(100) < w.weather.cut {
			h.left = w.rng.IntN(3000)
		}
	}
	p.up.from, p.up.to = p.sidecar, p.backend
	p.down.from, p.down.to = p.backend, p.sidecar
	w.pipes[p] = struct{}{}
	w.mu.Unlock()

	var both sync.WaitGroup
	both.Go(p.up.copy)
	both.Go(p.down.copy)
	both.Wait()
	w.mu.Lock()
	delete(w.pipes, p)
	w.mu.Unlock()
	_ = p.sidecar.Close()
	_ = p.backend.Close()
}

// pipe is one connection of the sidecar, and the one to the backend that belongs to it.
type pipe struct {
	sidecar, backend *net.TCPConn
	up, down         half // to the backend, to the sidecar
	once             sync.Once
	gone             chan struct{} // closed when both are reset
	oneSided         atomic.Bool   // the sidecar's was reset, and the backend doesn't know
}

// reset resets both.
func (p *pipe) reset() {
	p.once.Do(func() {
		close(p.gone)
		for _, c := range []*net.TCPConn{p.sidecar, p.backend} {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	})
}

// resetSidecar resets the sidecar's connection only. What has come for the backend still reaches it.
func (p *pipe) resetSidecar() {
	p.oneSided.Store(true)
	_ = p.sidecar.SetLinger(0)
	_ = p.sidecar.Close()
}

// half is one direction.
type half struct {
	p        *pipe
	from, to *net.TCPConn
	delay    time.Duration
	rng      *rand.Rand

	mu      sync.Mutex
	left    int           // bytes that still pass before it breaks off; negative: all
	ended   bool          // a FIN was sent early: what follows is lost
	stalled chan struct{} // closed when it goes on
}

// end sends a FIN. What follows is lost.
func (h *half) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	_ = h.to.CloseWrite()
}

// stall holds everything back, until goOn.
func (h *half) stall() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stalled == nil {
		h.stalled = make(chan struct{})
	}
}

func (h *half) goOn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stalled != nil {
		close(h.stalled)
		h.stalled = nil
	}
}

// pass waits as long as the direction is held back.
func (h *half) pass() {
	h.mu.Lock()
	stalled := h.stalled
	h.mu.Unlock()
	if stalled != nil {
		select {
		case <-stalled:
		case <-h.p.gone:
		}
	}
	if h.delay > 0 {
		time.Sleep(between(h.rng, 0, h.delay))
	}
}

// take returns how many of n bytes pass still.
func (h *half) take(n int) (passing int, cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return 0, false
	case h.left < 0:
		return n, false
	case n < h.left:
		h.left -= n
		return n, false
	default:
		return h.left, true
	}
}

// copy carries bytes until one side ends or breaks the connection.
func (h *half) copy() {
	buf := make([]byte, 16<<10)
	for {
		n, err := h.from.Read(buf)
		if n > 0 {
			h.pass()
			passing, cut := h.take(n)
			if passing > 0 {
				if _, err := h.to.Write(buf[:passing]); err != nil {
					h.p.reset()
					return
				}
			}
			// Half a request and no more would be the work of something that speaks HTTP, and badly.
			if cut && (h == &h.p.up || h.rng.IntN(2) == 0) {
				h.p.reset()
				return
			} else if cut {
				h.end()
			}
		}
		switch {
		case errors.Is(err, io.EOF), err != nil && h == &h.p.up && h.p.oneSided.Load():
			h.pass()
			_ = h.to.CloseWrite()
			return
		case err != nil:
			h.p.reset()
			return
		}
	}
}

package http1

import "sync"

// bufferSize is the capacity of a buffer at first: it holds the head and the body of
// an ordinary request, or the answer to one.
const bufferSize = 4 << 10

// keepBuffer is the size from which on a buffer isn't kept for others.
const keepBuffer = 64 << 10

// Buffers are shared by connections, so that one that waits holds as few as possible.
// They are safe for concurrent use.
type Buffers struct{ pool sync.Pool }

// Get returns a buffer of length 0.
func (p *Buffers) Get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}

	b := make([]byte, 0, bufferSize)

	return &b
}

// Put takes a buffer back that nobody uses any more. Large ones aren't kept.
func (p *Buffers) Put(b *[]byte) {
	if cap(*b) <= keepBuffer {
		*b = (*b)[:0]
		p.pool.Put(b)
	}
}

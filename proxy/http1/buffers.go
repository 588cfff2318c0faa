package http1

import "sync"

// bufferSize holds the head and the body of an ordinary request, or the answer to
// one.
const bufferSize = 4 << 10

// keepBuffer is the size from which on a buffer isn't kept for others.
const keepBuffer = 64 << 10

// buffers are shared by all connections, so that one that waits holds as few as
// possible.
type buffers struct{ pool sync.Pool }

// get returns a buffer of length 0.
func (p *buffers) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}

	b := make([]byte, 0, bufferSize)

	return &b
}

func (p *buffers) put(b *[]byte) {
	if cap(*b) <= keepBuffer {
		*b = (*b)[:0]
		p.pool.Put(b)
	}
}

package proxy

// maxAsked bounds the requests of a server that a session remembers.
const maxAsked = 256

// life names a backend session's life: the process it is in, and how often the
// session was re-created.
type life struct {
	process uint64
	renewal uint64
}

// fence remembers which requests a backend has sent to a client and in which life.
// Their ids restart with the process (and the session), so that an answer that
// comes late could be taken for the answer to another request. It is guarded by
// the session's lock.
type fence struct {
	asked map[string][]life // by idKey, oldest first
	count int
}

// ask notes that a request was passed on to the client.
func (f *fence) ask(id []byte, in life) {
	if f.count >= maxAsked {
		f.asked, f.count = nil, 0 // a client that never answers
	}

	if f.asked == nil {
		f.asked = make(map[string][]life)
	}

	k := idKey(id)
	f.asked[k] = append(f.asked[k], in)
	f.count++
}

// answer takes the client's answer to a request and returns the life that the
// request came from. Where several lives used the same id, the earliest request is
// taken to be answered first. An id that was never seen may have been passed on by
// another replica, so it counts as one of the present.
func (f *fence) answer(id []byte, now life) life {
	k := idKey(id)

	lives := f.asked[k]
	if len(lives) == 0 {
		return now
	}

	f.count--

	if len(lives) == 1 {
		delete(f.asked, k)
	} else {
		f.asked[k] = lives[1:]
	}

	return lives[0]
}

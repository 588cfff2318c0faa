package proxy

import "slices"

// expect notes that responses to a message are to come.
func (l *sseLink) expect(m *sseMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	select {
	case <-l.gone:
		return errLinkGone
	default:
	}

	if l.count+m.requests > maxFlights {
		return errHoldFull
	}

	m.pending = 0

	for i := range m.env.messages {
		if e := &m.env.messages[i]; e.kind == kindRequest && !m.isAnswered(e.id) {
			l.flights[idKey(e.id)] = append(l.flights[idKey(e.id)], m)
			l.count++
			m.pending++
		}
	}

	return nil
}

// withdraw makes sure that no more responses to a message are passed on. It
// returns false when all of them were, or are about to be.
func (l *sseLink) withdraw(m *sseMessage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if m.requests > 0 && m.pending == 0 {
		return false
	}

	for i := range m.env.messages {
		key := idKey(m.env.messages[i].id)
		if at := slices.Index(l.flights[key], m); at >= 0 {
			l.remove(key, at)
		}
	}

	return true
}

// remove takes a request out. The caller holds the lock.
func (l *sseLink) remove(key string, at int) {
	l.count--

	if len(l.flights[key]) == 1 {
		delete(l.flights, key)
		return
	}

	l.flights[key] = slices.Delete(l.flights[key], at, at+1)
}

// take takes the message that a response answers, nil when there is none, and
// reports whether it is the last that the message waits for.
func (l *sseLink) take(r *message) (m *sseMessage, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	key := idKey(r.id)
	if len(l.flights[key]) == 0 {
		return nil, false
	}

	m = l.flights[key][0]
	l.remove(key, 0)

	m.pending--
	m.dialog = true

	m.answered = append(m.answered, key)
	m.outcome = outcomeOK

	if r.isError {
		m.outcome = outcomeRPCError
	}

	return m, m.pending == 0
}

// cancel ends what the client cancelled.
func (l *sseLink) cancel(id []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, m := range l.flights[idKey(id)] {
		m.cancel(errCancelled)
	}
}

// converse notes that something went to the client that belongs to the requests
// for which is true.
func (l *sseLink) converse(which func(*message) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, all := range l.flights {
		for _, m := range all {
			for i := range m.env.messages {
				m.dialog = m.dialog || which(&m.env.messages[i])
			}
		}
	}
}

// hasDialog reports whether something of the message, or of what the backend asks
// in answering it, went to the client.
func (l *sseLink) hasDialog(m *sseMessage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return m.dialog
}

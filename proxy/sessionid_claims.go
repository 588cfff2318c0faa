package proxy

import (
	"bytes"
	"compress/flate"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"time"
)

const (
	// maxParams bounds a client's initialize parameters.
	maxParams = 1 << 20
	// deflateFrom is from where compressing parameters begins to pay.
	deflateFrom = 512
)

// sessionClaims is what a session id says. A sidecar that never saw the session
// re-creates it from this alone.
type sessionClaims struct {
	sid          [16]byte // random
	created      time.Time
	server       string
	path         string // of the client's initialize request
	version      string // protocol revision that was agreed on
	conversation string
	agentServer  string
	principal    string // fingerprint of who initialised it
	backend      string // the backend's own session id, "" when it gave none

	params   []byte // initialize parameters, see setParams
	deflated bool
	spilled  bool // backend and params are not in the id but in the store
}

// newSession returns claims with a fresh random sid, created at now (whole
// seconds).
func newSession(now time.Time) sessionClaims {
	c := sessionClaims{created: now.Truncate(time.Second)}
	rand.Read(c.sid[:]) // never fails

	return c
}

// key names the session in maps and in the store. It gives no access to it.
func (c *sessionClaims) key() string { return hex.EncodeToString(c.sid[:]) }

// setParams keeps the client's raw initialize parameters.
func (c *sessionClaims) setParams(raw []byte) error {
	if len(raw) > maxParams {
		return fmt.Errorf("keeping initialize parameters: they have %d bytes, %d are allowed", len(raw), maxParams)
	}

	c.params, c.deflated = raw, false

	if len(raw) < deflateFrom {
		return nil
	}

	var buf bytes.Buffer

	w, err := flate.NewWriter(&buf, flate.BestSpeed)
	if err != nil {
		return fmt.Errorf("keeping initialize parameters: %w", err)
	}

	if _, err := w.Write(raw); err != nil {
		return fmt.Errorf("keeping initialize parameters: %w", err)
	}

	if err := w.Close(); err != nil {
		return fmt.Errorf("keeping initialize parameters: %w", err)
	}

	if buf.Len() < len(raw) {
		c.params, c.deflated = buf.Bytes(), true
	}

	return nil
}

// initializeParams returns what setParams was given. Claims that are spilled
// don't have it before unspill.
func (c *sessionClaims) initializeParams() ([]byte, error) {
	if !c.deflated {
		return c.params, nil
	}

	raw, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(c.params)), maxParams))
	if err != nil {
		return nil, fmt.Errorf("inflating initialize parameters: %w", err)
	}

	return raw, nil
}

// Layout of the claims: format, flags, sid, created, then seven texts, each
// after its length, and the parameters up to the end.
const (
	claimsFormat   = 1
	claimsDeflated = 1 << 0
	claimsSpilled  = 1 << 1
)

func (c *sessionClaims) encode() []byte {
	texts := [...]string{c.server, c.path, c.version, c.conversation, c.agentServer, c.principal, c.backend}

	n := 64 + len(c.params)
	for _, t := range texts {
		n += len(t)
	}

	out := append(make([]byte, 0, n), claimsFormat, flag(c.deflated)*claimsDeflated|flag(c.spilled)*claimsSpilled)
	out = append(out, c.sid[:]...)
	out = binary.AppendUvarint(out, uint64(max(c.created.Unix(), 0)))

	for _, t := range texts {
		out = binary.AppendUvarint(out, uint64(len(t)))
		out = append(out, t...)
	}

	return append(out, c.params...)
}

func decodeSession(plain []byte) (sessionClaims, bool) {
	d := decoder{string(plain), true}

	if d.byte() != claimsFormat {
		return sessionClaims{}, false
	}

	var c sessionClaims

	flags := d.byte()
	c.deflated = flags&claimsDeflated != 0
	c.spilled = flags&claimsSpilled != 0

	copy(c.sid[:], d.take(len(c.sid)))
	c.created = time.Unix(int64(d.uvarint()), 0)

	for _, dst := range []*string{&c.server, &c.path, &c.version, &c.conversation, &c.agentServer, &c.principal, &c.backend} {
		*dst = d.text()
	}

	if !d.ok {
		return sessionClaims{}, false
	}

	c.params = plain[len(plain)-len(d.rest):]

	return c, true
}

// decoder takes values off the front of a string; ok turns false for good when
// there is too little.
type decoder struct {
	rest string
	ok   bool
}

func (d *decoder) take(n int) string {
	if n < 0 || n > len(d.rest) {
		d.ok, d.rest = false, ""
		return ""
	}

	head := d.rest[:n]
	d.rest = d.rest[n:]

	return head
}

func (d *decoder) byte() byte {
	if s := d.take(1); s != "" {
		return s[0]
	}

	return 0
}

func (d *decoder) uvarint() uint64 {
	var v uint64

	for shift := uint(0); shift < 63; shift += 7 {
		b := d.byte()
		v |= uint64(b&0x7f) << shift

		if b < 0x80 {
			return v
		}
	}

	d.ok = false

	return 0
}

func (d *decoder) text() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.ok = false
		return ""
	}

	return d.take(int(n))
}

func flag(b bool) byte {
	if b {
		return 1
	}

	return 0
}

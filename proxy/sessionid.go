package proxy

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// maxSessionID is the longest id that is given out: servers and proxies
	// commonly allow 8 KiB for all headers together.
	maxSessionID = 4 << 10
	// maxForeignID is the longest id that is looked at.
	maxForeignID = 8 << 10
)

// Purposes of the keyring.
const (
	purposeSession = "session"
	purposeSpill   = "session spill"
)

var (
	// errMalformedSession refuses what can't be a session id of anybody: the
	// answer is 400.
	errMalformedSession = errors.New("the session id is not visible ASCII, or too long")
	// errForeignSession refuses an id that was not made here: the answer is 404.
	errForeignSession = errors.New("the session id is not known here")
)

// sealSession makes the id of a session: visible ASCII, at most 4 KiB. Where
// the claims are too large for that, spill holds the rest, sealed, for the
// caller to put into the store under the session's key and to give to unspill
// later; else it is nil.
func (k *Keyring) sealSession(c sessionClaims) (id string, spill []byte, err error) {
	plain := c.encode()

	if base64.RawURLEncoding.EncodedLen(len(plain)+sealOverhead) > maxSessionID {
		rest := binary.AppendUvarint(nil, uint64(len(c.backend)))
		rest = append(rest, c.backend...)
		rest = append(rest, flag(c.deflated))
		rest = append(rest, c.params...)

		if spill, err = k.Seal(purposeSpill, rest, c.sid[:]); err != nil {
			return "", nil, fmt.Errorf("sealing a session: %w", err)
		}

		c.backend, c.params, c.deflated, c.spilled = "", nil, false, true
		plain = c.encode()
	}

	sealed, err := k.Seal(purposeSession, plain, nil)
	if err != nil {
		return "", nil, fmt.Errorf("sealing a session: %w", err)
	}

	id = base64.RawURLEncoding.EncodeToString(sealed)
	if len(id) > maxSessionID {
		return "", nil, fmt.Errorf("sealing a session: the id would have %d bytes, %d are allowed", len(id), maxSessionID)
	}

	return id, spill, nil
}

// openSession returns the claims of an id. The error is errMalformedSession for
// what no session id looks like, found before anything else is done with it, and
// errForeignSession for everything that was not made with one of the keys.
func (k *Keyring) openSession(id string) (sessionClaims, error) {
	if !validSessionID(id) {
		return sessionClaims{}, errMalformedSession
	}

	if len(id) > maxSessionID {
		return sessionClaims{}, errForeignSession
	}

	sealed, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(sealed) < sealOverhead {
		return sessionClaims{}, errForeignSession
	}

	plain, err := k.open(sealed[sealHeader:sealHeader], purposeSession, sealed, nil)
	if err != nil {
		return sessionClaims{}, errForeignSession
	}

	c, ok := decodeSession(plain)
	if !ok {
		return sessionClaims{}, errForeignSession
	}

	return c, nil
}

// unspill adds to the claims what sealSession gave out for the store.
func (k *Keyring) unspill(c *sessionClaims, spill []byte) error {
	plain, err := k.Open(purposeSpill, spill, c.sid[:])
	if err != nil {
		return fmt.Errorf("reading the rest of a session: %w", err)
	}

	d := decoder{string(plain), true}
	backend := d.text()
	deflated := d.byte() == 1

	if !d.ok {
		return fmt.Errorf("reading the rest of a session: %w", ErrNotOurs)
	}

	c.backend, c.deflated, c.params, c.spilled = backend, deflated, plain[len(plain)-len(d.rest):], false

	return nil
}

// validSessionID reports whether id may stand in a session header: visible ASCII
// (MCP 2025-11-25, "Session Management") of a sane length.
func validSessionID(id string) bool {
	if id == "" || len(id) > maxForeignID {
		return false
	}

	for i := range len(id) {
		if id[i] < 0x21 || id[i] > 0x7e {
			return false
		}
	}

	return true
}

package proxy

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// KeySize is the smallest key in bytes, and the size of the ones that NewKey
// makes.
const KeySize = 32

// Sealed data is: format (1 byte), id of the key, nonce, ciphertext and tag.
const (
	sealFormat   = 1
	sealKeyID    = 4
	sealNonce    = 12
	sealHeader   = 1 + sealKeyID + sealNonce
	sealOverhead = sealHeader + 16
)

// ErrNotOurs is returned when sealed data was not made with any of the keys, was
// made for another purpose, or was changed.
var ErrNotOurs = errors.New("opening sealed data: it was not sealed here with any of the current keys")

// Keyring seals what the sidecar hands out and wants to recognise again: session
// ids, and credentials in the store. The first key seals, every key opens, so
// that keys can be rotated by putting a new one in front. It is safe for
// concurrent use.
//
// Data is sealed with AES-256-GCM and random nonces under a subkey for each
// purpose, which is sound for 2^32 seals with one key.
type Keyring struct {
	set atomic.Pointer[keySet]
}

// keySet is the keys of a ring at one time. It isn't changed.
type keySet struct {
	first *sealKey
	byID  map[[sealKeyID]byte]*sealKey
	order []*sealKey
}

// sealKey is one key and the subkeys that were derived from it so far.
type sealKey struct {
	id     [sealKeyID]byte
	secret []byte
	aeads  sync.Map // purpose -> cipher.AEAD; purposes are constants, so there are few
}

// NewKey returns a fresh random key.
func NewKey() []byte {
	key := make([]byte, KeySize)
	rand.Read(key) // never fails

	return key
}

// NewKeyring returns a keyring. Keys that appear twice count once; a key of
// fewer than KeySize bytes is an error, and so is having none.
func NewKeyring(keys ...[]byte) (*Keyring, error) {
	set, err := newKeySet(keys, nil)
	if err != nil {
		return nil, fmt.Errorf("making a keyring: %w", err)
	}

	k := &Keyring{}
	k.set.Store(set)

	return k, nil
}

// Update replaces the keys, and tells whether they are others than before. What
// was sealed with a key that is no longer there can't be opened any more. After an
// error, which is like one of NewKeyring, the old ones stay.
func (k *Keyring) Update(keys ...[]byte) (changed bool, err error) {
	old := k.set.Load()

	set, err := newKeySet(keys, old)
	if err != nil {
		return false, fmt.Errorf("updating a keyring: %w", err)
	}

	if slices.Equal(set.order, old.order) {
		return false, nil
	}

	k.set.Store(set)

	return true, nil
}

// newKeySet returns a set of keys. Those that were in the old one, which may be
// nil, are taken from there.
func newKeySet(keys [][]byte, old *keySet) (*keySet, error) {
	if len(keys) == 0 {
		return nil, errors.New("there is no key")
	}

	s := &keySet{byID: make(map[[sealKeyID]byte]*sealKey, len(keys))}

	for i, key := range keys {
		if len(key) < KeySize {
			return nil, fmt.Errorf("key %d has %d bytes, it needs at least %d", i+1, len(key), KeySize)
		}

		id, err := hkdf.Key(sha256.New, key, nil, "mcp-sidecar 1 key id", sealKeyID)
		if err != nil {
			return nil, err
		}

		sk := &sealKey{id: [sealKeyID]byte(id), secret: bytes.Clone(key)}

		if same := s.byID[sk.id]; same != nil {
			if !bytes.Equal(same.secret, key) {
				return nil, fmt.Errorf("key %d can't be told from an earlier one, replace it", i+1)
			}

			continue
		}

		if old != nil && old.byID[sk.id] != nil && bytes.Equal(old.byID[sk.id].secret, key) {
			sk = old.byID[sk.id]
		}

		s.byID[sk.id] = sk
		s.order = append(s.order, sk)
	}

	s.first = s.order[0]

	return s, nil
}

// ParseKeys reads a key file: one key a line, in hex or base64 (either alphabet,
// padded or not), at least KeySize bytes each. Blank lines and comments that
// begin with # are skipped. Errors name the line and never what is on it.
func ParseKeys(file []byte) ([][]byte, error) {
	var (
		keys [][]byte
		errs []error
		n    int
	)

	for line := range bytes.Lines(file) {
		n++

		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}

		line, _, _ = bytes.Cut(line, []byte("#"))
		line = bytes.TrimSpace(line)

		if len(line) == 0 {
			continue
		}

		key, err := parseKey(line)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", n, err))
			continue
		}

		keys = append(keys, key)
	}

	if len(errs) > 0 {
		return nil, fmt.Errorf("reading keys: %w", errors.Join(errs...))
	}

	if len(keys) == 0 {
		return nil, fmt.Errorf("reading keys: there is none; put at least %d random bytes in base64 on a line", KeySize)
	}

	return keys, nil
}

func parseKey(line []byte) ([]byte, error) {
	text := string(line)
	key, err := hex.DecodeString(text)

	// Hex text is base64 text too: what is long enough as hex is meant as hex.
	if err != nil || len(key) < KeySize {
		alphabet := base64.RawStdEncoding
		if bytes.ContainsAny(line, "-_") {
			alphabet = base64.RawURLEncoding
		}

		key, err = alphabet.DecodeString(string(bytes.TrimRight(line, "=")))
	}

	switch {
	case err != nil:
		return nil, errors.New("the key is neither hex nor base64")
	case len(key) < KeySize:
		return nil, fmt.Errorf("the key has %d bytes, it needs at least %d", len(key), KeySize)
	}

	return key, nil
}

// Seal encrypts and authenticates plaintext with the first key. Only Open with
// the same purpose and the same additional data (which may be nil and isn't
// contained in the result) gives it back. Purposes must be constants.
func (k *Keyring) Seal(purpose string, plaintext, additional []byte) ([]byte, error) {
	first := k.set.Load().first

	aead, err := first.aead(purpose)
	if err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}

	out := make([]byte, sealHeader, sealOverhead+len(plaintext))
	out[0] = sealFormat
	copy(out[1:], first.id[:])

	nonce := out[1+sealKeyID : sealHeader]
	rand.Read(nonce) // never fails

	return aead.Seal(out, nonce, plaintext, additional), nil
}

// Open returns what was sealed, or ErrNotOurs.
func (k *Keyring) Open(purpose string, sealed, additional []byte) ([]byte, error) {
	return k.open(nil, purpose, sealed, additional)
}

// open is Open that appends to dst, which may overlap the ciphertext exactly.
func (k *Keyring) open(dst []byte, purpose string, sealed, additional []byte) ([]byte, error) {
	if len(sealed) < sealOverhead || sealed[0] != sealFormat {
		return nil, ErrNotOurs
	}

	key := k.set.Load().byID[[sealKeyID]byte(sealed[1:1+sealKeyID])]
	if key == nil {
		return nil, ErrNotOurs
	}

	aead, err := key.aead(purpose)
	if err != nil {
		return nil, fmt.Errorf("opening sealed data: %w", err)
	}

	plain, err := aead.Open(dst, sealed[1+sealKeyID:sealHeader], sealed[sealHeader:], additional)
	if err != nil {
		return nil, ErrNotOurs
	}

	return plain, nil
}

// aead returns the cipher for a purpose.
func (k *sealKey) aead(purpose string) (cipher.AEAD, error) {
	if a, ok := k.aeads.Load(purpose); ok {
		if aead, ok := a.(cipher.AEAD); ok {
			return aead, nil
		}
	}

	sub, err := hkdf.Key(sha256.New, k.secret, nil, "mcp-sidecar 1 seal "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for %s: %w", purpose, err)
	}

	block, err := aes.NewCipher(sub)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for %s: %w", purpose, err)
	}

	a, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for %s: %w", purpose, err)
	}

	k.aeads.Store(purpose, a)

	return a, nil
}

package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// recheckTokens is how often the file is read again, at most.
const recheckTokens = time.Second

// listenTokens are the tokens that agents may come in with. They are read again
// when they are needed. While the file can't be used, the last ones stay: nobody
// comes in because of it, and nobody who may is kept out.
type listenTokens struct {
	log *slog.Logger

	mu     sync.Mutex // guards the rest
	file   string     // empty: nobody needs a token
	sums   [][sha256.Size]byte
	read   time.Time
	failed string // the last error that was logged
}

// readTokens reads a file with a token a line, and returns their hashes.
func readTokens(file string) ([][sha256.Size]byte, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the tokens of agents: %w (see --listen-token-file)", err)
	}
	var sums [][sha256.Size]byte
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("reading the tokens of agents: %s has a line that is no token: want visible ASCII characters", file)
		}
		sums = append(sums, sha256.Sum256([]byte(line)))
	}
	if len(sums) == 0 {
		return nil, errors.New("reading the tokens of agents: " + file + " is empty (see --listen-token-file)")
	}
	return sums, nil
}

// use puts the tokens of a file in force.
func (l *listenTokens) use(file string, sums [][sha256.Size]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file, l.sums, l.read, l.failed = file, sums, time.Now(), ""
}

// check is for [proxy.Deps]. Its time doesn't depend on how much of a token is right.
func (l *listenTokens) check(token string) (wanted, ok bool) {
	l.mu.Lock()
	if l.file != "" && time.Since(l.read) >= recheckTokens {
		l.again()
	}
	wanted, sums := l.file != "", l.sums
	l.mu.Unlock()
	if !wanted || token == "" {
		return wanted, false
	}
	same := 0
	sum := sha256.Sum256([]byte(token))
	for _, s := range sums {
		same |= subtle.ConstantTimeCompare(sum[:], s[:])
	}
	return true, same == 1
}

func (l *listenTokens) again() {
	l.read = time.Now()
	sums, err := readTokens(l.file)
	if err != nil {
		if l.failed != err.Error() {
			l.log.Warn("tokens of agents can't be read, the last ones stay", "err", err)
			l.failed = err.Error()
		}
		return
	}
	l.sums, l.failed = sums, ""
}

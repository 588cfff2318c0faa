// Package journal is what the processes of the test backend write about what they
// executed, and tests read.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Refused is the event of a message that a backend didn't execute, because its
// session was unknown or not initialized.
const Refused = "refused"

// The phases of a tools/call.
const (
	Begin = "begin"
	End   = "end"
)

// Entry is one line of a journal.
type Entry struct {
	Time    time.Time       `json:"time"`
	PID     int             `json:"pid"`
	Event   string          `json:"event"`             // the JSON-RPC method, DELETE, or Refused
	Method  string          `json:"method,omitempty"`  // of a message that was refused
	Phase   string          `json:"phase,omitempty"`   // of a tools/call: Begin or End
	Session string          `json:"session,omitempty"` // the backend's session id
	ID      json.RawMessage `json:"id,omitempty"`      // of the JSON-RPC request
	Tool    string          `json:"tool,omitempty"`
	Args    any             `json:"args,omitempty"`
	Params  any             `json:"params,omitempty"` // of initialize
	Cursor  string          `json:"cursor,omitempty"` // of tools/list
}

// Writer appends entries to a file, each in one write, so that several processes
// can share it.
type Writer struct {
	mu   sync.Mutex
	file *os.File // nil: none is kept
}

// Open opens a journal for writing; with an empty path it keeps none.
func Open(path string) (*Writer, error) {
	if path == "" {
		return &Writer{}, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	return &Writer{file: file}, nil
}

// Close closes the file.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// Add appends an entry, with the time and this process's id.
func (w *Writer) Add(e Entry) error {
	if w.file == nil {
		return nil
	}
	e.Time, e.PID = time.Now(), os.Getpid()
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.file.Write(append(line, '\n'))
	return err
}

// Read returns the entries of a journal. One that isn't there yet has none, and a
// line that isn't complete yet is left out.
func Read(path string) ([]Entry, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	var entries []Entry
	for line := range bytes.Lines(raw) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading the journal: line %d: %w", len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

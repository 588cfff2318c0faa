package journal_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	if entries, err := journal.Read(path); err != nil || entries != nil {
		t.Errorf("no file: %v %v", entries, err)
	}
	for range 2 { // as two processes would, one after the other
		w, err := journal.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(journal.Entry{Event: "tools/call", Phase: journal.Begin, ID: json.RawMessage("7")}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"event":`)
	entries, err := journal.Read(path)
	if err != nil || len(entries) != 2 || entries[1].PID != os.Getpid() || string(entries[1].ID) != "7" {
		t.Errorf("entries are %+v: %v", entries, err)
	}
	write("\n")
	if _, err := journal.Read(path); err == nil {
		t.Error("a line that isn't JSON: want an error")
	}
}

func TestNoJournal(t *testing.T) {
	w, err := journal.Open("")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(journal.Entry{}); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := journal.Open(t.TempDir()); err == nil {
		t.Error("a folder: want an error")
	}
}

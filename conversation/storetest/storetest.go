// Package storetest is the test suite that every conversation.Store must pass.
package storetest

import (
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// Backend is one place where a store keeps its data.
type Backend struct {
	// Open opens a store on the data. The suite closes it before it opens the next.
	Open func(t *testing.T) conversation.Store
	// Advance moves the clock that the life of blobs is measured by.
	Advance func(d time.Duration)
}

// Run runs the suite. newBackend returns an empty backend of its own for each test.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(suite)
	}{
		{"put and get", suite.putGet},
		{"compare and swap", suite.compareAndSwap},
		{"two writers", suite.twoWriters},
		{"delete", suite.remove},
		{"touch", suite.touch},
		{"all", suite.all},
		{"all under writes", suite.allUnderWrites},
		{"generations", suite.generations},
		{"generation race", suite.generationRace},
		{"blobs", suite.blobs},
		{"blob life", suite.blobLife},
		{"reopen", suite.reopen},
		{"unusual ids", suite.unusualIDs},
		{"ended context", suite.endedContext},
		{"closed", suite.closed},
		{"close under load", suite.closeUnderLoad},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(suite{t, newBackend(t)}) })
	}
}

// suite is one test on a backend of its own.
type suite struct {
	t       *testing.T
	backend Backend
}

// open opens the store until the test ends.
func (x suite) open() conversation.Store {
	x.t.Helper()
	s := x.backend.Open(x.t)
	x.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			x.t.Errorf("Close: %v", err)
		}
	})
	return s
}

func at(seconds int) time.Time {
	return time.Date(2026, 11, 29, 12, 0, seconds, 987654321, time.UTC)
}

// full returns a conversation with every field set.
func full(id conversation.ID) conversation.Conversation {
	return conversation.Conversation{
		ID: id, AgentServer: "default", AgentURL: "https://a.example.com", Source: conversation.SourceWebhook,
		Servers: map[string]conversation.Applied{
			"tools": {Generation: 7, Hash: "sha256:ab", How: conversation.HowObserved, At: at(1)},
			"other": {},
		},
		Tried:     map[string]uint64{"tools": 8},
		CreatedAt: at(2), RegisteredAt: at(3), RenewedAt: at(4), LastActive: at(5), TTL: time.Hour,
		Condition: conversation.ConditionFailed, Attempts: 3,
		LastError:   &conversation.Failure{Reason: "timeout", Message: "no answer – \"60s\"", At: at(6)},
		NextAttempt: at(7),
		Forced:      true, ForcedAt: at(8),
	}
}

func put(t *testing.T, s conversation.Store, c conversation.Conversation) conversation.Conversation {
	t.Helper()
	stored, err := s.Put(t.Context(), c)
	if err != nil {
		t.Fatalf("Put(%q): %v", c.ID, err)
	}
	return stored
}

func wantGet(t *testing.T, s conversation.Store, want conversation.Conversation) {
	t.Helper()
	got, err := s.Get(t.Context(), want.ID)
	if err != nil {
		t.Fatalf("Get(%q): %v", want.ID, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Get(%q) (-want +got):\n%s", want.ID, diff)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func collect(t *testing.T, all iter.Seq2[conversation.Conversation, error]) []conversation.ID {
	t.Helper()
	var ids []conversation.ID
	for c, err := range all {
		if err != nil {
			t.Fatalf("All: %v", err)
		}
		ids = append(ids, c.ID)
	}
	return ids
}

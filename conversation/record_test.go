package conversation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestRecordsAreReadable(t *testing.T) {
	t.Parallel()
	b, err := conversation.EncodeConversation(conversation.Conversation{
		ID: "c1", AgentServer: "default", Source: conversation.SourceURL,
		Servers:      map[string]conversation.Applied{"tools": {Generation: 3, Hash: "sha256:aa", How: conversation.HowObserved}},
		RegisteredAt: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC), Revision: 4,
	})
	const want = `{"v":1,"id":"c1","agentServer":"default","source":"url",` +
		`"servers":{"tools":{"generation":3,"hash":"sha256:aa","how":"observed"}},"registeredAt":"2026-11-29T12:00:00Z","revision":4}`
	if err != nil || string(b) != want {
		t.Errorf("record is %s, %v; want %s", b, err, want)
	}
}

func TestRecordVersions(t *testing.T) {
	t.Parallel()
	for record, text := range map[string]string{
		`{"v":1,"id":"a","added later":1}`: "",
		`{"v":2,"id":"a"}`:                 "upgrade",
		`{"id":"a"}`:                       "no version",
		`{}`:                               "no version",
		`[]`:                               "decoding",
		``:                                 "decoding",
	} {
		_, err := conversation.DecodeConversation([]byte(record))
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("DecodeConversation(%s): %v", record, err)
		}
		_, err = conversation.DecodeGeneration([]byte(record))
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("DecodeGeneration(%s): %v", record, err)
		}
	}
}

func FuzzDecodeConversation(f *testing.F) {
	f.Add([]byte(`{"v":1,"id":"a","servers":{"x":{"at":"2026-11-29T12:00:00Z"}},"lastError":{},"ttl":5,"revision":18446744073709551615}`))
	f.Add([]byte(`{"v":1,"createdAt":"0001-01-01T00:00:00Z","tried":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := conversation.DecodeConversation(b)
		if err != nil {
			return
		}
		again, err := conversation.EncodeConversation(c)
		if err != nil {
			t.Fatalf("what was decoded can't be encoded: %v", err)
		}
		d, err := conversation.DecodeConversation(again)
		if err != nil {
			t.Fatalf("what was encoded can't be decoded: %v", err)
		}
		twice, err := conversation.EncodeConversation(d)
		if diff := cmp.Diff(again, twice); err != nil || diff != "" {
			t.Errorf("the record changed (%v):\n%s", err, diff)
		}
	})
}

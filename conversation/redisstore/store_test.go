package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// TestGroupsAreSeparate: two groups on one server see nothing of each other.
func TestGroupsAreSeparate(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	one, other := server.open(t, "one"), server.open(t, "one-more")
	heard := watch(t, other)
	heard.wait(t, func(c conversation.Change) bool { return c.Missed })

	if _, err := one.Put(t.Context(), conversation.Conversation{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := one.PutGeneration(t.Context(), conversation.Generation{Server: "tools", Number: 1, Hash: "h"}); err != nil {
		t.Fatal(err)
	}
	if err := one.PutBlob(t.Context(), "sessions", "k", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := one.Announce(t.Context(), conversation.Replica{ID: "r"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if ok, err := one.Claim(t.Context(), "a", "r", time.Minute); err != nil || !ok {
		t.Fatal(ok, err)
	}

	if _, err := other.Get(t.Context(), "a"); !errors.Is(err, conversation.ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
	for c, err := range other.All(t.Context()) {
		t.Errorf("All: %v, %v", c, err)
	}
	if _, err := other.Generation(t.Context(), "tools"); !errors.Is(err, conversation.ErrNotFound) {
		t.Errorf("Generation: %v", err)
	}
	if _, err := other.Blob(t.Context(), "sessions", "k"); !errors.Is(err, conversation.ErrNotFound) {
		t.Errorf("Blob: %v", err)
	}
	if group, _, err := other.Announce(t.Context(), conversation.Replica{ID: "x"}, time.Minute); err != nil || len(group) != 1 {
		t.Errorf("the group is %v, %v", group, err)
	}
	if ok, err := other.Claim(t.Context(), "a", "x", time.Minute); err != nil || !ok {
		t.Errorf("Claim: %v, %v", ok, err)
	}
	if err := server.open(t, "one-more").Tell(t.Context(), "end", nil); err != nil {
		t.Fatal(err)
	}
	heard.wait(t, func(c conversation.Change) bool { return c.Message != nil && c.Message.Topic == "end" })
	if n := heard.count(); n != 2 {
		t.Errorf("the other group heard %d things, want 2", n)
	}
}

// TestExpiry: a registration is kept a little longer than it lives, and leaves no trace.
func TestExpiry(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	raw := server.raw()
	s := server.open(t, "p", func(o *Options) { o.Life = time.Hour })
	for id, c := range map[conversation.ID]conversation.Conversation{
		"seen": {Source: conversation.SourceURL}, "own": {Source: conversation.SourceURL, TTL: time.Minute}, "kept": {Source: conversation.SourceAdmin},
	} {
		c.ID = id
		if _, err := s.Put(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	left := func(id string) time.Duration { return raw.PTTL(t.Context(), "{p}:conversation:"+id).Val() }
	if d := left("seen"); d <= time.Hour || d > time.Hour+spare {
		t.Errorf("seen lives %v", d)
	}
	if d := left("own"); d <= time.Minute || d > time.Minute+spare {
		t.Errorf("own lives %v", d)
	}
	if d := left("kept"); d >= 0 {
		t.Errorf("kept lives %v", d)
	}
	raw.PExpire(t.Context(), "{p}:conversation:seen", time.Second)
	if err := s.Touch(t.Context(), []conversation.Touch{{ID: "seen", RenewedAt: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	if d := left("seen"); d <= time.Hour {
		t.Errorf("seen lives %v after a sign of life", d)
	}
	raw.Del(t.Context(), "{p}:conversation:own") // as if its time were over
	n := 0
	for _, err := range s.All(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		n++
	}
	if rest := raw.ZCard(t.Context(), "{p}:index:conversations").Val(); n != 2 || rest != 2 {
		t.Errorf("%d are left, %d in the index", n, rest)
	}
}

func TestLeasesAndClaims(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(t, "p")
	announce := func(id string, lease time.Duration) []conversation.Replica {
		group, _, err := s.Announce(t.Context(), conversation.Replica{ID: id, Ready: true, Sees: map[string]string{"tools": id}}, lease)
		if err != nil {
			t.Fatal(err)
		}
		return group
	}
	claim := func(replica string) bool {
		ok, err := s.Claim(t.Context(), "a", replica, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	announce("one", time.Minute)
	if group := announce("two", time.Minute); len(group) != 2 {
		t.Errorf("the group is %v", group)
	}
	if !claim("one") || claim("two") || !claim("one") {
		t.Error("the claim isn't one's alone")
	}
	if err := s.Unclaim(t.Context(), "a", "two"); err != nil || claim("two") {
		t.Errorf("two gave back one's claim: %v", err)
	}
	if err := s.Leave(t.Context(), "one"); err != nil || !claim("two") {
		t.Errorf("the claim of one that left is still good: %v", err)
	}
	if group := announce("two", time.Minute); len(group) != 1 || group[0].Sees["tools"] != "two" {
		t.Errorf("the group is %v", group)
	}
	announce("three", time.Millisecond)
	eventually(t, "the lease to end", func() bool { return len(announce("two", time.Minute)) == 1 })

	_, before, err := s.Announce(t.Context(), conversation.Replica{ID: "two"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	server.raw().FlushAll(t.Context())
	_, after, err := s.Announce(t.Context(), conversation.Replica{ID: "two"}, time.Minute)
	if err != nil || before == "" || after == before {
		t.Errorf("the incarnation is %q, was %q: %v", after, before, err)
	}
}

func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(t, "p")
	for _, id := range []conversation.ID{"a", "b", "c"} {
		if _, err := s.Put(t.Context(), conversation.Conversation{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	server.raw().Set(t.Context(), "{p}:conversation:b", "nonsense", 0)
	good, bad := 0, 0
	for c, err := range s.All(t.Context()) {
		switch {
		case err == nil:
			good++
		case c.ID == "b":
			bad++
		default:
			t.Error(err)
		}
	}
	if good != 2 || bad != 1 {
		t.Errorf("%d are good and %d bad", good, bad)
	}
	if _, err := s.Get(t.Context(), "a"); err != nil {
		t.Errorf("the store is away after a damaged record: %v", err)
	}
	if _, err := s.Put(t.Context(), conversation.Conversation{ID: "b"}); err != nil {
		t.Errorf("a new registration doesn't replace an unreadable one: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	record, err := conversation.EncodeConversation(conversation.Conversation{ID: "a", LastActive: time.Unix(9, 0)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("1 0 0000000000000000000 0000000000000000000\n" + string(record)))
	f.Add([]byte("1 0 1 2\n{}"))
	f.Fuzz(func(t *testing.T, v []byte) {
		c, err := decode("a", v)
		if err == nil && (c.ID != "a" || c.Revision == 0) {
			t.Errorf("%q is read as %+v", v, c)
		}
	})
}

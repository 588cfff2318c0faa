package redisstore

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
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

// heard collects what a store's feed says.
type heard struct {
	mu  sync.Mutex
	all []conversation.Change
}

func watch(t *testing.T, s *Store) *heard {
	t.Helper()
	h := new(heard)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Watch(t.Context(), func(c conversation.Change) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.all = append(h.all, c)
		}); err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	t.Cleanup(wg.Wait)
	return h
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// wait waits until something that was heard is what is wanted, and returns it.
func (h *heard) wait(t *testing.T, wanted func(conversation.Change) bool) (found conversation.Change) {
	t.Helper()
	eventually(t, "a change", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, c := range h.all {
			if wanted(c) {
				found = c
				return true
			}
		}
		return false
	})
	return found
}

func TestFeed(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	writer, reader := server.open(t, "p"), server.open(t, "p")
	h, own := watch(t, reader), watch(t, writer)
	missed := func(c conversation.Change) bool { return c.Missed }
	h.wait(t, missed)
	own.wait(t, missed)

	now := time.Now().UTC()
	c, err := writer.Put(t.Context(), conversation.Conversation{
		ID: "größe 1", AgentServer: "x", LastActive: now, Servers: map[string]conversation.Applied{"tools": {Generation: 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := h.wait(t, func(c conversation.Change) bool { return c.Conversation != nil })
	if diff := cmp.Diff(c, *got.Conversation); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}
	touch := conversation.Touch{ID: c.ID, LastActive: now.Add(time.Minute)}
	if err := writer.Touch(t.Context(), []conversation.Touch{touch}); err != nil {
		t.Fatal(err)
	}
	got = h.wait(t, func(c conversation.Change) bool { return c.Touches != nil })
	if diff := cmp.Diff([]conversation.Touch{touch}, got.Touches); diff != "" {
		t.Errorf("touches (-want +got):\n%s", diff)
	}
	g := conversation.Generation{Server: "tools", Number: 1, Hash: "h", At: now, Tools: map[string]string{"a": "b"}}
	if err := writer.PutGeneration(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	got = h.wait(t, func(c conversation.Change) bool { return c.Generation != nil })
	if diff := cmp.Diff(g, *got.Generation); diff != "" {
		t.Errorf("generation (-want +got):\n%s", diff)
	}
	if err := writer.Delete(t.Context(), c.ID, c.Revision); err != nil {
		t.Fatal(err)
	}
	h.wait(t, func(got conversation.Change) bool { return got.Removed == c.ID })
	if err := writer.Tell(t.Context(), "topic", []byte("a\nb")); err != nil {
		t.Fatal(err)
	}
	h.wait(t, func(c conversation.Change) bool {
		return c.Message != nil && c.Message.Topic == "topic" && string(c.Message.Body) == "a\nb" && c.Message.From == writer.origin
	})
	if n := own.count(); n != 1 {
		t.Errorf("the writer heard %d things of itself", n-1)
	}
}

// TestAway: while the server is away everything fails at once, and blobs wait.
func TestAway(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	var mu sync.Mutex
	var ups []bool
	s := server.open(t, "p", func(o *Options) {
		o.Timeout = 5 * time.Second
		o.OnUp = func(up bool) { mu.Lock(); defer mu.Unlock(); ups = append(ups, up) }
	})
	h := watch(t, s)
	h.wait(t, func(c conversation.Change) bool { return c.Missed })
	c, err := s.Put(t.Context(), conversation.Conversation{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutBlob(t.Context(), "sessions", "k", []byte("old"), 0); err != nil {
		t.Fatal(err)
	}
	server.p.Kill()
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, conversation.ErrUnavailable) {
		t.Errorf("Get: %v", err)
	}
	for key, value := range map[string]string{"k": "new", "more": "m"} {
		if err := s.PutBlob(t.Context(), "sessions", key, []byte(value), time.Hour); err != nil {
			t.Errorf("PutBlob: %v", err)
		}
	}
	if v, err := s.Blob(t.Context(), "sessions", "k"); err != nil || string(v) != "new" {
		t.Errorf("Blob = %q, %v", v, err)
	}
	if err := s.DeleteBlob(t.Context(), "sessions", "more"); err != nil {
		t.Errorf("DeleteBlob: %v", err)
	}
	if _, err := s.Blob(t.Context(), "sessions", "more"); !errors.Is(err, conversation.ErrNotFound) {
		t.Errorf("Blob of what is to be deleted: %v", err)
	}

	server.start()
	eventually(t, "the store to be back", func() bool { _, err := s.Get(t.Context(), "a"); return err == nil })
	if _, err := s.Put(t.Context(), c); err != nil {
		t.Errorf("Put: %v", err)
	}
	eventually(t, "the blob to be written", func() bool { return server.raw().Get(t.Context(), "{p}:blob:sessions:k").Val() == "new" })
	eventually(t, "the feed to say that it missed something", func() bool { return h.count() >= 2 })
	mu.Lock()
	defer mu.Unlock()
	if len(ups) != 2 || ups[0] || !ups[1] {
		t.Errorf("it said %v", ups)
	}
}

// TestHangs: a server that doesn't answer any more is away like one that is gone.
func TestHangs(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(t, "p", func(o *Options) { o.Timeout, o.PingInterval = 200*time.Millisecond, 200*time.Millisecond })
	h := watch(t, s)
	h.wait(t, func(c conversation.Change) bool { return c.Missed })
	server.p.Freeze()
	defer server.p.Thaw()
	eventually(t, "an error", func() bool { _, err := s.Get(t.Context(), "a"); return errors.Is(err, conversation.ErrUnavailable) })
	server.p.Thaw()
	eventually(t, "the store to be back", func() bool { _, err := s.Get(t.Context(), "a"); return errors.Is(err, conversation.ErrNotFound) })
}

func TestOpenWithoutServer(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.URL = "redis://127.0.0.1:1"
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, conversation.ErrUnavailable) {
		t.Errorf("Get: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestAccess: a user with exactly the rights that the documentation names can do everything, and a wrong password is reported at once.
func TestAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acl := filepath.Join(dir, "users.acl")
	rights := "user default off\nuser sidecar on >s3cret ~{p}:* &{p}:* +@read +@write +@pubsub +@scripting +@connection\n"
	if err := os.WriteFile(acl, []byte(rights), 0o600); err != nil {
		t.Fatal(err)
	}
	server := startServer(t, "--aclfile", acl)
	password := filepath.Join(dir, "password")
	write := func(s string) {
		if err := os.WriteFile(password, []byte(s+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := DefaultOptions()
	o.URL, o.Prefix, o.PasswordFile = "redis://sidecar@"+server.addr, "p", password

	write("wr0ng")
	if _, err := Open(t.Context(), o); !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("Open with a wrong password: %v", err)
	}
	write("s3cret")
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := watch(t, s)
	h.wait(t, func(c conversation.Change) bool { return c.Missed })
	c, err := s.Put(t.Context(), conversation.Conversation{ID: "a"})
	for _, err := range []error{
		err,
		s.Touch(t.Context(), []conversation.Touch{{ID: "a", RenewedAt: time.Now()}}),
		s.PutGeneration(t.Context(), conversation.Generation{Server: "s", Number: 1}),
		s.PutBlob(t.Context(), "b", "k", []byte("v"), time.Minute),
		s.DeleteBlob(t.Context(), "b", "k"),
		s.Tell(t.Context(), "t", nil),
		s.Delete(t.Context(), "a", c.Revision),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, _, err := s.Announce(t.Context(), conversation.Replica{ID: "r"}, time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := s.Claim(t.Context(), "a", "r", time.Minute); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Unclaim(t.Context(), "a", "r"), s.Leave(t.Context(), "r")); err != nil {
		t.Error(err)
	}
	for _, err := range s.Heads(t.Context()) {
		if err != nil {
			t.Error(err)
		}
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

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ url, prefix, ca, want string }{
		{url: "redis://h"},
		{url: "rediss://user@h:1/0"},
		{url: "redis://h:1/2?master=m&addr=h2:1"},
		{url: "redis://h:1?cluster=true"},
		{url: "http://h", want: "want a URL"},
		{url: "redis://", want: "want a URL"},
		{url: "redis://u:p4ss@h", want: "must not hold the password"},
		{url: "redis://h/x", want: "number of a database"},
		{url: "redis://h/1?cluster=true", want: "only database 0"},
		{url: "redis://h?timeout=1s", want: "unknown parameter"},
		{url: "redis://h", ca: "x", want: "rediss://"},
		{url: "rediss://h", ca: "/read/when/used"},
		{url: "redis://h", prefix: "a{b}", want: "prefix"},
	} {
		o := DefaultOptions()
		o.URL, o.CAFile = tt.url, tt.ca
		if tt.prefix != "" {
			o.Prefix = tt.prefix
		}
		err := o.Validate()
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "p4ss")) {
			t.Errorf("%s: %v, want %q", tt.url, err, tt.want)
		}
	}
}

// TestTLS: the server's certificate is checked, and the CA that is trusted can be replaced.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "cert.crt"), filepath.Join(dir, "key.pem")
	writeCertificate(t, cert, key)
	addr := proc.ReserveAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	proc.Start(t, proc.Need(t, "redis-server"), "--port", "0", "--tls-port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir,
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
	proc.WaitListening(t, addr)

	o := DefaultOptions()
	o.URL, o.CAFile = "rediss://"+addr, ca
	if _, err := Open(t.Context(), o); err == nil {
		t.Error("Open without the CA file succeeded")
	}
	writeCertificate(t, ca, filepath.Join(dir, "other.pem"))
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, conversation.ErrUnavailable) {
		t.Errorf("Get from a server with another certificate: %v", err)
	}
	b, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ca, b, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new CA to be trusted", func() bool { _, err := s.Get(t.Context(), "a"); return errors.Is(err, conversation.ErrNotFound) })
}

func writeCertificate(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
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

func FuzzParseMessage(f *testing.F) {
	s := &Store{origin: "me"}
	f.Add([]byte("m other\ntopic\nbody"))
	f.Add([]byte(`t other` + "\n" + `[{"id":"a","a":"0000000000000000001","r":"0000000000000000000"}]`))
	f.Add([]byte("r other\nid"))
	f.Fuzz(func(t *testing.T, m []byte) {
		c, ok := s.parseMessage(m)
		if ok && c.Conversation == nil && c.Removed == "" && c.Generation == nil && len(c.Touches) == 0 && c.Message == nil {
			t.Errorf("%q says nothing", m)
		}
	})
}

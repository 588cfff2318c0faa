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
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

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

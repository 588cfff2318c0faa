package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// newPair makes a certificate of that name for 127.0.0.1.
func newPair(t *testing.T, name string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	kd, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: kd}))
}

// TestCertificateRotation replaces the files one after the other.
func TestCertificateRotation(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	cert1, key1 := newPair(t, "one")
	cert2, key2 := newPair(t, "two")
	writeFile(t, certFile, cert1)
	writeFile(t, keyFile, key1)
	l := &logs{}
	c, err := newCertificate(certFile, keyFile, l.logger())
	if err != nil {
		t.Fatal(err)
	}
	name := func() string {
		c.checked = time.Time{}
		got, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(got.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.Subject.CommonName
	}
	if got := name(); got != "one" {
		t.Errorf("first certificate %q", got)
	}
	writeFile(t, certFile, cert2+"\n") // the size differs, whatever the clock of the file system
	for range 3 {
		if got := name(); got != "one" {
			t.Errorf("with half a pair: %q", got)
		}
	}
	if n := strings.Count(l.String(), "can't be used"); n != 1 {
		t.Errorf("half a pair is logged %d times", n)
	}
	writeFile(t, keyFile, key2+"\n")
	if got := name(); got != "two" {
		t.Errorf("after the rotation: %q", got)
	}
	if strings.Contains(l.String(), "PRIVATE KEY") {
		t.Error("a key is in the log")
	}
}

func TestServeTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := newPair(t, "sidecar")
	writeFile(t, dir+"/cert", cert)
	writeFile(t, dir+"/key", key)
	b := startBackend(t, "add")
	a := testApp(t, testConfig(t, b.url(), func(c *config.Config) { c.TLSCertFile, c.TLSKeyFile = dir+"/cert", dir+"/key" }))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(cert))
	for _, h2 := range []bool{false, true} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: h2}
		body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+a.addr("agents")+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		_, _ = out.ReadFrom(resp.Body)
		resp.Body.Close()
		tr.CloseIdleConnections()
		if resp.StatusCode != http.StatusOK || (resp.ProtoMajor == 2) != h2 || !strings.Contains(out.String(), "serverInfo") {
			t.Errorf("HTTP/%d: %d %s", resp.ProtoMajor, resp.StatusCode, &out)
		}
	}
}

package notify

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestCAFileIsReadAgain(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	srv.Config.SetKeepAlivesEnabled(false)
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	c := newTestClient(t, srv.URL, func(s *AgentServer) { s.CAFile = file })
	for i, step := range []struct {
		pem      []byte
		want     Reason
		contains string
	}{
		{want: ReasonTLS, contains: "no such file"},
		{pem: []byte("half a cert"), want: ReasonTLS, contains: "holds no PEM certificate"},
		{pem: good},
		{pem: nil, want: ReasonTLS},
	} {
		os.Remove(file)
		if step.pem != nil {
			if err := os.WriteFile(file, step.pem, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := c.refresh(t.Context(), call{id: testID})
		if got := ReasonOf(err); got != step.want || (err != nil && !strings.Contains(err.Error(), step.contains)) {
			t.Errorf("step %d: got %q: %v", i, got, err)
		}
	}
	// Without the file the system's roots decide, and they don't know this server.
	c = newTestClient(t, srv.URL)
	if err := c.refresh(t.Context(), call{id: testID}); ReasonOf(err) != ReasonTLS {
		t.Errorf("untrusted: got %q: %v", ReasonOf(err), err)
	}
}

// TestClientCertificate: it is shown, and read again for each connection.
func TestClientCertificate(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	srv.Config.SetKeepAlivesEnabled(false)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	var known atomic.Pointer[[]byte]
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
		if want := known.Load(); want == nil || !bytes.Equal(raw[0], *want) {
			return errors.New("who is this?")
		}

		return nil
	}}
	srv.StartTLS()
	defer srv.Close()
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(file, kind string, der []byte) {
		t.Helper()
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(ca, "CERTIFICATE", srv.Certificate().Raw)
	pair := func(isKnown bool) {
		t.Helper()
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
		if err != nil {
			t.Fatal(err)
		}
		kd, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		if isKnown {
			known.Store(&der)
		}
		write(cert, "CERTIFICATE", der)
		write(key, "PRIVATE KEY", kd)
	}
	c := newTestClient(t, srv.URL, func(s *AgentServer) { s.CAFile, s.CertFile, s.KeyFile = ca, cert, key })
	ask := func(want Reason) {
		t.Helper()
		if err := c.refresh(t.Context(), call{id: testID}); ReasonOf(err) != want {
			t.Errorf("got %q: %v, want %q", ReasonOf(err), err, want)
		}
	}
	ask(ReasonTLS) // no files yet
	pair(true)
	ask("")
	pair(false)
	ask(ReasonTLS)
	pair(true)
	ask("")
}

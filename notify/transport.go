package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	// maxAnswer bounds what is read of an answer, in bytes; the rest is cut off
	// together with the connection.
	maxAnswer = 64 << 10
	// maxAnswerHeader bounds the header of an answer, in bytes.
	maxAnswerHeader = 64 << 10
	// bodyTimeout bounds how long the body may take after the header has come.
	bodyTimeout = 10 * time.Second
	dialTimeout = 5 * time.Second
	tlsTimeout  = 10 * time.Second
	// idleTimeout is short because agent servers close idle connections early.
	idleTimeout = 30 * time.Second

	keyHeader = "X-Session-API-Key"
	userAgent = "mcp-sidecar"
)

// transport makes one attempt: it puts the key on, bounds and reads the answer
// whole, and turns whatever goes wrong into an [Error] without secrets.
// It is safe for concurrent use.
type transport struct {
	base    *http.Transport
	server  AgentServer
	metrics *clientMetrics
}

func newTransport(s AgentServer, m *clientMetrics) *transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second, ControlContext: s.guardDial}
	base := &http.Transport{
		Proxy:                  nil, // never through a proxy of the environment
		DialContext:            dialer.DialContext,
		MaxIdleConns:           0,
		MaxIdleConnsPerHost:    s.Concurrency,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
	base.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		cfg := &tls.Config{MinVersion: tls.VersionTLS12}
		if s.CAFile != "" {
			pool, err := readCA(s.CAFile)
			if err != nil {
				return nil, err
			}
			cfg.RootCAs = pool
		}
		if s.CertFile != "" {
			pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("%w: the client certificate: %w", errTLSFile, err)
			}
			cfg.Certificates = []tls.Certificate{pair}
		}
		ctx, cancel := context.WithTimeout(ctx, tlsTimeout)
		defer cancel()

		return (&tls.Dialer{NetDialer: dialer, Config: cfg}).DialContext(ctx, network, addr)
	}

	return &transport{base: base, server: s, metrics: m}
}

// errTLSFile marks what is wrong with a CA file or a client certificate.
var errTLSFile = errors.New("unusable file for TLS")

// readCA is called for every new TLS connection, so that the file can be rotated.
func readCA(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTLSFile, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: %s holds no PEM certificate", errTLSFile, file)
	}

	return pool, nil
}

// credential returns the key to send, "" where the agent server has none.
func (s AgentServer) credential() (string, error) {
	if s.APIKey == nil {
		return "", nil
	}
	key, err := s.APIKey()
	if err != nil {
		return "", fmt.Errorf("reading the API key of agent server %s: %w", s.Name, err)
	}
	key = strings.TrimSpace(key)
	if key == "" {
		return "", fmt.Errorf("the API key of agent server %s is empty: write the key into its file, "+
			"or configure no key file for an agent server without keys", s.Name)
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("the API key of agent server %s spans lines or holds control characters: "+
			"its file must hold the key alone", s.Name)
	}

	return key, nil
}

// RoundTrip makes one attempt. The body of its response is an [answer].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := t.attempt(req)
	reason := ReasonOf(err)
	if err == nil {
		if e := answerOf(resp).classify(); e != nil {
			reason = e.Reason
		}
	}
	t.metrics.request(time.Since(began), reason)

	return resp, err
}

// open sends a request with the key on it, which it returns too, and leaves the
// body of the answer unread.
func (t *transport) open(req *http.Request) (resp *http.Response, key string, err error) {
	key, err = t.server.credential()
	if err != nil {
		return nil, "", &Error{Reason: ReasonCredential, Err: errors.New(redactText(err.Error()))}
	}
	ctx := req.Context()
	req = req.Clone(ctx)
	if key != "" {
		req.Header.Set(keyHeader, key)
	}
	addTrace(ctx, req.Header)
	resp, err = t.base.RoundTrip(req)
	if err != nil {
		return nil, key, t.failure(ctx, err, key)
	}

	return resp, key, nil
}

func (t *transport) attempt(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	resp, key, err := t.open(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}

	return t.read(resp, key, cancel), nil
}

// read reads an answer whole, as far as it is kept, and puts an [answer] in the
// place of its body. cancel ends the request.
func (t *transport) read(resp *http.Response, key string, cancel func()) *http.Response {
	timer := time.AfterFunc(bodyTimeout, cancel)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	timer.Stop()
	resp.Body.Close() // what goes wrong here concerns the connection only
	a := &answer{
		status: resp.StatusCode, header: resp.Header, body: body, key: key,
		cut: err != nil || len(body) > maxAnswer, secrets: t.server.secrets(key),
	}
	a.body = a.body[:min(len(body), maxAnswer)]
	a.Reader = bytes.NewReader(a.body)
	resp.Body = a

	return resp
}

// secrets returns what must not stand in any text about this agent server.
func (s AgentServer) secrets(key string) []string {
	secrets := []string{key}
	for _, values := range s.URL.Query() {
		for _, v := range values {
			secrets = append(secrets, v, url.QueryEscape(v))
		}
	}

	return secrets
}

// failure turns what the standard transport returned into an Error.
func (t *transport) failure(ctx context.Context, err error, key string) *Error {
	if e, ok := errors.AsType[*url.Error](err); ok { // its text has the URL
		err = e.Err
	}
	e := &Error{Reason: transportReason(ctx, err)}
	if cause := context.Cause(ctx); cause != nil {
		e.Err = cause

		return e
	}
	// The text may quote what the other side sent, so the error itself is not kept.
	e.Err = fmt.Errorf("calling agent server %s: %s", t.server.Name, redactText(err.Error(), t.server.secrets(key)...))

	return e
}

// transportReason classifies an error of the transport. None of the errors holds
// an answer.
func transportReason(ctx context.Context, err error) Reason {
	if errors.Is(err, ErrForbiddenAddress) {
		return ReasonForbiddenAddress
	}
	if errors.Is(err, errTLSFile) {
		return ReasonTLS
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // it doesn't like our certificate, say
		return ReasonTLS
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return ReasonTLS
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return ReasonTLS
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return ReasonTLS
	}
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return ReasonTimeout
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return ReasonTimeout
	}

	return ReasonNetwork
}

package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	defaultTimeout = 10 * time.Second // of OTEL_EXPORTER_OTLP_TIMEOUT
	maxTries       = 4
	maxAnswer      = 64 << 10 // bytes of an answer that are read
)

// client sends spans as OTLP over HTTP (OpenTelemetry protocol 1.x, "OTLP/HTTP").
// The official one brings gRPC along, which costs several megabytes of memory also
// where no spans are sent.
type client struct {
	url     string
	header  http.Header
	timeout time.Duration
	gzip    bool
	http    *retryablehttp.Client
}

// newClient makes a client of the variables of the OTLP exporter. Those for
// traces win over those for everything.
func newClient(getenv func(string) string) (*client, error) {
	of := func(name string) string {
		if v := getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
			return v
		}
		return getenv("OTEL_EXPORTER_OTLP_" + name)
	}
	c := &client{url: getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), timeout: defaultTimeout, header: http.Header{}}
	if c.url == "" {
		c.url = strings.TrimSuffix(getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/") + "/v1/traces"
	}
	if u, err := url.Parse(c.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the endpoint in OTEL_EXPORTER_OTLP_ENDPOINT must be a URL, such as http://localhost:4318")
	}
	if v := of("TIMEOUT"); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT must be a number of milliseconds, got %q", v)
		}
		c.timeout = time.Duration(ms) * time.Millisecond
	}
	switch v := of("COMPRESSION"); v {
	case "", "none":
	case "gzip":
		c.gzip = true
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION must be gzip or none, got %q", v)
	}
	for pair := range strings.SplitSeq(of("HEADERS"), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS must be NAME=VALUE, separated by commas, with values as in a URL")
		}
		c.header.Add(strings.TrimSpace(name), value)
	}
	tlsConfig, err := tlsConfigOf(of("CERTIFICATE"), of("CLIENT_CERTIFICATE"), of("CLIENT_KEY"))
	if err != nil {
		return nil, err
	}
	c.http = retryablehttp.NewClient()
	c.http.Logger, c.http.RetryMax = nil, maxTries-1
	c.http.HTTPClient = &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func tlsConfigOf(ca, cert, key string) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("reading OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading OTEL_EXPORTER_OTLP_CERTIFICATE: %s holds no PEM certificate", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("reading OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// Start implements [otlptrace.Client].
func (*client) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (c *client) Stop(context.Context) error {
	c.http.HTTPClient.CloseIdleConnections()
	return nil
}

// UploadTraces implements [otlptrace.Client]. On the wire, TracesData is the same as
// ExportTraceServiceRequest.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if c.gzip {
		var buf bytes.Buffer
		z := gzip.NewWriter(&buf)
		_, err := z.Write(body)
		if err := errors.Join(err, z.Close()); err != nil {
			return err
		}
		body = buf.Bytes()
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, c.url, body)
	if err != nil {
		return err
	}
	maps.Copy(req.Header, c.header)
	req.Header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok { // its text has the URL
			err = e.Err
		}
		return fmt.Errorf("sending spans: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("sending spans: the receiver answers %s", resp.Status)
	}
	return nil
}

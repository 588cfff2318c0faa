//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// response is a JSON-RPC response.
type response struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// err is the error that a response is.
func (m response) err() error {
	if m.Error == nil {
		return nil
	}
	return fmt.Errorf("JSON-RPC error %d %s", m.Error.Code, short(m.Error.Message))
}

// answer reads the response to the request with this id.
func answer(ctx context.Context, resp *http.Response, id string) (response, error) {
	var found response
	is := func(raw []byte) bool {
		found = response{}
		return json.Unmarshal(raw, &found) == nil && found.JSONRPC != "" && found.Method == "" && string(found.ID) == id
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		if err := events(resp.Body, func(raw []byte) bool { return !is(raw) }); err != nil {
			return response{}, broken(ctx, err)
		}
		if string(found.ID) != id {
			return response{}, errors.New("the answer's stream ended without the response")
		}
		return found, nil
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return response{}, broken(ctx, err)
	}
	if !is(raw) {
		resp.Body = io.NopCloser(bytes.NewReader(raw))
		return response{}, refusal(resp)
	}
	return found, nil
}

// events reads an event stream and passes on the data of each event, until yield returns false. An error says that the
// stream broke off.
func events(r io.Reader, yield func([]byte) bool) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if data, ok := bytes.CutPrefix(in.Bytes(), []byte("data:")); ok && !yield(bytes.TrimSpace(data)) {
			return nil
		}
	}
	return in.Err()
}

// refusal describes an answer that isn't the response that was asked for.
func refusal(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	var m response
	if json.Unmarshal(raw, &m) == nil && m.Error != nil {
		return fmt.Errorf("HTTP %d %s", resp.StatusCode, short(m.Error.Message))
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/html" {
		raw = nil
	}
	return errors.New(strings.TrimSpace(fmt.Sprintf("HTTP %d %s", resp.StatusCode, short(string(raw)))))
}

// broken describes why an answer didn't come or broke off, without addresses, so that it can be counted.
func broken(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("no answer in time")
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("connection closed without an answer")
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return errors.New(short(err.Error()))
}

// short is the beginning of a text, on one line.
func short(text string) string {
	if text = oneLine(text); len(text) > 80 {
		text = strings.ToValidUTF8(text[:80], "") + "…"
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

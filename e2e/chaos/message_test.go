//go:build chaos && unix

package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// message is a JSON-RPC message.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *rpcError       `json:"error"`
}

// rpcError is a JSON-RPC error.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// failure is what the sidecar says about its own errors.
type failure struct {
	Reason          string `json:"reason"`
	Retryable       bool   `json:"retryable"`
	MayHaveExecuted bool   `json:"mayHaveExecuted"`
}

// own reports whether the error is one of the sidecar's own.
func (e *rpcError) own() bool { return e.Code <= -31001 && e.Code >= -31003 }

func (e *rpcError) data() (f failure) {
	_ = json.Unmarshal(e.Data, &f)
	return f
}

// check says what is wrong with the error, "" if nothing is.
func (e *rpcError) check() string {
	if !e.own() {
		return ""
	}
	var f struct {
		Reason          *string `json:"reason"`
		Retryable       *bool   `json:"retryable"`
		MayHaveExecuted *bool   `json:"mayHaveExecuted"`
	}
	if err := strict(e.Data, &f); err != nil || f.Reason == nil || f.Retryable == nil || f.MayHaveExecuted == nil {
		return fmt.Sprintf("the error doesn't say what it must: %s %v", e.Data, err)
	}
	if *f.MayHaveExecuted && (*f.Retryable || e.Code != -31002) {
		return fmt.Sprintf("the error contradicts itself: %d %s", e.Code, e.Data)
	}
	return ""
}

// strict reads one JSON value that has nothing unknown in it and nothing after it.
func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// readMessage reads a message and checks that it is one.
func readMessage(raw []byte) (message, error) {
	var m message
	if err := strict(raw, &m); err != nil {
		return m, fmt.Errorf("%s: %.300q", err.Error(), raw) // not wrapped: that it ends too early isn't the end of a connection
	}
	answers := 0
	if m.Result != nil {
		answers++
	}
	if m.Error != nil {
		answers++
	}
	switch {
	case m.JSONRPC != "2.0", m.Method == "" && answers != 1, m.Method != "" && answers != 0,
		m.Method == "" && m.ID == nil:
		return m, fmt.Errorf("it is no message: %.300q", raw)
	}
	return m, nil
}

// errUnterminated is the end of a stream in the middle of an event.
var errUnterminated = errors.New("the stream ends within an event")

// event is one of a stream.
type event struct {
	id, name string
	data     []byte
}

// messages is for events that are a message each.
func messages(take func(id string, m message) error) func(event) error {
	return func(e event) error {
		if e.name != "" && e.name != "message" {
			return fmt.Errorf("an event %q came", e.name)
		}
		m, err := readMessage(e.data)
		if err != nil {
			return err
		}
		return take(e.id, m)
	}
}

// readEvents reads an event stream to its end, and checks each line of it. sign is called for each line.
func readEvents(r *bufio.Reader, sign func(), take func(event) error) error {
	var e event
	var data []string
	begun := false
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && (begun || line != "") {
				return errUnterminated
			}
			return err
		}
		sign()
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if len(data) > 0 {
				e.data = []byte(strings.Join(data, "\n"))
				if err := take(e); err != nil {
					return err
				}
			}
			data, e.name, begun = nil, "", false
		case name == "": // a comment
		case name == "data":
			data, begun = append(data, value), true
		case name == "id":
			e.id, begun = value, true
		case name == "event":
			e.name, begun = value, true
		case name == "retry":
			begun = true
		default:
			return fmt.Errorf("%q is no line of an event", line)
		}
	}
}

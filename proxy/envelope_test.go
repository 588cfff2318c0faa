package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read is what a test compares of a message.
type read struct {
	Kind                            messageKind
	ID, Method, Name, URI           string
	Version, Meta, Level            string
	Progress, Cancelled, Filter     string
	Cursor, Task, State, IsError    bool
	Code                            int64
	Params, Result, WholeIsTheInput string
}

func readOf(body []byte, m message) read {
	r := read{
		Kind: m.kind, ID: string(m.id), Method: m.method, Name: m.name, URI: m.uri,
		Version: m.protocolVersion, Meta: m.metaVersion, Level: m.level,
		Progress: string(m.progressToken), Cancelled: string(m.cancelledID), Filter: string(m.filter),
		Cursor: m.hasCursor, Task: m.hasTask, State: m.hasRequestState, IsError: m.isError, Code: m.errorCode,
		Params: string(m.params.of(body)), Result: string(m.result.of(body)),
	}
	if whole := string(m.span.of(body)); whole != string(bytes.TrimSpace(body)) {
		r.WholeIsTheInput = whole
	}

	return r
}

func TestReadEnvelope(t *testing.T) {
	t.Parallel()

	tests := []struct {
		name, body string
		want       read
	}{
		{
			"tool call", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":1,"a":2,"A":[{}]}}}`,
			read{Kind: kindRequest, ID: "7", Method: "tools/call", Name: "echo", Params: `{"name":"echo","arguments":{"a":1,"a":2,"A":[{}]}}`},
		},
		{
			"method after params, white space, escaped keys", " {\n\"params\" : {\"n\\u0061me\":\"\\u0065cho\"} ,\t\"id\":\"a\\u0062\", \"m\\u0065thod\":\"tools\\/call\"}\r\n",
			read{Kind: kindRequest, ID: `"a\u0062"`, Method: "tools/call", Name: "echo", Params: `{"n\u0061me":"\u0065cho"}`},
		},
		{"big and odd numbers stay as spelled", `{"id":123456789012345678901234567890.5e+1,"method":"ping"}`, read{Kind: kindRequest, ID: "123456789012345678901234567890.5e+1", Method: "ping"}},
		{"null id", `{"id":null,"method":"ping"}`, read{Kind: kindRequest, ID: "null", Method: "ping"}},
		{"notification", `{"method":"notifications/initialized"}`, read{Kind: kindNotification, Method: "notifications/initialized"}},
		{"unknown method keeps its params", `{"id":1,"method":"x/y","params":{"name":1,"Name":2,"name":3,"level":"a","Task":1,"task":1}}`, read{Kind: kindRequest, ID: "1", Method: "x/y", Params: `{"name":1,"Name":2,"name":3,"level":"a","Task":1,"task":1}`}},
		{"positional params", `{"id":1,"method":"x","params":[1,2]}`, read{Kind: kindRequest, ID: "1", Method: "x", Params: `[1,2]`}},
		{"name of another type", `{"id":1,"method":"tools/call","params":{"name":{"a":1}}}`, read{Kind: kindRequest, ID: "1", Method: "tools/call", Params: `{"name":{"a":1}}`}},
		{
			"initialize", `{"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","Name":"d"}}}`,
			read{Kind: kindRequest, ID: "0", Method: "initialize", Version: "2025-11-25", Params: `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","Name":"d"}}`},
		},
		{
			"modern call", `{"id":1,"method":"tools/call","params":{"name":"t","requestState":"s","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":9007199254740993}}}`,
			read{
				Kind: kindRequest, ID: "1", Method: "tools/call", Name: "t", State: true, Meta: "2026-07-28", Progress: "9007199254740993",
				Params: `{"name":"t","requestState":"s","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":9007199254740993}}`,
			},
		},
		{"input responses", `{"id":1,"method":"prompts/get","params":{"name":"p","inputResponses":{}}}`, read{Kind: kindRequest, ID: "1", Method: "prompts/get", Name: "p", State: true, Params: `{"name":"p","inputResponses":{}}`}},
		{"task", `{"id":1,"method":"tools/call","params":{"task":{"ttl":1}}}`, read{Kind: kindRequest, ID: "1", Method: "tools/call", Task: true, Params: `{"task":{"ttl":1}}`}},
		{"first page", `{"id":1,"method":"tools/list","params":{"cursor":null}}`, read{Kind: kindRequest, ID: "1", Method: "tools/list", Params: `{"cursor":null}`}},
		{"the empty cursor is one", `{"id":1,"method":"tools/list","params":{"cursor":""}}`, read{Kind: kindRequest, ID: "1", Method: "tools/list", Cursor: true, Params: `{"cursor":""}`}},
		{"subscribe", `{"id":1,"method":"resources/subscribe","params":{"uri":"file:///ä"}}`, read{Kind: kindRequest, ID: "1", Method: "resources/subscribe", URI: "file:///ä", Params: `{"uri":"file:///ä"}`}},
		{"cancelled", `{"method":"notifications/cancelled","params":{"requestId":"x","reason":"y"}}`, read{Kind: kindNotification, Method: "notifications/cancelled", Cancelled: `"x"`, Params: `{"requestId":"x","reason":"y"}`}},
		{"level", `{"id":1,"method":"logging/setLevel","params":{"level":"debug"}}`, read{Kind: kindRequest, ID: "1", Method: "logging/setLevel", Level: "debug", Params: `{"level":"debug"}`}},
		{"listen", `{"id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`, read{Kind: kindRequest, ID: "1", Method: "subscriptions/listen", Filter: `{"toolsListChanged":true}`, Params: `{"notifications":{"toolsListChanged":true}}`}},
		{"result", `{"jsonrpc":"2.0","id":1,"result":{"x":"\ud800"},"error":null}`, read{Kind: kindResponse, ID: "1", Result: `{"x":"\ud800"}`}},
		{"error", `{"id":"1","error":{"code":-32601,"message":"m","data":{"code":1}}}`, read{Kind: kindResponse, ID: `"1"`, IsError: true, Code: -32601}},
		{"error without id", `{"error":{"code":-32000,"code":-1}}`, read{Kind: kindResponse, IsError: true}},
		{"invalid UTF-8 in arguments", "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"arguments\":{\"a\":\"\xff\"}}}", read{Kind: kindRequest, ID: "1", Method: "tools/call", Params: "{\"arguments\":{\"a\":\"\xff\"}}"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			e, err := readEnvelope([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}

			if e.batch || len(e.messages) != 1 {
				t.Fatalf("batch %v with %d messages, want a single one", e.batch, len(e.messages))
			}

			if diff := cmp.Diff(tt.want, readOf([]byte(tt.body), e.messages[0])); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadEnvelopeRefuses(t *testing.T) {
	t.Parallel()

	deep := func(n int) string {
		return `{"id":1,"method":"x","params":{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}`
	}
	tests := []struct {
		name, body string
		want       error
	}{
		{"empty", ``, errSyntax},
		{"white space", " \n", errSyntax},
		{"byte order mark", "\xef\xbb\xbf{}", errSyntax},
		{"number", `1`, errNotObject},
		{"string", `"{}"`, errNotObject},
		{"words", `hello`, errSyntax},
		{"empty object", `{}`, errShape},
		{"id only", `{"id":1}`, errShape},
		{"result without id", `{"result":{}}`, errShape},
		{"request and response", `{"id":1,"method":"x","result":{}}`, errShape},
		{"duplicate method", `{"method":"a","id":1,"method":"a"}`, errDuplicate},
		{"duplicate by escape", `{"method":"a","id":1,"m\u0065thod":"a"}`, errDuplicate},
		{"duplicate id", `{"method":"a","id":1,"id":1}`, errDuplicate},
		{"duplicate params", `{"method":"a","id":1,"params":{},"params":null}`, errDuplicate},
		{"case variant", `{"method":"a","id":1,"Method":"b"}`, errVariant},
		{"case variant alone", `{"METHOD":"a","id":1}`, errVariant},
		{"long s", `{"method":"a","id":1,"paramſ":{}}`, errVariant},
		{"long s, escaped", `{"method":"a","id":1,"param\u017f":{}}`, errVariant},
		{"long s in json", `{"jſonrpc":"2.0","method":"a","id":1}`, errVariant},
		{"dotless i", `{"method":"a","ıd":1}`, errVariant},
		{"name twice", `{"method":"tools/call","id":1,"params":{"name":"a","name":"b"}}`, errDuplicate},
		{"name twice, method last", `{"id":1,"params":{"name":"a","name":"b"},"method":"tools/call"}`, errDuplicate},
		{"name variant", `{"method":"tools/call","id":1,"params":{"name":"a","NAME":"b"}}`, errVariant},
		{"name variant alone", `{"method":"tools/call","id":1,"params":{"Name":"b"}}`, errVariant},
		{"Kelvin sign", `{"method":"tools/call","id":1,"params":{"tasK":{}}}`, errVariant},
		{"long s in params", `{"method":"tools/call","id":1,"params":{"requeſtState":{}}}`, errVariant},
		{"meta twice", `{"method":"x","id":1,"params":{"_meta":{},"_meta":{}}}`, errDuplicate},
		{"version in meta twice", `{"method":"x","id":1,"params":{"_meta":{"progressToken":1,"progressToken":1}}}`, errDuplicate},
		{"version in meta variant", `{"method":"x","id":1,"params":{"_meta":{"io.modelcontextprotocol/protocolverſion":"a"}}}`, errVariant},
		{"cancelled twice", `{"method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}`, errDuplicate},
		{"trailing object", `{"method":"a"}{}`, errTrailing},
		{"trailing letter", `{"method":"a"} x`, errTrailing},
		{"trailing NUL", "{\"method\":\"a\"}\x00", errTrailing},
		{"trailing after batch", `[{"method":"a"}]]`, errTrailing},
		{"id object", `{"id":{},"method":"a"}`, errID},
		{"id array", `{"id":[1],"method":"a"}`, errID},
		{"id bool", `{"id":true,"method":"a"}`, errID},
		{"long id", `{"method":"a","id":"` + strings.Repeat("x", 1<<10) + `"}`, errID},
		{"huge id", `{"method":"a","id":"` + strings.Repeat("x", 5<<20) + `"}`, errID},
		{"invalid UTF-8 in id", "{\"method\":\"a\",\"id\":\"\xff\"}", errEncoding},
		{"invalid UTF-8 in method", "{\"method\":\"a\xff\",\"id\":1}", errEncoding},
		{"invalid UTF-8 in name", "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"\xc3\"}}", errEncoding},
		{"invalid UTF-8 in a key", "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"na\xffme\":\"x\"}}", errEncoding},
		{"method number", `{"id":1,"method":1}`, errMethod},
		{"method null", `{"id":1,"method":null}`, errMethod},
		{"long method", `{"id":1,"method":"` + strings.Repeat("m", 257) + `"}`, errMethod},
		{"nested 1001", deep(999), errNesting},
		{"nested 200,000", deep(200000), errNesting},
		{"open 200,000", strings.Repeat("[", 200000), errNesting},
		{"nested in an unknown member", `{"id":1,"x":` + strings.Repeat(`{"a":`, 200000), errNesting},
		{"empty batch", `[ ]`, errBatchSize},
		{"large batch", `[` + strings.Repeat(`{"method":"a"},`, 256) + `{"method":"a"}]`, errBatchSize},
		{"batch of numbers", `[1]`, errNotObject},
		{"batch in a batch", `[[{"method":"a"}]]`, errNotObject},
		{"open batch", `[{"method":"a"}`, errSyntax},
		{"open object", `{"method":"a"`, errSyntax},
		{"trailing comma", `{"method":"a",}`, errSyntax},
		{"leading comma", `{,"method":"a"}`, errSyntax},
		{"no comma", `{"method":"a" "id":1}`, errSyntax},
		{"no colon", `{"method" "a"}`, errSyntax},
		{"bare key", `{method:"a"}`, errSyntax},
		{"no value", `{"method":}`, errSyntax},
		{"bad literal", `{"method":"a","x":nul}`, errSyntax},
		{"leading zero", `{"method":"a","id":01}`, errSyntax},
		{"lone minus", `{"method":"a","id":-}`, errSyntax},
		{"no fraction", `{"method":"a","id":1.}`, errSyntax},
		{"no exponent", `{"method":"a","id":1e+}`, errSyntax},
		{"NaN", `{"method":"a","x":NaN}`, errSyntax},
		{"control byte in a string", "{\"method\":\"a\",\"x\":\"12345678\n\"}", errSyntax},
		{"bad escape", `{"method":"a","x":"\x"}`, errSyntax},
		{"short escape", `{"method":"a","x":"\u12"}`, errSyntax},
		{"escape at the end", `{"method":"\`, errSyntax},
		{"array closed as object", `{"method":"a","x":[1}}`, errSyntax},
		{"object closed as array", `{"method":"a","x":{"a":1]}`, errSyntax},
		{"array comma", `{"method":"a","x":[1,]}`, errSyntax},
		{"object comma", `{"method":"a","x":{"a":1,}}`, errSyntax},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			_, err := readEnvelope([]byte(tt.body))
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestReadEnvelopeBounds(t *testing.T) {
	t.Parallel()

	for name, body := range map[string]string{
		"id":      `{"method":"a","id":"` + strings.Repeat("x", 1<<10-2) + `"}`,
		"method":  `{"method":"` + strings.Repeat("m", 256) + `"}`,
		"nesting": `{"id":1,"method":"x","params":{"a":` + strings.Repeat("[", 998) + strings.Repeat("]", 998) + `}}`,
	} {
		if _, err := readEnvelope([]byte(body)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadEnvelopeBatch(t *testing.T) {
	t.Parallel()

	body := []byte(` [{"id":1,"method":"ping"} , {"method":"notifications/x"},{"id":2,"result":{}}] `)

	e, err := readEnvelope(body)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, m := range e.messages {
		got = append(got, fmt.Sprint(m.kind, " ", string(m.span.of(body))))
	}

	want := []string{`1 {"id":1,"method":"ping"}`, `2 {"method":"notifications/x"}`, `3 {"id":2,"result":{}}`}
	if diff := cmp.Diff(want, got); diff != "" || !e.batch {
		t.Errorf("batch %v\n%s", e.batch, diff)
	}

	if _, err := readEnvelope([]byte(`[` + strings.Repeat(`{"method":"a"},`, 255) + `{"method":"a"}]`)); err != nil {
		t.Errorf("256 messages: %v", err)
	}
}

// TestBeginsResult: what is taken for a result by its beginning alone.
func TestBeginsResult(t *testing.T) {
	t.Parallel()

	for body, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"result":{"x`:      true,
		` { "id" : "a" , "result" : `:               true,
		`{"result":`:                                true,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1`: false,
		`{"jsonrpc":"2.0","id":1,"x":{"result":1}`:  false,
		`{"jsonrpc":"2.0","method":"x","result":1}`: false,
		`{"jsonrpc":"2.0","id":{"result":1`:         false,
		`[{"jsonrpc":"2.0","id":1,"result":{}}]`:    false,
		`"result"`:                                  false,
		`{"jsonrpc":"2.0" "result":1}`:              false,
		``:                                          false,
	} {
		if got := beginsResult([]byte(body)); got != want {
			t.Errorf("%s: got %v", body, got)
		}
	}
}

// FuzzReadEnvelope compares with encoding/json, which ignores the case of keys
// and lets the last one win: where readEnvelope accepts, such a backend must read
// the same.
func FuzzReadEnvelope(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":[1,2.5e3,null,true]}}}`,
		`[{"id":"\u0061","method":"ping"},{"id":1,"error":{"code":-32601}}]`,
		`{"Method":"a","method":"b","id":1}`,
		`{"params":{"name":"a","ſ":1},"method":"tools/call"}`,
		"{\"id\":1,\"method\":\"x\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"\xff\"}}}",
		`{"id":1,"method":"tools/call","params":{"name":"\ud83d\ude00\ud800"}}`,
		`{"id":1,"method":"x","params":` + strings.Repeat("[", 1100) + `}`,
	} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := readEnvelope(body)
		if err != nil {
			var refused *envelopeError
			if !errors.As(err, &refused) || refused.code != codeParse && refused.code != codeInvalid {
				t.Fatalf("untyped error %v", err)
			}

			if (errors.Is(err, errSyntax) || errors.Is(err, errTrailing)) && json.Valid(body) {
				t.Fatalf("valid JSON refused: %v", err)
			}

			return
		}

		if !json.Valid(body) {
			t.Fatal("invalid JSON accepted")
		}

		for _, m := range e.messages {
			var other struct {
				ID     json.RawMessage
				Method *string
				Params json.RawMessage
			}
			if err := json.Unmarshal(m.span.of(body), &other); err != nil {
				t.Fatalf("another decoder refuses: %v", err)
			}

			if string(other.ID) != string(m.id) && (other.ID != nil || string(m.id) != "null") {
				t.Fatalf("id %q, another decoder reads %q", m.id, other.ID)
			}

			if (other.Method == nil) != (m.kind == kindResponse) || other.Method != nil && *other.Method != m.method {
				t.Fatalf("method %q, another decoder reads %v", m.method, other.Method)
			}

			if m.kind == kindResponse {
				continue
			}

			var params map[string]json.RawMessage
			if json.Unmarshal(other.Params, &params) == nil && m.method == "tools/call" {
				var p struct{ Name any }

				_ = json.Unmarshal(other.Params, &p)
				if name, _ := p.Name.(string); name != m.name {
					t.Fatalf("name %q, another decoder reads %q", m.name, name)
				}
			}
		}
	})
}

func BenchmarkReadEnvelope(b *testing.B) {
	small := []byte(`{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello there","n":12},"_meta":{"progressToken":42}}}`)
	large := bytes.Replace(small, []byte("hello there"), bytes.Repeat([]byte("lorem ipsum "), 100<<10/12), 1)
	list := []byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.Repeat(`{"name":"tool","description":"does a thing","inputSchema":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer","minimum":1}},"required":["a"]}},`, 600) + `{}]}}`)

	for _, bm := range []struct {
		name string
		body []byte
	}{{"call", small}, {"call-100KB", large}, {"list-100KB", list}} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bm.body)))

			for b.Loop() {
				if _, err := readEnvelope(bm.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
